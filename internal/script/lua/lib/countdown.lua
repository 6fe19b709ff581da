-- Countdowns. A message with a countdown (field 134 of its envelope) is due when so many acks of other messages have
-- counted, or at its own instant. A message whose ack counts has the key of the one that waits in field 135 of its own
-- envelope. In parts stands, under '<id>:0', '<how many acks have counted> <how many it was to wait for>', from the
-- first send of a message until it leaves msg. state.parts says that there may be some.
-- from time: us, whole
-- from message: fieldat

-- countof(envelope) is how many acks a message was to wait for; 0 if it has no countdown.
local function countof(envelope)
  local i, size = fieldat(envelope, 134)
  return size == 10 and whole(string.sub(envelope, i, i + 9)) or 0
end

-- countdownof(id) is how many acks have counted for a message, and how many it was to wait for; nil if it has no
-- countdown. It does not raise.
local function countdownof(id)
  local value = redis.pcall('HGET', KEYS.parts, id .. ':0')
  local counted, n = string.match(type(value) ~= 'table' and value or '', '^(%d+) (%d+)$')
  return whole(counted), whole(n)
end

-- acksleft(id) is how many acks a message still waits for; nil if it has no countdown. missingof(id, envelope) is the
-- same; if another program has deleted the numbers, it is that of the envelope.
local function acksleft(id)
  local counted, n = countdownof(id)
  return n and math.max(n - counted, 0)
end
local function missingof(id, envelope)
  local n = countof(envelope)
  return n > 0 and (acksleft(id) or n) or nil
end

-- setcountdown(id, counted, n) notes both numbers.
local function setcountdown(id, counted, n) redis.call('HSET', KEYS.parts, id .. ':0', us(counted) .. ' ' .. us(n)) end

-- recount(id, envelope, n) gives a message another countdown in place of its own; 0: none. Acks that have counted stay
-- counted. It returns how many are missing; nil if it has no countdown.
local function recount(id, envelope, n)
  if n > 0 then
    local counted = countdownof(id) or 0
    setcountdown(id, counted, n)
    return math.max(n - counted, 0)
  end
  if countof(envelope) > 0 then redis.pcall('HDEL', KEYS.parts, id .. ':0') end
end
