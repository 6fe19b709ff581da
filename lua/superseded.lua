-- Shared by the scripts in which deliveries end.
--
-- A delivery is superseded if, while it was handled, another send took the key of its message by Replace or Reschedule
-- (put). Whatever becomes of it then, the message ends as by an ack: no old message lives on beside the new one. The mark is
-- the byte 31 before the errors of the fail record, which such a message has in its first delivery, too. state.overtaken
-- says that there may be some. A message that ended otherwise than by an ack, and is kept, keeps the mark: who awaits it is told.

-- superseded(record) says whether the delivery is that has this fail record.
local function superseded(record) return record and string.find(record, '^%d+ %d+ %d+ %d+ \31') ~= nil end

-- finish(id, n, counts, errors) ends such a message, which has left unack without an ack: it is deleted, or done if it has a
-- retention, with a record as of setfailure and the mark. It returns until when it is kept, nil if it is not, and how many bytes were read.
local function finish(id, n, counts, errors)
  local envelope = redis.call('HGET', KEYS.msg, id) or ''
  local i, size = fieldat(envelope, 133)
  if not i then
    dropparts(id, (partsof(envelope)))
    redis.call('HDEL', KEYS.msg, id)
    redis.call('HDEL', KEYS.fail, id)
    return nil, #envelope
  end
  local ends = now
  for j = 0, math.min(size, 7) - 1 do ends = ends + string.byte(envelope, i + j) % 128 * 128 ^ j end
  setfailure(id, n, counts, '\31' .. errors)
  redis.call('ZADD', KEYS.done, us(ends), id)
  return ends, #envelope
end
