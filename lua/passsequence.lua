-- passsequence moves a sequence on to a number, as a message with it would, but without one; never back.
--
-- KEYS: state, sequence
-- ARGV: 3 name, 4 the number and 2^63, 20 digits
-- Returns {digits of the number at which the sequence was before, '' if there was none}
-- Cost: 4 commands.
-- Keeps: invariants 6 and 12 of PROTOCOL.md.

-- include head, call, lastof
local reply = recall(redis.call('HGET', KEYS.state, field))
if reply then return {reply} elseif reply == false then return STALE end
local last = lastof(ARGV[3]) or ''
if last < ARGV[4] then redis.call('HSET', KEYS.sequence, ARGV[3], ARGV[4]) end
remember(last)
return {last}
