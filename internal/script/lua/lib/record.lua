-- Tags of deliveries, '<delivery>:<id>', or the id for the first, and fail records, which messages beyond their first
-- delivery have: '<delivery> <failures> <losses in a row> <us when it was written> <errors>'. Errors: none, or up to
-- five, the newest first, each as '\30<us> <delivery> <text>'; what has another form is the text of one. Before them
-- stands '\31' if the delivery is superseded, or ended the message by something else than an ack.
--
-- A delivery is superseded if another send took the key of its message by Replace or Reschedule (put) while it was
-- handled. However the delivery ends, the message ends with it, as by an ack: no old message lives on beside the new
-- one. Such a message has a fail record already in its first delivery. state.overtaken says that there may be some. If
-- the delivery ended without ack and the message is kept, the record keeps the mark, so that await can tell.
-- from time: now, us, whole
-- from message: fieldat
-- from group: dropall
-- from leavelane: relanes

-- split(tag) is the delivery number and the id of a tag, as SplitTag in Go.
local function split(tag)
  local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
  if n and n ~= '1' and #n < 10 then return tonumber(n), id end
  return 1, tag
end

-- delivery(record) is the number of a message's delivery, by its fail record, and tagof(id, record) its tag.
local function delivery(record)
  local n = string.match(record or '', '^([1-9]%d*) ')
  return n and #n < 10 and n or '1'
end
local function tagof(id, record)
  local n = delivery(record)
  return n == '1' and id or n .. ':' .. id
end

-- failure(record) is what a fail record says: failures, losses, errors, when, and whether it has the mark; 0, 0, '',
-- nil and false of anything else.
local function failure(record)
  local failures, losses, when, mark, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (\31?)(.*)$')
  return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when), mark == '\31'
end

-- setfailure(id, n, counts, errors, ended) writes a fail record and returns it: n is the number of the delivery that
-- follows, counts is '<failures> <losses>', ended when the delivery before did (nil: now).
local function setfailure(id, n, counts, errors, ended)
  local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. errors
  redis.call('HSET', KEYS.fail, id, record)
  return record
end

-- witherror(errors, n, text) are the errors of a record with one more, that of the nth delivery (0: of none); at most
-- five.
local FOUR = '^(' .. string.rep('\30[^\30]*', 4) .. ')\30'
local function witherror(errors, n, text)
  if errors ~= '' and string.sub(errors, 1, 1) ~= '\30' then errors = '\30' .. '0 0 ' .. errors end
  return '\30' .. us(now) .. ' ' .. us(n) .. ' ' .. text .. (string.match(errors, FOUR) or errors)
end

-- superseded(record) says whether the delivery with this fail record is superseded.
local function superseded(record) return record and string.find(record, '^%d+ %d+ %d+ %d+ \31') ~= nil end

-- finish(id, n, counts, errors) ends a message whose superseded delivery has left unack without ack. The message is
-- deleted, or done if it has a retention, with a record as of setfailure and the mark. It returns until when the
-- message is kept, nil if it is not, and how many bytes were read.
local function finish(id, n, counts, errors)
  local envelope = redis.call('HGET', KEYS.msg, id) or ''
  local i, size = fieldat(envelope, 133)
  if KEYS.lanes then relanes().outof(envelope, 'unack', '', id) end
  if not i then
    dropall(id, envelope)
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
