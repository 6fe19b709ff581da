-- passsequence moves a sequence on to a number, as a message with it would, but without one; never back.
--
-- KEYS: state, sequence
-- ARGV: 3 name, 4 the number and 2^63, 20 digits
-- Returns {digits of the number at which the sequence was before, '' if there was none}
-- Cost: 4 commands.
-- Keeps: invariants 6 and 12 of PROTOCOL.md.

-- include head, call
local reply = recall(redis.call('HGET', KEYS.state, field))
if reply then return {reply} elseif reply == false then return STALE end
local last = redis.call('HGET', KEYS.sequence, ARGV[3])
if not last or #last ~= 20 or not string.match(last, '^%d+$') or last > '18446744073709551615' then last = '' end
if last < ARGV[4] then redis.call('HSET', KEYS.sequence, ARGV[3], ARGV[4]) end
remember(last)
return {last}
