-- One delivery ends, as its handler says. c is what the outcomes of a call share (settle/scan.lua).
-- from time: now, us
-- from record: split, failure, setfailure
-- from keys: holdends, freekey, erase
-- from lease: isheld
-- from edit: noted

-- begin(c, there, id) numbers an outcome. It returns whether the outcome counts, and whether the delivery was
-- superseded.
local function begin(c, there, id)
  c.nth = c.nth + 1
  if not there then
    c.void = c.void .. us(c.nth) .. ' '
    return false
  end
  if not ((c.overtaken or noted.overtaken) and c.superseded(redis.call('HGET', KEYS.fail, id))) then return true, false end
  c.replaced, c.ended = (c.replaced or 0) + 1, c.ended .. us(c.nth) .. ' '
  return true, true
end

-- stillheld(c, lease, tag, id) says whether a delivery is held under the lease of that number, and counts it if so.
local function stillheld(c, lease, tag, id)
  local there = c.left[lease] and (not c.lists or c.lists(lease, tag)) and isheld(id, (split(tag)))
  if there then c.settled[lease] = c.settled[lease] + 1 end
  return there
end

-- errorsOf(id, number) are the errors of the record before; '' of a first delivery, which has no record.
local function errorsOf(id, number)
  local _, _, errors = failure(number ~= '2' and redis.call('HGET', KEYS.fail, id))
  return errors
end

-- ack(c, hold, parts, lane, word, …) ends a delivery by 'ack' or 'done', whose fields follow; hold, parts and lane
-- stand before it, or are nil. It returns whether the ack is not void, and whether the delivery was superseded.
local function ack(c, hold, parts, lane, word, lease, tag, id, key, number, counts, keep, result, room)
  lease = tonumber(lease)
  local there = stillheld(c, lease, tag, id)
  local other = (parts or 0) > 0 or (c.changed or noted.changed) and key ~= '' -- it may be another message since
  if not c.left[lease] and not other then -- the server may have forgotten the fetch
    there = redis.call('ZREM', KEYS.pending, tag) == 1 or redis.call('ZREM', KEYS.retry, tag) == 1
    there = there and redis.call('HEXISTS', KEYS.msg, id) == 1
  end
  local valid, past = begin(c, there, id)
  if not valid then return false end
  if not past then c.acked = c.acked + 1 end
  if hold and redis.call('HGET', KEYS.key, key) == id then
    local ends, longer = now + hold, c.holds and holdends(key)
    if longer and longer > ends then ends = longer end
    redis.call('HSET', KEYS.key, key, 'acked:' .. id)
    redis.call('ZADD', KEYS.holds, us(ends), key)
    if not c.holdEnds or ends < c.holdEnds then c.holdEnds = ends end
    key = '' -- which the message has no more: nothing is left to be freed
  end
  if word == 'ack' then
    if parts then c.dropparts(id, parts, 0) end
    erase(id, key, c.holds, c.unlist)
    if past then c.unkept = (c.unkept or 0) + 1 end
  else
    setfailure(id, number, counts, errorsOf(id, number))
    c.doneRoom, c.kept = tonumber(room), (c.kept or 0) + 1
    if not past then c.ackedKept = (c.ackedKept or 0) + 1 end
    freekey(id, key, c.holds, c.unlist)
    redis.call('ZADD', KEYS.done, us(now + tonumber(keep)), id)
    if result ~= '' then redis.call('HSET', KEYS.result, id, result) end
  end
  if lane then c.leavelane(lane, id, tag) end
  return true, past
end

-- fail(c, lane, word, …) ends a delivery by another word, whose fields follow. last is of 'garbage' a key, else a
-- delay.
local function fail(c, lane, word, lease, tag, id, number, counts, text, failing, last, room)
  local valid, past = begin(c, stillheld(c, tonumber(lease), tag, id), id)
  if not valid then return end
  if failing == '1' then c.failed = (c.failed or 0) + 1 end
  if word == 'throttle' then c.pause = math.max(c.pause or 0, tonumber(last)) end
  local errors = text == '' and errorsOf(id, number) or '\30' .. us(now) .. ' ' .. text
  if past then
    if c.finish(id, number, counts, errors) then c.kept = (c.kept or 0) + 1 else c.unkept = (c.unkept or 0) + 1 end
    return
  end
  setfailure(id, number, counts, errors)
  if word == 'garbage' then
    c.garbageRoom, c.dead = tonumber(room), (c.dead or 0) + 1
    freekey(id, last, c.holds, c.unlist)
    redis.call('ZADD', KEYS.garbage, us(now), id)
    if lane then c.leavelane(lane, id, tag) end
  elseif word == 'ready' then
    redis.call('RPUSH', KEYS.ready, number .. ':' .. id)
    noted.first = math.min(noted.first or now, now)
  elseif lane then
    c.leavelane(lane, id, tag, number .. ':' .. id, now + tonumber(last))
  else
    local next = now + tonumber(last)
    redis.call('ZADD', KEYS.retry, us(next), number .. ':' .. id)
    noted.first = math.min(noted.first or next, next)
  end
end
