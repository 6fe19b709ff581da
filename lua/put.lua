-- put stores messages one after the other, each as its sender wants it if its key is taken, or if its number was reached:
-- send is for all others.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, sequence, done, held
-- ARGV: 3 and on, for each message: delay us ('': the envelope has its own due instant), version of the envelope, id,
--       envelope (after a delay: only the part behind its due instant), name of its sequence ('': none), its number in
--       that, 20 digits of it and 2^63 (and behind them as many of a number that the sequence must have come to), what becomes of a
--       message that has its key ('refuse': of this one, 'keep', 'replace', 'reschedule'), '1': its sender says when it is
--       due, us by which it may be put off ('': any time)
-- Returns {now, an answer for each, with blanks between}: '+<due>' stored, due then; '=<id>' not stored, its key is held by
--       id; '#<digits>' not stored, the last number of the sequence is that; '!' not stored, the sequence has not come as
--       far; '~<due>:<id>' id had its key, and was kept, replaced or rescheduled, due then ('0': it was acked, and keeps its key).
-- Cost: 16 commands, 1 more to set the alarm; at most 6 of O(log pending) for each message, 16 for one whose key
--       is taken, at most 100 of them; O(ready) if the message that has the key is there; reads that message.
-- Keeps: invariants 1, 3, 4, 6, 9 and 12 of PROTOCOL.md. The first write is a ZADD on purpose: a full server must refuse a
--       send before anything is stored. What a message finds is what those before it have written.

-- include head, call, score, envelope, complete, store, failure, setfailure, locate, arm
local EACH = 9 -- ARGV of a message
local saved, armed, big, pause, sent =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'big', 'pause', 'sent'), 1, 5)
guard(redis.call('ZCARD', KEYS.pending), redis.call('LLEN', KEYS.ready), redis.call('ZCARD', KEYS.unack),
  redis.call('ZCARD', KEYS.retry), redis.call('ZCARD', KEYS.garbage), redis.call('HLEN', KEYS.msg),
  redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.wake),
  redis.call('HLEN', KEYS.sequence), redis.call('ZCARD', KEYS.done), redis.call('ZCARD', KEYS.held))
-- include repeated
redis.call('ZADD', KEYS.pending, 'XX', 0, '') -- changes nothing

local longest, first, stored = math.max(whole(big) or 0, SMALL), nil, 0

