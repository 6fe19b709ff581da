-- put stores messages one after the other. Each has a word that says what becomes of it if another message has its key, and each may
-- have a number in a sequence. A message that needs neither is stored by send.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, sequence, done, held, parts
-- ARGV: 3 and on, for each message a word and its fields:
--         'refuse', 'keep'  delay, version, id, envelope, sequence, number, after
--         'reschedule'      the same, wait
--         'replace'         the same, wait, timed
--         'append'          the same, wait, timed, parts
--       delay: us from now ('': the envelope has its own due instant); envelope: after a delay only the part behind the due
--       instant; sequence: its name, '': none; number: in that sequence, 20 digits of it and 2^63; after: a number that the sequence
--       must have come to, '': none; wait: us by which the message may be put off, '0': any time; timed: '1' if the sender says when
--       the message is due; parts: how many the group may have
-- Returns {now, answers with blanks between}, an answer for each message, or for the first of them: the others must be put by another
--       call. '+<due>': stored. '=<id>': not stored, the message id has the key; '=acked:<id>': not stored, the message id was acked
--       and keeps the key. '#<digits>': not stored, the last number of the sequence is that. '!': not stored, the sequence has not
--       come to the number after. '~<due>:<id>': the message id had the key, and was kept, replaced, rescheduled or appended to; due:
--       when it is due (if it was handed out: when it comes again, or now), '0' if it was acked and keeps its key.
-- Cost: 16 commands, 1 more to set the alarm, 1 where there are groups, 2 for each group that leaves its key; for each message at most
--       6 of O(log pending), 16 if its key is taken, at most 100 messages; O(ready) if the message that has the key is there. It
--       reads that message, unless it is kept (of a group the first part), and replaces a group in O(parts): half a
--       megabyte and 2,000 parts in all, or one message.
-- Keeps: invariants 1, 3, 4, 6, 9 and 12 of PROTOCOL.md. The first write is a ZADD on purpose: a full server must refuse a
--       send before anything is stored. Each message finds what those before it have written.

-- from time: now, us, whole
-- from call: field, again, guard, mark, remember
-- from message: SMALL
-- from alarm: gate, sooner, arm
local FIELDS = {refuse = 7, keep = 7, reschedule = 8, replace = 9, append = 10}
-- A call ends before the message that would make it read more than READ bytes of other messages. Each part that is deleted counts PART
-- bytes.
local READ, PART = 524288, 256
local saved, armed, big, pause, sent, groups, changes, overtakes =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'big', 'pause', 'sent', 'parts', 'changed', 'overtaken'), 1, 8)
guard(redis.call('ZCARD', KEYS.pending), redis.call('LLEN', KEYS.ready), redis.call('ZCARD', KEYS.unack),
  redis.call('ZCARD', KEYS.retry), redis.call('ZCARD', KEYS.garbage), redis.call('HLEN', KEYS.msg),
  redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.wake),
  redis.call('HLEN', KEYS.sequence), redis.call('ZCARD', KEYS.done), redis.call('ZCARD', KEYS.held))
local grouped, i = groups, 3
while ARGV[i] do
  grouped = grouped or ARGV[i] == 'append'
  i = i + 1 + FIELDS[ARGV[i]]
end
if grouped then guard(redis.call('HLEN', KEYS.parts)) end
local answer = again(saved)
if answer then return answer end
redis.call('ZADD', KEYS.pending, 'XX', 0, '') -- changes nothing

local longest, first, stored = math.max(whole(big) or 0, SMALL), nil, 0
local grown, changed, overtaken = false, false, false -- a part was added, a waiting message changed, a delivery superseded
local answers, spent = {}, 0 -- spent: bytes of READ

-- step edit, change, store
i = 3
while ARGV[i] do
  local behind = i + 1 + FIELDS[ARGV[i]]
  local answer = put(unpack(ARGV, i, behind - 1))
  if not answer then break end
  answers[#answers + 1] = answer
  i = behind
end
answers = table.concat(answers, ' ')
if first then
  first = gate(first, pause)
  if sooner(first, armed) then arm(first) end
end
if stored > 0 then mark('sent', us((whole(sent) or 0) + stored)) end
if longest > math.max(whole(big) or 0, SMALL) then mark('big', us(longest)) end
if grown and not groups then mark('parts', '1') end
if changed and not changes then mark('changed', '1') end
if overtaken and not overtakes then mark('overtaken', '1') end
remember(answers)
return {us(now), answers}
