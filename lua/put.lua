-- put stores messages one after the other, each as its sender wants it if its key is taken, or if its number was reached:
-- send is for all others.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, sequence, done, held, parts
-- ARGV: 3 and on, for each message: delay us ('': the envelope has its own due instant), version of the envelope, id,
--       envelope (after a delay: only the part behind its due instant), name of its sequence ('': none), its number in
--       that, 20 digits of it and 2^63 (and behind them as many of a number that the sequence must have come to), what becomes of a
--       message that has its key ('refuse': of this one, 'keep', 'replace', 'reschedule', 'append'), '1': its sender says when
--       it is due, us by which it may be put off ('': any time), how many parts the message may have (append)
-- Returns {now, an answer for each, or for the first of them, with blanks between: those that follow are to be put by another call}: '+<due>' stored, due then; '=<id>' not stored, its key is held by
--       id ('=acked:<id>': that was acked, and keeps it); '#<digits>' not stored, the last number of the sequence is that; '!' not stored, the sequence has not come as
--       far; '~<due>:<id>' id had its key, and was kept, replaced, rescheduled or appended to, due then ('0': it was acked,
--       and keeps its key; of one that was kept and was handed out, when it comes again, or now).
-- Cost: 16 commands, 1 more to set the alarm, 1 where there are groups, 2 for each that leaves its key; at most 6 of O(log pending) for each message, 16
--       for one whose key is taken, at most 100 of them; O(ready) if the message that has the key is there; reads that
--       message, unless it is kept, of a group its first part alone, and O(parts) to replace a group: of half a megabyte and
--       2,000 parts in all, or of one message.
-- Keeps: invariants 1, 3, 4, 6, 9 and 12 of PROTOCOL.md. The first write is a ZADD on purpose: a full server must refuse a
--       send before anything is stored. What a message finds is what those before it have written.

-- include head, call, score, envelope, complete, store, failure, setfailure, locate, arm, parts, dropparts, left, setleft, lastof
local EACH = 10 -- ARGV of a message
-- A call costs what it reads, not only what was sent: it ends before the message that would make it read more than this of those
-- that have the keys, where each part that is deleted counts for some bytes.
local READ, PART = 524288, 256
local saved, armed, big, pause, sent, groups, changes, overtakes =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'big', 'pause', 'sent', 'parts', 'changed', 'overtaken'), 1, 8)
guard(redis.call('ZCARD', KEYS.pending), redis.call('LLEN', KEYS.ready), redis.call('ZCARD', KEYS.unack),
  redis.call('ZCARD', KEYS.retry), redis.call('ZCARD', KEYS.garbage), redis.call('HLEN', KEYS.msg),
  redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.wake),
  redis.call('HLEN', KEYS.sequence), redis.call('ZCARD', KEYS.done), redis.call('ZCARD', KEYS.held))
local grouped = groups
for i = 3, #ARGV, EACH do grouped = grouped or ARGV[i + 6] == 'append' end
if grouped then guard(redis.call('HLEN', KEYS.parts)) end
-- include repeated
redis.call('ZADD', KEYS.pending, 'XX', 0, '') -- changes nothing

local longest, first, stored = math.max(whole(big) or 0, SMALL), nil, 0
local grown, changed, overtaken = false, false, false -- something was appended; what waits was changed; a delivery was superseded
local answers, spent = {}, 0 -- so much of READ

-- wait(due) notes that something waits for an instant, and write(id, envelope) that it is as long.
local function wait(due) first = math.min(first or due, due) end
local function write(id, envelope)
  redis.call('HSET', KEYS.msg, id, envelope)
  longest = math.max(longest, weight(envelope))
end

