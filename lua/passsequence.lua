-- passsequence moves a sequence on to a number, as a message with it would, but without one; never back.
--
-- KEYS: sequence
-- ARGV: 1 name, 2 the number and 2^63, 20 digits
-- Returns {digits of the number at which the sequence is then}
-- Cost: 3 commands. Sent again it changes nothing, so it is no numbered call.
-- Keeps: invariant 12 of PROTOCOL.md.

-- include head
local last = redis.call('HGET', KEYS.sequence, ARGV[1])
local known = last and #last == 20 and string.match(last, '^%d+$') and last <= '18446744073709551615'
if known and last >= ARGV[2] then return {last} end
redis.call('HSET', KEYS.sequence, ARGV[1], ARGV[2])
return {ARGV[2]}
