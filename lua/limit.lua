-- limit sets the limits of a queue that go before those that its consumers ask for, or takes them back.
--
-- KEYS: wake, state
-- ARGV: 3 '<n> <us> <burst> <places>', as state.override has them; '': none
-- Returns {now, what they were before, '' for none}
-- Cost: 6 commands.
-- Keeps: invariants 6 and 9 of PROTOCOL.md. The first write is a ZREM: a full server lets the rest pass.

-- include head, call
local saved, limits, override, limited, armed =
  unpack(redis.call('HMGET', KEYS.state, field, 'limits', 'override', 'limited', 'armed'), 1, 5)
local reply, at = recall(saved)
if reply then return {at, reply} elseif reply == false then return STALE end
guard(redis.call('ZCARD', KEYS.wake))
redis.call('ZREM', KEYS.wake, '') -- the first write
if ARGV[3] ~= '' or limits then
  mark('override', ARGV[3])
  if not limits then mark('limits', '') end
end
local since, open = string.match(limited or '', '^(%d+) %d+ (%d+) %d+ [01]$')
if since then -- what is put off may go now
  redis.call('ZADD', KEYS.wake, us(now), 'w')
  mark('limited', since .. ' ' .. us(whole(armed) or 0) .. ' ' .. open .. ' ' .. us(now) .. ' 0')
end
remember(override or '')
return {us(now), override or ''}
