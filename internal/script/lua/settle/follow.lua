-- What only some outcomes need: sends that follow an ack, and acks that count for a message with a countdown.
-- from time: now, us, scored
-- from message: keyof, redue
-- from edit: noted
-- from countdown: countdownof, acksleft, setcountdown
-- from lane: laneof
-- from leavelane: relanes

-- fits(c, i) says whether there is room to read the messages that an ack changes, by what stands at ARGV i behind it:
-- its sends, and the key of the message for which it counts. The second result says that no call has room: the sends
-- would read more than MOST, and more than one message.
local READ, MOST = 524288, 4194304 -- bytes
local function fits(c, i)
  local size, reads, new = 0, 0, {} -- bytes; sends that read; by key, bytes of what these sends store
  local counting
  while ARGV[i] do
    local word = ARGV[i]
    if word == 'counts' then
      counting = ARGV[i + 1]
    elseif not c.fields[word] then
      local envelope = ARGV[i + 4]
      local key = keyof(envelope, ARGV[i + 1] ~= '' and 0 or nil)
      local id = key ~= '' and redis.call('HGET', KEYS.key, key)
      local length = new[key] or id and redis.call('HSTRLEN', KEYS.msg, id) or 0
      if length == 0 and key ~= '' then
        new[key] = #envelope
      elseif c.sends[word] > 4 then
        size, reads = size + length, reads + 1
      end
    elseif word ~= 'countdown' then
      break
    end
    i = i + 1 + (c.fields[word] or c.sends[word])
  end
  local never = size > MOST and reads > 1
  local id = counting and redis.call('HGET', KEYS.key, counting)
  if id and acksleft(id) == 1 then size = size + redis.call('HSTRLEN', KEYS.msg, id) end
  return noted.spent == 0 or noted.spent + size <= READ, never
end

-- count(key) counts an ack for the message that has a key. If none is missing now, and the message was never handed
-- out, it is due.
local function count(key)
  local id = redis.call('HGET', KEYS.key, key)
  local counted, n = countdownof(id or '')
  if not n then return end
  setcountdown(id, counted + 1, n)
  if counted + 1 ~= n then return end
  local place, due = 'pending', redis.call('ZSCORE', KEYS.pending, id)
  if not due then place, due = 'waiting', redis.call('ZSCORE', KEYS.waiting, id) end
  local envelope = due and scored(due) > now and redis.call('HGET', KEYS.msg, id)
  if not envelope then return end
  local lane, width = laneof(envelope)
  if lane or place == 'waiting' then
    relanes().shift(lane, width, place, id, id, scored(due), now)
  else
    redis.call('ZADD', KEYS.pending, us(now), id)
    noted.first = math.min(noted.first or now, now)
  end
  redis.call('HSET', KEYS.msg, id, redue(envelope, us(now)))
  noted.spent = noted.spent + #envelope
end
