-- pause makes consumers hand out nothing until an instant, or makes them go on.
--
-- KEYS: pending, ready, retry, wake, state
-- ARGV: 3 us until which; '0': go on
-- Returns {now}
-- Cost: 10 commands of O(log n).
-- Keeps: invariant 6, and that somebody wakes for what waits. The first write is a ZREM: a full server lets the rest pass.
local field = 'call:' .. ARGV[1]
local state = redis.call('HMGET', KEYS.state, field, 'armed')
local reply, at = recall(state[1])
if reply then return {at} elseif reply == false then return stale end
local pended = redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES')
local ready = redis.call('LLEN', KEYS.ready)
local retried = redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES')
redis.call('ZCARD', KEYS.wake)
redis.call('ZREM', KEYS.pending, '') -- the first write

local till, first = tonumber(ARGV[3]), scored(pended[2])
if retried[2] and (not first or scored(retried[2]) < first) then first = scored(retried[2]) end
if ready > 0 and (not first or now < first) then first = now end
local marks = {field, record('')}
if till > now then
  marks[3], marks[4] = 'pause', us(till)
else
  redis.call('HDEL', KEYS.state, 'pause')
end
if first then
  if till > now then first = math.max(first, till) end
  local armed = whole(state[2]) or 0
  if armed == 0 or first < armed then
    redis.call('ZADD', KEYS.wake, us(first), 'w')
    marks[#marks + 1] = 'armed'
    marks[#marks + 1] = us(first)
  end
end
redis.call('HSET', KEYS.state, unpack(marks))
return {us(now)}
