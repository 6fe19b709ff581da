-- pause makes consumers hand out nothing until an instant, or makes them go on.
--
-- KEYS: pending, ready, retry, wake, state
-- ARGV: 3 us until which; '0': go on
-- Returns {now}
-- Cost: 10 commands of O(log n).
-- Keeps: invariants 6 and 9 of PROTOCOL.md. The first write is a ZREM: a full server lets the rest pass.

-- include head, call, score, arm
local saved, armed = unpack(redis.call('HMGET', KEYS.state, field, 'armed'), 1, 2)
local reply, at = recall(saved)
if reply then return {at} elseif reply == false then return STALE end
local pended = redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES')
local ready = redis.call('LLEN', KEYS.ready)
local retried = redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES')
guard(redis.call('ZCARD', KEYS.wake))
redis.call('ZREM', KEYS.pending, '') -- the first write

local till, first = tonumber(ARGV[3]), scored(pended[2])
if retried[2] and (not first or scored(retried[2]) < first) then first = scored(retried[2]) end
if ready > 0 and (not first or now < first) then first = now end
if till > now then
  mark('pause', us(till))
  first = first and gate(first, us(till))
else
  redis.call('HDEL', KEYS.state, 'pause')
end
if first and sooner(first, armed) then arm(first) end
remember('')
return {us(now)}
