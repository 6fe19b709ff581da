-- Shared by the scripts that take a message out.
--
-- remove(place, tag, id) takes a delivery out of a structure, and returns how many times it was there.
local function remove(place, tag, id)
  if place == 'pending' then return redis.call('ZREM', KEYS.pending, tag) end
  if place == 'ready' then return redis.call('LREM', KEYS.ready, 1, tag) end
  if place == 'unack' then return redis.call('ZREM', KEYS.unack, tag) end
  if place == 'retry' then return redis.call('ZREM', KEYS.retry, tag) end
  if place == 'garbage' then return redis.call('ZREM', KEYS.garbage, id) end
  redis.call('HDEL', KEYS.result, id)
  return redis.call('ZREM', KEYS.done, id)
end
