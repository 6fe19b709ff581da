-- One message is stored, or does what its word says.
-- takes: write, soonest, stored, READ, answers, spent, PART, change, LATEST, stamp, redueto, edited
-- gives: put
-- from time: now, us, scored
-- from message: keyof, complete
-- from group: partsof
-- from record: tagof
-- from keys: holderof, named, lastof

-- store makes a new message pending.
local function store(id, envelope, due, key)
  if key ~= '' then redis.call('HSET', KEYS.key, key, id) end
  redis.call('ZADD', KEYS.pending, us(due), id)
  write(id, envelope)
  soonest(due)
  stored = stored + 1
  return '+' .. us(due)
end

-- afford(size) says whether the call may read so many bytes more, and notes them. For the first message it may.
local function afford(size)
  if answers[1] and spent + size > READ then return false end
  spent = spent + size
  return true
end

-- dueof(id) is when a message comes, or comes again; now, if it is ready or handled. It does not read the envelope.
local function dueof(id)
  local score = redis.call('ZSCORE', KEYS.pending, id)
  score = score or redis.call('ZSCORE', KEYS.retry, tagof(id, redis.call('HGET', KEYS.fail, id)))
  return score and scored(score) or now
end

-- put takes a word and its fields, stores the message or does what the word says, and returns the answer; nil if this call has read as
-- much as it may: then nothing was done for this message.
local function put(word, delay, version, id, envelope, name, number, after, wait, timed, room)
  local last = name ~= '' and lastof(name)
  if last and last >= number then return '#' .. last end
  if after ~= '' and not (last and last >= after) then return '!' end
  local other, due = complete(tonumber(delay), version, envelope)
  local key, answer, latest = keyof(other), nil, wait and wait ~= '0' and now + wait or nil
  local holder, acked, size
  if key ~= '' then holder, acked, size = holderof(key) end
  if holder and (word == 'refuse' or acked and word ~= 'keep') then -- nothing waits of an acked message
    return named(holder, acked)
  elseif acked then
    answer = '0'
  elseif holder and word == 'keep' then -- the entry in key is believed, as by send
    answer = us(dueof(holder))
  elseif holder then
    if not afford(size) then return nil end
    local theirs = redis.call('HGET', KEYS.msg, holder)
    if keyof(theirs) == key then -- else another program wrote that entry
      if word == 'replace' and not afford(PART * partsof(theirs)) then return nil end
      answer = change(holder, theirs, other, due, word, timed == '1' or word == 'reschedule', latest, tonumber(room))
      if answer == false then return named(holder) end -- it is no group
      answer = answer and us(answer)
    end
  end
  if answer then
    answer = '~' .. answer .. ':' .. string.gsub(holder, '[^!-~]', '?') -- another program may have written it
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
