-- Sends that go one after the other: each finds what those before it have written. put and settle make them.
-- ARGV has a word for each, and its fields:
--   'refuse', 'keep'  delay, version, id, envelope
--   'reschedule'      the same, wait
--   'replace'         the same, wait, timed
--   'append'          the same, wait, timed, parts
-- and before that word, of a message with a countdown, 'countdown' and how many acks it waits for. delay: us from now
-- ('': the envelope has its own due instant); envelope: after a delay only the part behind the due instant; wait: us by
-- which the message may be put off, '0': any time; timed: '1' if the sender says when the message is due; parts: how
-- many the group may have.
-- from time: now, us, whole, scored
-- from call: mark
-- from message: SMALL, keyof, complete
-- from group: partsof
-- from record: tagof
-- from keys: holderof, named
-- from edit: noted, edited, stamp, redueto, LATEST
-- from countdown: setcountdown
-- from change: change
-- from lane: laneof
-- from enterlane: lanes

local PUTS = {refuse = 4, keep = 4, reschedule = 5, replace = 6, append = 7} -- how many fields each word has
local PART = 256 -- bytes that each part counts which is deleted

-- afford(size) says whether the call may read so many bytes of another message, and notes them.
local function afford(size)
  if noted.room and noted.spent + size > noted.room then return false end
  noted.spent = noted.spent + size
  return true
end

-- dueof(id) is when a message comes, or comes again; now, if it is ready or handled. It does not read the envelope.
local function dueof(id)
  local score = redis.call('ZSCORE', KEYS.pending, id)
  local tag = score or tagof(id, redis.call('HGET', KEYS.fail, id))
  score = score or redis.call('ZSCORE', KEYS.retry, tag) or redis.call('ZSCORE', KEYS.waiting, tag)
  return score and scored(score) or now
end

-- store(own, acks, word, delay, version, id, envelope, counted, due, key) makes a new message pending, and returns '+'
-- and when it is due. If the word is 'refuse' and another message has its key, it returns which one. own: the id of the
-- acked message that it follows, which may keep the key; acks: its countdown; counted: how many of these have counted;
-- due, key: of an envelope that is whole already.
local function store(own, acks, word, delay, version, id, envelope, counted, due, key)
  local other = envelope
  if not due then
    other, due = complete(tonumber(delay), version, envelope)
    key = keyof(other)
  end
  if key ~= '' then
    local holder, acked
    if word == 'refuse' then holder, acked = holderof(key) end
    if holder and not (acked and holder == own) then return named(holder, acked) end -- else it is held on after this message (freekey)
    redis.call('HSET', KEYS.key, key, id)
  end
  local lane, width = laneof(other)
  noted.stored = noted.stored + redis.call('HSET', KEYS.msg, id, other)
  if lane then lanes().enter(lane, width, id, due) else redis.call('ZADD', KEYS.pending, string.sub(other, 2, 17), id) end
  if acks > 0 then
    setcountdown(id, counted or 0, acks)
    noted.grown = true
  end
  if not lane then noted.first = math.min(noted.first or due, due) end
  noted.longest = math.max(noted.longest, #other)
  return '+', due
end

-- send(own, acks, word, …) stores a message, or does what any word says, and returns the answer; nil if the call has no
-- room to read the other message, and nothing was done.
local function send(own, acks, word, delay, version, id, envelope, wait, timed, room)
  if word == 'refuse' then return store(own, acks, word, delay, version, id, envelope) end
  local other, due = complete(tonumber(delay), version, envelope)
  local key, answer, latest = keyof(other), nil, wait and wait ~= '0' and now + wait or nil
  local holder, acked, size, counted
  if key ~= '' then holder, acked, size = holderof(key) end
  if acked and holder == own then holder, acked = nil, nil end
  if acked and word ~= 'keep' then -- nothing waits of an acked message
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
      answer, counted = change(holder, theirs, other, due, word, timed == '1' or word == 'reschedule', latest, tonumber(room), acks)
      if answer == false then return named(holder) end -- it is no group
      answer = answer and us(answer)
    end
  end
  if answer then return '~' .. answer .. ':' .. string.gsub(holder, '[^!-~]', '?') end -- another program may have written it
  local edits = {}
  if latest then
    due = math.min(due, latest)
    stamp(edits, other, LATEST, latest)
  end
  if acks > 0 and (counted or 0) >= acks then due = now end
  redueto(edits, other, us(due))
  return store(own, acks, word, nil, nil, id, edited(other, edits), counted, due, key)
end

-- noteall(big, total, groups, changes, overtakes) notes what these sends have done. The arguments are big, in:stored,
-- parts, changed and overtaken of state as they were. If the books are not open (settle), the next fetch opens them.
local function noteall(big, total, groups, changes, overtakes)
  if noted.stored > 0 and whole(total) then mark('in:stored', us(whole(total) + noted.stored)) end
  if noted.longest > math.max(whole(big) or 0, SMALL) then mark('big', us(noted.longest)) end
  if noted.grown and not groups then mark('parts', '1') end
  if noted.changed and not changes then mark('changed', '1') end
  if noted.overtaken and not overtakes then mark('overtaken', '1') end
end
