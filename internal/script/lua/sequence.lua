-- sequence forgets a sequence, so that any number may come next, or moves it on to a number without a message, never back.
--
-- KEYS: state, sequence
-- ARGV: 3 'drop' or 'pass', 4 name, 5 of 'pass': the number and 2^63, 20 digits; 6 the number
--       that it must have come to, '': none
-- Returns {'1' if it was there, '0' if not}; of 'pass' {digits of its last number before, '' if there was none}. Or the error
--       DQNOQUEUE of 'drop', if there is no queue.
-- Cost: 4 commands, 5 if there was none to forget.
-- Keeps: invariants 6 and 12 of internal/check. The first write of 'drop' is a HDEL: a full server lets the rest pass.

-- from time: us
-- from call: field, STALE, recall, remember
-- from queue: NOQUEUE
-- from keys: lastof
local what, name = ARGV[3], ARGV[4]
local reply = recall(redis.call('HGET', KEYS.state, field))
if reply then return {reply} elseif reply == false then return {err = STALE} end
if what == 'drop' then
  reply = us(redis.call('HDEL', KEYS.sequence, name))
  if reply == '0' and redis.call('HLEN', KEYS.state) == 0 then return NOQUEUE end
else
  reply = lastof(name) or ''
  if reply < ARGV[5] and reply >= ARGV[6] then redis.call('HSET', KEYS.sequence, name, ARGV[5]) end
end
remember(reply)
return {reply}