-- edited(envelope, edits) is an envelope in which some bytes are others: of each edit where, how many, and which instead. A long
-- payload is copied twice, however many edits there are.
local function edited(envelope, edits)
  if not edits[1] then return envelope end
  table.sort(edits, function(a, b) return a[1] < b[1] end)
  local pieces, from = {}, 1
  for _, edit in ipairs(edits) do
    pieces[#pieces + 1], pieces[#pieces + 2] = string.sub(envelope, from, edit[1] - 1), edit[3]
    from = edit[1] + edit[2]
  end
  pieces[#pieces + 1] = string.sub(envelope, from)
  return table.concat(pieces)
end

-- instantat(envelope, kind) is an instant in a field of an envelope, and where; nil if there is none. stamp(edits, envelope, kind,
-- instant) is the edit that makes it another one, and redueto(edits, envelope, digits) that of when the message is due.
local function instantat(envelope, kind)
  local i, size = fieldat(envelope, kind)
  if size == 16 then return whole(string.sub(envelope, i, i + 15)), i end
end
local function stamp(edits, envelope, kind, instant)
  local _, i = instantat(envelope, kind)
  if i then edits[#edits + 1] = {i, 16, us(instant)} end
end
local function redueto(edits, envelope, digits)
  if string.sub(envelope, 2, 17) ~= digits then edits[#edits + 1] = {2, 16, digits} end
end
local LATEST, SINCE = 5, 6 -- fields: to when a message may be put off, from when its TTL counts

-- store makes a new message pending.
local function store(id, envelope, due, key)
  if key ~= '' then redis.call('HSET', KEYS.key, key, id) end
  redis.call('ZADD', KEYS.pending, us(due), id)
  write(id, envelope)
  wait(due)
  stored = stored + 1
  return '+' .. us(due)
end

-- include put_change
-- afford(size) says whether the call may read so much more, and notes that it does. For the first message it may.
local function afford(size)
  if answers[1] and spent + size > READ then return false end
  spent = spent + size
  return true
end

-- dueof(id) is when a message comes, or comes again; now, if it is due or handled. It does not read the envelope.
local function dueof(id)
  local score = redis.call('ZSCORE', KEYS.pending, id)
  score = score or redis.call('ZSCORE', KEYS.retry, tagof(id, redis.call('HGET', KEYS.fail, id)))
  return score and scored(score) or now
end

-- put stores a message, if it may be, or does what its sender wants instead, and returns the answer; nil: this call has read as
-- much as one may, and has done nothing for this message.
local function put(delay, version, id, envelope, name, number, taken, says, most, room)
  local last, after = name ~= '' and lastof(name), string.sub(number, 21)
  number = string.sub(number, 1, 20)
  if last and last >= number then return '#' .. last end
  if after ~= '' and not (last and last >= after) then return '!' end
  local other, due = complete(tonumber(delay), version, envelope)
  local key, answer, latest = keyof(other), nil, tonumber(most) and now + most
  local holder, acked, size
  if key ~= '' then holder, acked, size = holderof(key) end
  if holder and (taken == 'refuse' or acked and taken ~= 'keep') then -- of one that is acked nothing waits
    return named(holder, acked)
  elseif acked then
    answer = '0'
  elseif holder and taken == 'keep' then -- its entry is believed, as send believes it
    answer = us(dueof(holder))
  elseif holder then
    if not afford(size) then return nil end
    local theirs = redis.call('HGET', KEYS.msg, holder)
    if keyof(theirs) == key then -- else somebody else wrote that entry
      if taken == 'replace' and not afford(PART * partsof(theirs)) then return nil end
      answer = change(holder, theirs, other, due, taken, says == '1' or taken == 'reschedule', latest, tonumber(room))
      if answer == false then return named(holder) end -- it is no group
      answer = answer and us(answer)
    end
  end
  if answer then
    answer = '~' .. answer .. ':' .. string.gsub(holder, '[^!-~]', '?') -- somebody else may have written it
  else
    if latest then
      local edits = {}
      due = math.min(due, latest)
      stamp(edits, other, LATEST, latest)
      redueto(edits, other, us(due))
      other = edited(other, edits)
    end
    answer = store(id, other, due, key)
  end
  if name ~= '' then redis.call('HSET', KEYS.sequence, name, number) end
  return answer
end

for i = 3, #ARGV, EACH do
  local answer = put(unpack(ARGV, i, i + EACH - 1))
  if not answer then break end
  answers[#answers + 1] = answer
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
