-- Part of the scripts that end deliveries, where state.limited says that what is due is put off (fetch_limit.lua): if that
-- waits for a place in unack, there is one now, and one consumer wakes.
local since, open = string.match(limited, '^(%d+) %d+ (%d+) %d+ 1$')
if since then
  local wakes = us(math.max(now, whole(open)))
  redis.call('ZADD', KEYS.wake, wakes, 'w')
  mark('limited', since .. ' ' .. us(whole(armed) or 0) .. ' ' .. open .. ' ' .. wakes .. ' 0')
end
