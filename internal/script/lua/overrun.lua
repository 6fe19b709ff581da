-- overrun keeps the places of handlers that run on after their deliveries have ended, or frees the places of handlers that have
-- returned. It does nothing unless the concurrency of the queue is bounded.
--
-- KEYS: unack, wake, state
-- ARGV: 1 lease us, for which the places are kept; '0': the handlers have returned; then the tag of each delivery
-- Returns how many places the queue has, 0: any number
-- Cost: 5 commands, 7 if a message that is due waits for a place; O(log unack) for each tag.
--       A call may come twice or late: a place that is kept too late is free when that lease is over.
-- Keeps: invariants 1 and 9 of PROTOCOL.md. The first write is a ZREM: a full server lets the rest pass.

-- from time: now, us
-- from limits: OVERRUN, placesOf
local limits, override, limited, armed = unpack(redis.call('HMGET', KEYS.state, 'limits', 'override', 'limited', 'armed'), 1, 4)
local lease = tonumber(ARGV[1])
local places = placesOf(limits, override)
redis.call('ZCARD', KEYS.wake) -- of another program, it raises before the first write
redis.call('ZREM', KEYS.unack, '')
if places == 0 then return {'0'} end
local tags, ends = {}, {}
for i = 2, #ARGV do
  tags[i - 1] = OVERRUN .. ARGV[i]
  ends[2 * i - 3], ends[2 * i - 2] = us(now + lease), tags[i - 1]
end
if lease > 0 then
  redis.call('ZADD', KEYS.unack, unpack(ends))
elseif redis.call('ZREM', KEYS.unack, unpack(tags)) > 0 and limited then
  -- from alarm: freed
  local putOff = freed(limited, armed)
  if putOff then redis.call('HSET', KEYS.state, 'limited', putOff) end
end
return {us(places)}
