-- A message gives up the turn that it has in its lane.
-- from time: now, us, whole, scored
-- from message: keyof, redue
-- from record: delivery, tagof, failure, setfailure, witherror
-- from place: locate, remove
-- from keys: freekey
-- from lane: laneof
-- from leavelane: relanes
-- from enterlane: lanes

-- skip(c, i) ends the turn of the message at ARGV i, if no handler has the message, and returns the word for it. c is
-- as of steer.
-- ARGV i + 1 is the error with which the message goes to garbage. Else it waits behind all messages of its lane that are due.
local function skip(c, i)
  local id = ARGV[i]
  local envelope, record = redis.call('HGET', KEYS.msg, id), redis.call('HGET', KEYS.fail, id)
  if not envelope then return '!gone' end
  local lane, width = laneof(envelope)
  local tag = tagof(id, record)
  local place, score = locate(tag, id)
  local at = place == 'ready' and now or scored(score)
  local waits = place == 'pending' or place == 'retry' or place == 'ready'
  local where = waits and at <= now and 'ready' or place or 'gone'
  if not lane or not waits then return '!' .. where end
  if c.what == 'garbage' then
    c.dead = c.dead + 1
    local failures, losses, errors = failure(record)
    setfailure(id, delivery(record), us(failures) .. ' ' .. us(losses), witherror(errors, 0, ARGV[i + 1]))
    local key = keyof(envelope)
    freekey(id, key ~= '' and key or c.nameof and c.nameof(envelope) or '', c.holds, c.unlist)
    remove(place, tag, id)
    redis.call('ZADD', KEYS.garbage, us(now), id)
    relanes().vacate(lane, width, id, tag)
  else
    local last = redis.call('ZREVRANGEBYLEX', KEYS.lanes, '(' .. lane .. '\0' .. us(now + 1), '[' .. lane .. '\0', 'LIMIT', 0, 1)[1]
    local due = last and whole(string.sub(last, #lane + 2, #lane + 17)) -- nil of a turn
    if not due then return '~' .. where end
    due = math.max(due + 1, at)
    remove(place, tag, id)
    relanes().vacate(lane, width, id, tag)
    lanes().enter(lane, width, tag, due)
    if tag == id then redis.call('HSET', KEYS.msg, id, redue(envelope, us(due))) end
  end
  return where
end
