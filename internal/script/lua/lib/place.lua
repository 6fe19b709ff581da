-- The structures in which a message may be.
-- from time: now, scored

-- locate(tag, id, only) is the sorted set in which a delivery is, and its score; nil if it is in none, or not in the one that only
-- names ('': any). Members of garbage and done are ids, of the others tags. If it is nil, the delivery may be in the list ready,
-- where a search costs as much as the list is long.
local function locate(tag, id, only)
  local score = (only == '' or only == 'pending') and redis.call('ZSCORE', KEYS.pending, tag)
  if score then return 'pending', score end
  score = (only == '' or only == 'unack') and redis.call('ZSCORE', KEYS.unack, tag)
  if score then return 'unack', score end
  score = (only == '' or only == 'retry') and redis.call('ZSCORE', KEYS.retry, tag)
  if score then return 'retry', score end
  score = (only == '' or only == 'garbage') and redis.call('ZSCORE', KEYS.garbage, id)
  if score then return 'garbage', score end
  score = (only == '' or only == 'done') and redis.call('ZSCORE', KEYS.done, id)
  if score and scored(score) > now then return 'done', score end -- a message whose time is over may be there still
end

-- remove(place, tag, id) takes a delivery out of a structure, and returns how often it was there.
local function remove(place, tag, id)
  if place == 'pending' then return redis.call('ZREM', KEYS.pending, tag) end
  if place == 'ready' then return redis.call('LREM', KEYS.ready, 1, tag) end
  if place == 'unack' then return redis.call('ZREM', KEYS.unack, tag) end
  if place == 'retry' then return redis.call('ZREM', KEYS.retry, tag) end
  if place == 'garbage' then return redis.call('ZREM', KEYS.garbage, id) end
  redis.call('HDEL', KEYS.result, id)
  return redis.call('ZREM', KEYS.done, id)
end
