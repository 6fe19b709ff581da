-- pause makes consumers hand out nothing until an instant, or makes them go on.
--
-- KEYS: 1 pending, 2 ready, 3 retry, 4 wake, 5 state
-- ARGV: 3 us until which; '0': go on
-- Returns {now}
-- Cost: 10 commands of O(log n).
-- Keeps: invariant 6, and that somebody wakes for what waits. The first write is a ZREM: a full server lets the rest pass.
local field = 'call:' .. ARGV[1]
local state = redis.call('HMGET', KEYS[5], field, 'armed')
local reply, at = recall(state[1])
if reply then return {at} elseif reply == false then return stale end
local pended = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local ready = redis.call('LLEN', KEYS[2])
local retried = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
redis.call('ZCARD', KEYS[4])
redis.call('ZREM', KEYS[1], '') -- the first write

local till, first = tonumber(ARGV[3]), scored(pended[2])
if retried[2] and (not first or scored(retried[2]) < first) then first = scored(retried[2]) end
if ready > 0 and (not first or now < first) then first = now end
local marks = {field, record('')}
if till > now then
  marks[3], marks[4] = 'pause', us(till)
else
  redis.call('HDEL', KEYS[5], 'pause')
end
if first then
  if till > now then first = math.max(first, till) end
  local armed = whole(state[2]) or 0
  if armed == 0 or first < armed then
    redis.call('ZADD', KEYS[4], us(first), 'w')
    marks[#marks + 1] = 'armed'
    marks[#marks + 1] = us(first)
  end
end
redis.call('HSET', KEYS[5], unpack(marks))
return {us(now)}
