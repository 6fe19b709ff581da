-- dropsequence forgets how far a sequence has come: any number may come next.
--
-- KEYS: state, sequence
-- ARGV: 3 name
-- Returns {'1': it was there; '0'}, or the error DQNOQUEUE
-- Cost: 4 commands, 5 if it was not there.
-- Keeps: invariants 6 and 12 of PROTOCOL.md. The first write is a HDEL: a full server lets the rest pass.

-- include head, call
local reply = recall(redis.call('HGET', KEYS.state, field))
if reply then return {reply} elseif reply == false then return STALE end
reply = us(redis.call('HDEL', KEYS.sequence, ARGV[3]))
if reply == '0' and redis.call('HLEN', KEYS.state) == 0 then return {err = 'DQNOQUEUE the queue has no key'} end
remember(reply)
return {reply}
