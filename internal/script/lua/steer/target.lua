-- One target is changed, or one hold is ended.
-- from time: now, us, scored
-- from message: keyof, expired
-- from edit: noted, edited, stamp, redueto
-- from record: split, delivery, tagof, failure, setfailure
-- from place: scorein, locate, remove
-- from keys: holdends, holderof, named, erase
-- from lane: laneof
-- from leavelane: relanes
-- from enterlane: lanes

-- release(key) ends the hold of a key, and returns the word for it.
local function release(key)
  if not holdends(key) then return '!gone' end
  redis.call('ZREM', KEYS.holds, key)
  if string.sub(redis.call('HGET', KEYS.key, key) or '', 1, 6) == 'acked:' then redis.call('HDEL', KEYS.key, key) end
  return 'done'
end

-- steer(c, i) changes the target at ARGV i, and returns the word for it. c is what the targets of a call share
-- (steer.lua). A TTL binds the first delivery alone, and begins anew with another due instant.
local DEADLINE = 130 -- field
local function steer(c, i)
  local id, tag, listed = ARGV[i], ARGV[i], ARGV[i + 1]
  if c.bykey then
    id = redis.call('HGET', KEYS.key, ARGV[i]) or ''
    if keyof(redis.call('HGET', KEYS.msg, id) or '') ~= ARGV[i] then id = '' end -- another program wrote that entry
    tag = id
  end
  local place, record, score = c.only, nil
  if c.only ~= '' and c.only ~= 'garbage' and c.only ~= 'done' then
    local _
    _, id = split(tag)
  end
  if c.only == '' or c.only == 'unack' then
    record = redis.call('HGET', KEYS.fail, id) or ''
    local current = tagof(id, record)
    place, score = locate(current, id)
    if c.only ~= '' and (place ~= c.only or tag ~= current) then place = nil end -- the end of its lease may be another one since
    tag = current
  else
    score = scorein(c.only, tag, id)
    if not score or c.only == 'done' and scored(score) <= now then place = nil end
  end
  local envelope = place and redis.call('HGET', KEYS.msg, id)
  local same = place == 'unack' or listed == '' or listed == score
  if not envelope or not same and listed ~= score .. ' ' .. redis.sha1hex(envelope) then place = nil end
  local at = place == 'ready' and now or scored(score)
  local due = place == 'ready' or (place == 'pending' or place == 'retry') and at <= now
  local where = not place and 'gone' or due and 'ready' or place
  local allowed = place and (place ~= 'unack' or c.what == 'cancel')
  if not c.deletes then allowed = allowed and (place == 'garbage') == (c.what == 'requeue') and place ~= 'done' end
  local key = allowed and keyof(envelope) or ''
  local holder, acked
  if c.what == 'requeue' and key ~= '' then holder, acked = holderof(key) end
  if not allowed then
    where = '!' .. where
  elseif holder and holder ~= id then
    where = named(holder, acked)
  elseif c.deletes then
    c.deleted = c.deleted + 1
    remove(place, tag, id)
    if c.laned then relanes().outof(envelope, place, tag, id, score) end
    if c.drop then c.drop(id, envelope) end
    erase(id, key ~= '' and key or c.nameof and c.nameof(envelope) or '', c.holds, c.unlist)
  else
    local next = c.arg + c.nth * c.step
    if c.what == 'by' then next = at + c.arg end
    next = math.min(next, 7258118400000000) -- year 2200
    local stays = next <= now and (due or place == 'waiting' and at <= now)
    next = math.max(next, now)
    local edits, fresh = {}, tag == id and place ~= 'garbage'
    if fresh and not stays then redueto(edits, envelope, us(next)) end
    if expired(fresh and 1 or 2, edited(envelope, edits), next) then
      if not c.anew then return '-' .. where end
      stays, edits = false, {}
      if fresh then redueto(edits, envelope, us(next)) end
      stamp(edits, envelope, DEADLINE, 0)
    end
    c.nth = c.nth + 1
    if stays then
      where = '~' .. where
    else
      local lane, width = laneof(envelope)
      if lane and place ~= 'garbage' or place == 'waiting' then
        relanes().shift(lane, width, place, tag, id, at, next)
      elseif place == 'pending' then
        redis.call('ZADD', KEYS.pending, us(next), tag)
      else
        if place == 'ready' or place == 'garbage' then remove(place, tag, id) end
        if place == 'garbage' then
          record = record or redis.call('HGET', KEYS.fail, id)
          local _, _, errors = failure(record)
          local n = delivery(record)
          if n == '1' then n = '2' end
          tag = n .. ':' .. id
          setfailure(id, n, '0 0', errors)
          if key ~= '' then redis.call('HSET', KEYS.key, key, id) end
          local name = c.nameof and c.nameof(envelope) or ''
          if name ~= '' then c.unlist(name, id, true) end
        end
        if lane then lanes().enter(lane, width, tag, next) else redis.call('ZADD', KEYS.retry, us(next), tag) end
      end
      if edits[1] then redis.call('HSET', KEYS.msg, id, edited(envelope, edits)) end
      if not lane then noted.first = math.min(noted.first or next, next) end
    end
  end
  return where
end