-- wait(due) notes that something waits for an instant, and write(id, envelope) that it is as long.
local function wait(due) first = math.min(first or due, due) end
local function write(id, envelope)
  redis.call('HSET', KEYS.msg, id, envelope)
  longest = math.max(longest, #envelope)
end

-- latestat(envelope) is where the digits begin of the instant to which a message may be put off; nil: it has none. In
-- version 2, types fall from field to field.
local function latestat(envelope)
  local i, before = 20 + #keyof(envelope), 256
  while string.byte(envelope, 1) == 2 do
    local kind, size, scale = string.byte(envelope, i), 0, 1
    if not kind or kind < 5 or kind >= before then return nil end
    repeat -- a uvarint
      i = i + 1
      local digit = string.byte(envelope, i)
      if not digit or scale > 1e12 then return nil end
      size, scale = size + digit % 128 * scale, scale * 128
    until digit < 128
    i, before = i + 1, kind
    if kind == 5 then return size == 16 and #envelope >= i + 15 and i or nil end
    i = i + size
  end
end

-- latestof(envelope) is that instant, and putlatest(envelope, latest) the envelope with another one.
local function latestof(envelope)
  local i = latestat(envelope)
  return i and whole(string.sub(envelope, i, i + 15))
end
local function putlatest(envelope, latest)
  local i = latestat(envelope)
  return i and string.sub(envelope, 1, i - 1) .. us(latest) .. string.sub(envelope, i + 16) or envelope
end

-- lastof(name) is the last number of a sequence, as 20 digits, of which any two compare as texts; nil if it has none.
local function lastof(name)
  local last = name ~= '' and redis.call('HGET', KEYS.sequence, name)
  return last and #last == 20 and string.match(last, '^%d+$') and last <= '18446744073709551615' and last or nil
end

-- store makes a new message pending.
local function store(id, envelope, due, key)
  if key ~= '' then redis.call('HSET', KEYS.key, key, id) end
  redis.call('ZADD', KEYS.pending, us(due), id)
  write(id, envelope)
  wait(due)
  stored = stored + 1
  return '+' .. us(due)
end

-- change makes a message that waits, and of which envelope is stored, another one, or due at another instant, if that
-- is said. It is due by latest (nil: at any time), or by what a send before said of it, until it is handed out.
-- It returns when it is due; nil if the message does not wait, for it is nowhere, handled, or over.
local function change(id, envelope, other, due, replaces, said, latest)
  local record = redis.call('HGET', KEYS.fail, id)
  local tag = tagof(id, record)
  local place, score = locate(tag, id, '')
  if not place and redis.call('LPOS', KEYS.ready, tag) then place, score = 'ready', us(now) end
  if place == 'unack' then -- the new one takes the key over: this one has none when it is handed out again
    redis.call('HSET', KEYS.msg, id, string.sub(envelope, 1, 17) .. '\0\0' .. string.sub(envelope, 20 + #keyof(envelope)))
  end
  if place ~= 'pending' and place ~= 'retry' and place ~= 'ready' then return nil end
  local _, _, text, ended = failure(record)
  local limit = latestof(envelope)
  if limit and (latest or not replaces) then
    -- One that is over counts if it was said, as latest is now, since the last delivery ended.
    local since = latest and ended and limit - (latest - now) > ended
    if place == 'pending' or limit > now or since then latest = limit end
  end
  local before, digits = scored(score), string.sub(envelope, 2, 17)
  if not said then due = before end
  if latest then due = math.max(math.min(due, latest), now) end
  local moves = (said or due < before) and not (before <= now and due <= now) -- what is next already keeps its place
  if moves then
    digits = us(due)
    wait(due)
    if place == 'ready' then redis.call('LREM', KEYS.ready, 1, tag) end
    if place == 'pending' then
      redis.call('ZADD', KEYS.pending, digits, tag)
    else
      redis.call('ZADD', KEYS.retry, digits, tag)
    end
  end
  if replaces then
    write(id, redue(latest and putlatest(other, latest) or other, digits))
    if place ~= 'pending' then
      setfailure(id, delivery(record), '0 0', text, ended)
    end
  elseif moves then
    local kept = latest and latest ~= limit and putlatest(envelope, latest) or envelope
    if place == 'pending' then kept = redue(kept, digits) end
    if kept ~= envelope then write(id, kept) end
  end
  return moves and due or before
end

-- put stores a message, if it may be, or does what its sender wants instead, and returns the answer.
local function put(delay, version, id, envelope, name, number, taken, says, most)
  local last, after = lastof(name), string.sub(number, 21)
  number = string.sub(number, 1, 20)
  if last and last >= number then return '#' .. last end
  if after ~= '' and not (last and last >= after) then return '!' end
  local other, due = complete(tonumber(delay), version, envelope)
  local key, answer, latest = keyof(other), nil, tonumber(most) and now + most
  local holder, acked
  if key ~= '' then holder, acked = holderof(key) end
  if holder and (taken == 'refuse' or acked and taken ~= 'keep') then -- of one that is acked nothing waits
    return '=' .. string.gsub(holder, '[^!-~]', '?')
  elseif acked then
    answer = '0'
  elseif holder then
    local theirs = redis.call('HGET', KEYS.msg, holder)
    if keyof(theirs) == key then -- else somebody else wrote that entry
      if taken == 'keep' then
        answer = us(whole(string.sub(theirs, 2, 17)) or now)
      else
        answer = change(holder, theirs, other, due, taken == 'replace', says == '1' or taken == 'reschedule', latest)
        answer = answer and us(answer)
      end
    end
  end
  if answer then
    answer = '~' .. answer .. ':' .. string.gsub(holder, '[^!-~]', '?') -- somebody else may have written it
  else
    if latest then
      due = math.min(due, latest)
      other = redue(putlatest(other, latest), us(due))
    end
    answer = store(id, other, due, key)
  end
  if name ~= '' then redis.call('HSET', KEYS.sequence, name, number) end
  return answer
end

local answers = {}
for i = 3, #ARGV, EACH do answers[#answers + 1] = put(unpack(ARGV, i, i + EACH - 1)) end
answers = table.concat(answers, ' ')
if first then
  first = gate(first, pause)
  if sooner(first, armed) then arm(first) end
end
if stored > 0 then mark('sent', us((whole(sent) or 0) + stored)) end
if longest > math.max(whole(big) or 0, SMALL) then mark('big', us(longest)) end
remember(answers)
return {us(now), answers}
