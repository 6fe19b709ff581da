-- What an ack does besides: messages follow it, and it counts for a message with a countdown.
-- takes: follows, changes, counts, FIELDS, answers, first
-- gives: follow, behindsends, fits, count
-- from time: us
-- from edit: noted

-- follow(from, behind, id) makes the sends at ARGV from up to behind, which follow the message id; if id is nil, it numbers them.
-- behindsends(i) is where the sends end that begin at ARGV i.
local follow, behindsends
if follows then
  local act, sends = nil, 0 -- what makes a send; so many so far
  if changes then
    -- from put: send
    act = send
  else
    -- from put: sendnew
    act = sendnew
  end
  follow = function(from, behind, id)
    local acks, i = 0, from
    while i < behind do
      local word = ARGV[i]
      if word == 'countdown' then
        acks = tonumber(ARGV[i + 1])
      else
        local answer = id and act(id, acks, unpack(ARGV, i, i + FIELDS[word])) or '+'
        sends, acks = sends + 1, 0
        if string.sub(answer, 1, 1) ~= '+' then answers = answers .. us(sends) .. answer .. ' ' end
      end
      i = i + 1 + FIELDS[word]
    end
  end
  behindsends = function(i)
    while ARGV[i] and (follows[ARGV[i]] or ARGV[i] == 'countdown') do i = i + 1 + FIELDS[ARGV[i]] end
    return i
  end
end

-- fits(from, behind, counting) says whether there is room to read the messages that an ack changes: by the sends at ARGV from up to
-- behind, and by counting for the message that has the key counting (nil: for none).
local function fits(from, behind, counting)
  -- from message: keyof
  -- from countdown: acksleft
  local READ, size = 524288, 0
  local function add(key, last)
    local id = redis.call('HGET', KEYS.key, key)
    if id and (not last or acksleft(id) == 1) then size = size + redis.call('HSTRLEN', KEYS.msg, id) end
  end
  if counting then add(counting, true) end
  while from < behind do
    if FIELDS[ARGV[from]] > 4 then add(keyof(ARGV[from + 4], ARGV[from + 1] ~= '' and 0 or nil)) end
    from = from + 1 + FIELDS[ARGV[from]]
  end
  return noted.spent + size <= READ
end

-- count(key) counts an ack for the message that has a key. If none is missing now, and the message was never handed out, it is due.
local count
if counts then
  -- from time: now, scored
  -- from message: redue
  -- from countdown: acksleft, setacksleft
  count = function(key)
    local id = redis.call('HGET', KEYS.key, key)
    local n = id and acksleft(id) or 0
    if n == 0 then return end
    setacksleft(id, n - 1)
    local due = n == 1 and redis.call('ZSCORE', KEYS.pending, id)
    if due and scored(due) > now then
      local envelope = redis.call('HGET', KEYS.msg, id) or ''
      redis.call('ZADD', KEYS.pending, us(now), id)
      redis.call('HSET', KEYS.msg, id, redue(envelope, us(now)))
      noted.spent, first = noted.spent + #envelope, now
    end
  end
end
