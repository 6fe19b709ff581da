-- Part of the scripts that end deliveries, where state.limited says that what is due is put off (fetch_limit.lua): if that
-- waits for a place in unack, there is one now, and one consumer wakes.
local head, open = string.match(limited, '^(%d+ %d+ (%d+)) %d+ 1$')
if head then
  open = us(math.max(now, whole(open)))
  redis.call('ZADD', KEYS.wake, open, 'w')
  mark('limited', head .. ' ' .. open .. ' 0')
end
