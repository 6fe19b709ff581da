-- Parts, and the lists of the groups that left a key.
-- from group: leftkey, LEFT

-- relist(key, id) keeps in the list of a key the live groups that left it, adds one more ('': none), and returns the
-- word for it.
local function relist(key, id)
  local before = redis.call('HGET', KEYS.parts, ':' .. key) or ''
  local ids, there = {}, {}
  for other in string.gmatch(string.sub(before, 1, 1000 * 37) .. ' ' .. id, '%S+') do
    local envelope = not there[other] and redis.call('HGET', KEYS.msg, other)
    local live = envelope and not redis.call('ZSCORE', KEYS.garbage, other) and not redis.call('ZSCORE', KEYS.done, other)
    if live and leftkey(envelope) == key and #ids < LEFT then ids[#ids + 1] = other end
    there[other] = true
  end
  local list = table.concat(ids, ' ')
  if list == before and (list ~= '' or redis.call('HEXISTS', KEYS.parts, ':' .. key) == 0) then return 'sound' end
  if list == '' then
    redis.call('HDEL', KEYS.parts, ':' .. key)
  else
    redis.call('HSET', KEYS.parts, ':' .. key, list)
    redis.call('HSET', KEYS.state, 'parts', '1')
  end
  return 'done'
end

-- mendgroups(mend) adds the words about groups to mend.
local function mendgroups(mend)
  function mend.part(field)
    if redis.call('HEXISTS', KEYS.msg, string.match(field, '^[^:]*')) == 1 or redis.call('HDEL', KEYS.parts, field) == 0 then return 'sound' end
    return 'done'
  end

  function mend.list(key) return relist(key, '') end
  function mend.listed(id)
    local key = leftkey(redis.call('HGET', KEYS.msg, id) or '')
    return key == '' and 'sound' or relist(key, id)
  end
end
