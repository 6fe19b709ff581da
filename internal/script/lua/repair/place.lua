-- Structures, messages and their keys.
-- from time: now, us, whole
-- from message: keyof
-- from record: split, delivery, tagof, failure, setfailure, superseded
-- from keys: holdends
-- from edit: noted
-- from lane: laneof
-- from leavelane: relanes
-- from enterlane: lanes

-- isdead(id) says whether a message is in garbage or done.
local function isdead(id) return redis.call('ZSCORE', KEYS.garbage, id) or redis.call('ZSCORE', KEYS.done, id) end

-- leased(tag) says whether any lease lists a tag.
local listed -- the tags of all leases
local function leased(tag)
  if not listed then
    listed = {}
    for _, name in ipairs(redis.call('ZRANGE', KEYS.unack, 0, -1)) do
      for each in string.gmatch(redis.call('HGET', KEYS.lease, name) or '', '[^ ]+') do listed[each] = true end
    end
  end
  return listed[tag]
end

-- placed(tag) says whether a tag, or an id, is in any structure but unack.
local function placed(tag)
  return redis.call('ZSCORE', KEYS.pending, tag) or redis.call('ZSCORE', KEYS.retry, tag)
    or redis.call('ZSCORE', KEYS.garbage, tag) or redis.call('ZSCORE', KEYS.done, tag) or redis.call('ZSCORE', KEYS.waiting, tag)
    or redis.call('LPOS', KEYS.ready, tag)
end

-- turnof(lane, id) is the member of lanes that is the first turn of a message; nil if it has none.
local function turnof(lane, id)
  local turns = lanes().turnsof(lane)
  noted.looked = noted.looked + #turns
  for _, turn in ipairs(turns) do
    local _, holder = split(turn.tag)
    if holder == id then return turn.member end
  end
end

-- drop(remove) mends a structure of which remove(tag) takes out a tag.
local function drop(remove)
  return function(tag)
    local id = string.match(tag, '^.*:(.*)$') or tag
    if redis.call('HEXISTS', KEYS.msg, id) == 1 or remove(tag) == 0 then return 'sound' end
    redis.call('HDEL', KEYS.fail, id)
    return 'done'
  end
end

-- mendstructures(mend) adds to mend the words about members of structures without a message, of leases and of keys.
local function mendstructures(mend)
  mend.pending = drop(function(tag) return redis.call('ZREM', KEYS.pending, tag) end)
  mend.ready = drop(function(tag) return redis.call('LREM', KEYS.ready, 0, tag) end)
  mend.retry = drop(function(tag) return redis.call('ZREM', KEYS.retry, tag) end)
  mend.waiting = drop(function(tag) return redis.call('ZREM', KEYS.waiting, tag) end)
  mend.garbage = drop(function(tag) return redis.call('ZREM', KEYS.garbage, tag) end)
  mend.done = drop(function(tag) return redis.call('ZREM', KEYS.done, tag) end)

  function mend.unack(member)
    if redis.call('HEXISTS', KEYS.lease, member) == 1 or redis.call('ZREM', KEYS.unack, member) == 0 then return 'sound' end
    redis.call('HDEL', KEYS.lease, member .. '#')
    return 'done'
  end

  function mend.lease(field)
    local name = string.match(field, '^(.*)#$') or field
    if redis.call('ZSCORE', KEYS.unack, name) or redis.call('HDEL', KEYS.lease, name, name .. '#') == 0 then return 'sound' end
    return 'done'
  end

  function mend.key(key)
    local id = redis.call('HGET', KEYS.key, key)
    if not id or string.sub(id, 1, 6) == 'acked:' and redis.call('ZSCORE', KEYS.holds, key) then return 'sound' end
    local envelope = redis.call('HGET', KEYS.msg, id)
    if envelope and not isdead(id) and keyof(envelope) == key then return 'sound' end
    if holdends(key) then
      redis.call('HSET', KEYS.key, key, 'acked:' .. id)
    else
      redis.call('HDEL', KEYS.key, key)
    end
    return 'done'
  end
end

-- mendmessages(mend) adds to mend the words about records, and about messages in no structure. mend has that of groups
-- already.
local function mendmessages(mend)
  function mend.record(tag) -- or an id of no message
    if redis.call('HEXISTS', KEYS.msg, tag) == 0 and redis.call('HDEL', KEYS.fail, tag) == 1 then return 'done' end
    local n, id = split(tag)
    local record = redis.call('HGET', KEYS.fail, id)
    local current = tagof(id, record)
    if tonumber(delivery(record)) <= n then return 'sound' end
    if isdead(id) or placed(current) or leased(current) then
      local n = redis.call('ZREM', KEYS.pending, tag) + redis.call('ZREM', KEYS.retry, tag) + redis.call('ZREM', KEYS.waiting, tag)
      return n + redis.call('LREM', KEYS.ready, 1, tag) > 0 and 'done' or 'sound'
    elseif not placed(tag) then
      return 'sound'
    end
    if n > 1 then setfailure(id, us(n), '0 0', '') else redis.call('HDEL', KEYS.fail, id) end
    return 'done'
  end

  function mend.place(id)
    local envelope, record = redis.call('HGET', KEYS.msg, id), redis.call('HGET', KEYS.fail, id)
    local tag = tagof(id, record)
    if not envelope or placed(id) or placed(tag) or leased(tag) then return 'sound' end
    local key, n = keyof(envelope), delivery(record)
    local failures, losses, errors = failure(record)
    local counts = us(failures) .. ' ' .. us(losses)
    local holder = key ~= '' and redis.call('HGET', KEYS.key, key)
    local acked = holder and string.match(holder, '^acked:(.*)$')
    if acked and holdends(key) then
      holder = acked
    elseif holder and redis.call('HEXISTS', KEYS.msg, holder) == 0 then
      holder = nil
    end
    local other = holder and holder ~= id and 'message ' .. holder .. ' has its key'
    if not other and superseded(record) then other = 'another send took its key' end
    if other then
      redis.call('ZADD', KEYS.garbage, us(now), id)
      relanes().outof(envelope, 'unack', tag, id)
      if errors ~= '' and string.sub(errors, 1, 1) ~= '\30' then errors = '\30' .. '0 0 ' .. errors end
      errors = string.match(errors, '^(' .. string.rep('\30[^\30]*', 4) .. ')\30') or errors -- five with this one
      setfailure(id, n, counts, '\30' .. us(now) .. ' 0 found in no structure by doctor, and ' .. other .. errors)
      return 'garbage'
    end
    -- Under the next number, so that nobody who may hold an older delivery can settle this one; never before it is due.
    n = us(n + 1)
    local due, lane, width = whole(string.sub(envelope, 2, 17)) or now, laneof(envelope)
    local next = math.max(now, due)
    setfailure(id, n, counts, errors)
    if lane and not turnof(lane, id) then
      lanes().enter(lane, width, n .. ':' .. id, due) -- in its place among those that wait
    else
      redis.call('ZADD', KEYS.retry, us(next), n .. ':' .. id)
      noted.first = math.min(noted.first or next, next)
    end
    if key ~= '' then redis.call('HSET', KEYS.key, key, id) end
    mend.listed(id)
    return 'done'
  end
end
