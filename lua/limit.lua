-- limit sets the limits of a queue that go before those that its consumers ask for, or takes them back; or it lifts a Throttle.
--
-- KEYS: msg, wake, state
-- ARGV: 3 '<n> <us> <burst> <places>', as state.override has them; '': none; 'lift': they stay, and the Throttle is lifted
-- Returns {now, what they were before, '' for none}; when it lifts, until when the queue was throttled, '' if it was not
-- Cost: 6 commands, 7 when it lifts.
-- Keeps: invariants 6 and 9 of PROTOCOL.md. The first write is a ZREM: a full server lets the rest pass.

-- include head, call, throttled
local saved, limits, override, limited, armed, throttled =
  unpack(redis.call('HMGET', KEYS.state, field, 'limits', 'override', 'limited', 'armed', 'throttled'), 1, 6)
local reply, at = recall(saved)
if reply then return {at, reply} elseif reply == false then return STALE end
-- include existing
guard(redis.call('ZCARD', KEYS.wake))
redis.call('ZREM', KEYS.wake, '') -- the first write
local before = override or ''
if ARGV[3] == 'lift' then
  local till = throttledUntil(throttled)
  before = till > 0 and us(till) or ''
  redis.call('HDEL', KEYS.state, 'throttled')
elseif ARGV[3] ~= '' or limits then
  mark('override', ARGV[3])
  if not limits then mark('limits', '') end
end
local since, open = string.match(limited or '', '^(%d+) %d+ (%d+) %d+ [01]$')
if since and (ARGV[3] ~= 'lift' or before ~= '') then -- what is put off may go now
  redis.call('ZADD', KEYS.wake, us(now), 'w')
  mark('limited', since .. ' ' .. us(whole(armed) or 0) .. ' ' .. open .. ' ' .. us(now) .. ' 0')
end
remember(before)
return {us(now), before}
