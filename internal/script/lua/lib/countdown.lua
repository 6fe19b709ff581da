-- Countdowns. A message with a countdown (field 134 of its envelope) is due when so many acks of other messages have counted, or at its
-- own instant. A message whose ack counts has the key of the one that waits in field 135 of its own envelope. How many acks a message
-- still waits for stands in parts, under '<id>:0', from its first send until it leaves msg. state.parts says that there may be some.
-- from time: us, whole
-- from message: fieldat

-- countof(envelope) is how many acks a message was to wait for; 0 if it has no countdown.
local function countof(envelope)
  local i, size = fieldat(envelope, 134)
  return size == 10 and whole(string.sub(envelope, i, i + 9)) or 0
end

-- acksleft(id) is how many acks a message still waits for; nil if it has no countdown. It does not raise.
local function acksleft(id)
  local n = redis.pcall('HGET', KEYS.parts, id .. ':0')
  return type(n) ~= 'table' and whole(n) or nil
end

-- missingof(id, envelope) is the same; if another program has deleted the number, it is that of the envelope.
local function missingof(id, envelope)
  local n = countof(envelope)
  return n > 0 and (acksleft(id) or n) or nil
end

-- setacksleft(id, n) notes how many that are.
local function setacksleft(id, n) redis.call('HSET', KEYS.parts, id .. ':0', us(n)) end

-- recount(id, envelope, acks) gives a message another countdown in place of its own; 0: none. Acks that have counted stay counted. It
-- returns how many are missing; nil if it has no countdown.
local function recount(id, envelope, acks)
  local before = countof(envelope)
  if acks > 0 then
    local counted = before - math.min(acksleft(id) or before, before)
    local n = math.max(acks - counted, 0)
    setacksleft(id, n)
    return n
  end
  if before > 0 then redis.pcall('HDEL', KEYS.parts, id .. ':0') end
end
