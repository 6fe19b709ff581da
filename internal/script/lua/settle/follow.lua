-- What an ack does besides: messages follow it, and it counts for a message with a countdown.
-- takes: follows, FIELDS, answers, first
-- gives: follow, behindsends, fits, count
-- from time: now, us, scored
-- from message: keyof, redue
-- from edit: noted
-- from put: PUTS
-- from countdown: acksleft, setacksleft

local follow -- follow(from, behind, id) makes the sends at ARGV from up to behind, which follow the message id; if id is nil, it counts them
local sends = 0 -- so many so far
if follows then
  -- from put: send
  follow = function(from, behind, id)
    local acks, i = 0, from
    while i < behind do
      local word = ARGV[i]
      if word == 'countdown' then
        acks = tonumber(ARGV[i + 1])
      else
        local answer = id and send(id, acks, unpack(ARGV, i, i + PUTS[word])) or '+'
        sends, acks = sends + 1, 0
        if string.sub(answer, 1, 1) ~= '+' then answers = answers .. us(sends) .. answer .. ' ' end
      end
      i = i + 1 + FIELDS[word]
    end
  end
end

-- behindsends(i) is where the sends end that begin at ARGV i.
local function behindsends(i)
  while ARGV[i] and (PUTS[ARGV[i]] or ARGV[i] == 'countdown') do i = i + 1 + FIELDS[ARGV[i]] end
  return i
end

-- sizeof(key) is how long the message is that has a key.
local function sizeof(key)
  local id = redis.call('HGET', KEYS.key, key)
  return id and redis.call('HSTRLEN', KEYS.msg, id) or 0
end

-- fits(from, behind, counting) says whether there is room to read the messages that an ack changes: by the sends at ARGV from up to
-- behind, and by counting for the message that has the key counting (nil: for none).
local READ = 524288
local function fits(from, behind, counting)
  local size = counting and sizeof(counting) or 0
  while from < behind do
    local word, delay, envelope = ARGV[from], ARGV[from + 1], ARGV[from + 4]
    if FIELDS[word] > 4 then size = size + sizeof(keyof(envelope, delay ~= '' and 0 or nil)) end
    from = from + 1 + FIELDS[word]
  end
  return noted.spent + size <= READ
end

-- count(key) counts an ack for the message that has a key. If none is missing now, and the message was never handed out, it is due.
local function count(key)
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
