-- put stores messages one after the other. Each has a word that says what becomes of it if another message has its key, and each may
-- have a number in a sequence. A message that needs neither is stored by send.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, sequence, done, holds, parts, lanes, waiting
--       (the last two are left out if no message has a lane, or a policy for its key)
-- ARGV: 3 and on: if the queue has several shards, 'shards' and how many. Then for each message a word and its fields,
--       as lib/put.lua says; and before it, if the message has a number in a sequence,
--         'sequence'  name, number, after
--       number: 20 digits of it and 2^63; after: a number that the sequence must have come to, '': none
-- Returns {now, answers with blanks between, uneven}, an answer for each message, or for the first of them: the others must be put by another
--       call. '+<due>': stored. '=<id>': not stored, the message id has the key; '=acked:<id>': not stored, the message id was acked
--       and keeps the key. '#<digits>': not stored, the last number of the sequence is that. '!': not stored, the sequence has not
--       come to the number after. '~<due>:<id>': the message id had the key, and was kept, replaced, rescheduled or appended to; due:
--       when it is due (if it was handed out: when it comes again, or now), '0' if it was acked and keeps its key. uneven: a lane
--       whose messages ask for different widths, or ''; missing in the reply to a repeat.
-- Cost: 16 commands, 2 more if a lane may be touched, 1 to set the alarm, 1 where there are groups or countdowns, 2 for each group that
--       leaves its key, 1 for each countdown; for each message at most 6 of O(log pending), 16 if its key is taken, with a lane those of
--       lib/enterlane.lua, at most 100 messages; O(ready) if the message that has the key is there. It reads that message, unless it is
--       kept (of a group the first part), and replaces a group in O(parts): half a megabyte, 2,000 parts and 1,000 turns in all, or one message.
-- Keeps: invariants 1, 3, 4, 6, 9 and 12 of internal/check. The first write is a ZADD on purpose: a full server must refuse a
--       send before anything is stored.

-- from time: now, us, whole
-- from call: field, again, guard, mark, remember
-- from alarm: gate, sooner, arm
-- from keys: lastof
-- from edit: noted, LOOKS
-- from put: PUTS, send, noteall
local READ = 524288 -- bytes: the call ends before the message that would make it read more of other messages
local saved, armed, big, pause, total, scheduled, imported, groups, changes, overtakes, shards =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'big', 'pause', 'in:stored', 'in:scheduled', 'in:imported', 'parts', 'changed',
    'overtaken', 'shards'), 1, 11)
local begin = ARGV[3] == 'shards' and 5 or 3
if shards or begin == 5 then
  -- from queue: othershards
  local other = othershards(shards, begin == 5 and ARGV[4] or '1')
  if other then return other end
end
guard(redis.call('ZCARD', KEYS.pending), redis.call('LLEN', KEYS.ready), redis.call('ZCARD', KEYS.unack),
  redis.call('ZCARD', KEYS.retry), redis.call('ZCARD', KEYS.garbage), redis.call('HLEN', KEYS.msg),
  redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.wake),
  redis.call('HLEN', KEYS.sequence), redis.call('ZCARD', KEYS.done), redis.call('ZCARD', KEYS.holds))
if KEYS.lanes then guard(redis.call('ZCARD', KEYS.lanes), redis.call('ZCARD', KEYS.waiting)) end
local FIELDS = {sequence = 3, countdown = 1}
local grouped, i = groups, begin
while ARGV[i] do
  grouped = grouped or ARGV[i] == 'append' or ARGV[i] == 'countdown'
  i = i + 1 + (PUTS[ARGV[i]] or FIELDS[ARGV[i]])
end
if grouped then guard(redis.call('HLEN', KEYS.parts)) end
local answer = again(saved)
if answer then return answer end
redis.call('ZADD', KEYS.pending, 'XX', 0, '') -- changes nothing
if not whole(total) then
  -- from books: openbooks
  openbooks()
  total, scheduled, imported = '0', nil, nil
end

local sequences = {['schedule/'] = 0, ['import '] = 0} -- so many are stored of sequences whose names begin so

-- put(name, number, after, acks, at) stores the message at ARGV at, if its sequence lets it, and returns the answer; nil as send.
local function put(name, number, after, acks, at)
  local last = name and lastof(name)
  if last and last >= number then return '#' .. last end
  if name and after ~= '' and not (last and last >= after) then return '!' end
  local before = noted.stored
  local answer, due = send(nil, acks, unpack(ARGV, at, at + PUTS[ARGV[at]]))
  local kind = name and string.match(name, '^%w+[/ ]')
  if sequences[kind] then sequences[kind] = sequences[kind] + noted.stored - before end
  if answer == '+' then answer = '+' .. us(due) end
  if name and answer and string.sub(answer, 1, 1) ~= '=' then redis.call('HSET', KEYS.sequence, name, number) end
  return answer
end

local answers, name, number, after, acks = {}, nil, nil, nil, 0
i = begin
while ARGV[i] do
  if ARGV[i] == 'sequence' then
    name, number, after = unpack(ARGV, i + 1, i + 3)
  elseif ARGV[i] == 'countdown' then
    acks = tonumber(ARGV[i + 1])
  else
    local answer = noted.looked < LOOKS and put(name, number, after, acks, i)
    if not answer then break end
    answers[#answers + 1] = answer
    name, acks, noted.room = nil, 0, READ -- the first message may read any number
  end
  i = i + 1 + (PUTS[ARGV[i]] or FIELDS[ARGV[i]])
end
answers = table.concat(answers, ' ')
if noted.first then
  local first = gate(noted.first, pause)
  if sooner(first, armed) then arm(first) end
end
noteall(big, total, groups, changes, overtakes)
if sequences['schedule/'] > 0 then mark('in:scheduled', us((whole(scheduled) or 0) + sequences['schedule/'])) end
if sequences['import '] > 0 then mark('in:imported', us((whole(imported) or 0) + sequences['import '])) end
remember(answers)
return {us(now), answers, noted.uneven or ''}
