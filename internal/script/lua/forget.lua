-- forget deletes the records of callers without a call for an hour, among some fields of state that are drawn at random. Publishers
-- call it for a queue that nobody consumes; a tick does the same.
--
-- KEYS: state
-- Returns {how many were deleted}
-- Cost: 2 commands of at most 100 fields.
-- Keeps: every invariant of internal/check. It may come twice.

-- from time: us
-- from call: forgotten
local drawn, gone = redis.call('HRANDFIELD', KEYS.state, 100, 'WITHVALUES'), {}
for i = 1, #drawn, 2 do
  if forgotten(drawn[i], drawn[i + 1]) then gone[#gone + 1] = drawn[i] end
end
if gone[1] then redis.call('HDEL', KEYS.state, unpack(gone)) end
return {us(#gone)}
