-- What an ack does besides: messages follow it, and it counts for a message with a countdown.
-- takes: follows, changes, counts, answers, first
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
        local answer = id and act(id, acks, unpack(ARGV, i, i + follows[word])) or '+'
        sends, acks = sends + 1, 0
        if answer ~= '+' then answers = answers .. us(sends) .. answer .. ' ' end
      end
      i = i + 1 + (follows[word] or 1)
    end
  end
  behindsends = function(i)
    while follows[ARGV[i]] or ARGV[i] == 'countdown' do i = i + 1 + (follows[ARGV[i]] or 1) end
    return i
  end
end

-- fits(from, behind, counting) says whether there is room to read the messages that an ack changes: by the sends at ARGV from up to
-- behind, and by counting for the message that has the key counting (nil: for none). The second result says that no call has room:
-- the sends would read more than MOST, and more than one message.
local fits
if changes or counts then
  -- from message: keyof
  -- from countdown: acksleft
  local READ, MOST = 524288, 4194304
  fits = function(from, behind, counting)
    local size, reads, new = 0, 0, {} -- bytes; sends that read; by key, bytes of what these sends store
    while from < behind do
      local word, envelope = ARGV[from], ARGV[from + 4]
      local key = follows[word] and keyof(envelope, ARGV[from + 1] ~= '' and 0 or nil) or ''
      local id = key ~= '' and redis.call('HGET', KEYS.key, key)
      local length = new[key] or id and redis.call('HSTRLEN', KEYS.msg, id) or 0
      if length == 0 and key ~= '' then
        new[key] = #envelope
      elseif (follows[word] or 0) > 4 then
        size, reads = size + length, reads + 1
      end
      from = from + 1 + (follows[word] or 1)
    end
    local never = size > MOST and reads > 1
    local id = counting and redis.call('HGET', KEYS.key, counting)
    if id and acksleft(id) == 1 then size = size + redis.call('HSTRLEN', KEYS.msg, id) end
    return noted.spent == 0 or noted.spent + size <= READ, never
  end
end

-- count(key) counts an ack for the message that has a key. If none is missing now, and the message was never handed out, it is due.
local count
if counts then
  -- from time: now, scored
  -- from message: redue
  -- from countdown: countdownof, setcountdown
  count = function(key)
    local id = redis.call('HGET', KEYS.key, key)
    local counted, n = countdownof(id or '')
    if not n then return end
    setcountdown(id, counted + 1, n)
    local due = counted + 1 == n and redis.call('ZSCORE', KEYS.pending, id)
    local envelope = due and scored(due) > now and redis.call('HGET', KEYS.msg, id)
    if envelope then
      redis.call('ZADD', KEYS.pending, us(now), id)
      redis.call('HSET', KEYS.msg, id, redue(envelope, us(now)))
      noted.spent, first = noted.spent + #envelope, now
    end
  end
end
