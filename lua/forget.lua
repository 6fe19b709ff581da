-- forget deletes what state remembers of callers that are heard of no more, of some that are drawn at random: a
-- queue to which many processes send and that nobody consumes has nobody else to do it.
--
-- KEYS: state
-- Returns {how many}
-- Cost: 2 commands of at most 100 fields.
-- Keeps: every invariant of PROTOCOL.md; it need not have the effect of once.

-- include head, callers
local drawn, gone = redis.call('HRANDFIELD', KEYS.state, 100, 'WITHVALUES'), {}
for i = 1, #drawn, 2 do
  if forgotten(drawn[i], drawn[i + 1]) then gone[#gone + 1] = drawn[i] end
end
if gone[1] then redis.call('HDEL', KEYS.state, unpack(gone)) end
return {us(#gone)}
