-- The structures in which a message may be.
-- from time: now, scored

-- scorein(place, tag, id) is the score in a structure, '0' in ready, where a search costs as much as the list is long;
-- nil if it is not there. Members of garbage and done are ids, of the others tags.
local function scorein(place, tag, id)
  if place == 'pending' then return redis.call('ZSCORE', KEYS.pending, tag) or nil end
  if place == 'ready' then return redis.call('LPOS', KEYS.ready, tag) and '0' or nil end
  if place == 'retry' then return redis.call('ZSCORE', KEYS.retry, tag) or nil end
  if place == 'waiting' then return redis.call('ZSCORE', KEYS.waiting, tag) or nil end
  if place == 'garbage' then return redis.call('ZSCORE', KEYS.garbage, id) or nil end
  if place == 'done' then return redis.call('ZSCORE', KEYS.done, id) or nil end
end

-- locate(tag, id) is the structure in which a message of msg is, and its score there. A message that is in no other is
-- held ('unack', and '' for the score). A first delivery is never in ready. It is nil if the message is done and its
-- time is over.
local function locate(tag, id)
  for _, place in ipairs({'pending', 'retry', 'garbage', 'done', 'waiting', tag ~= id and 'ready' or nil}) do
    local score = scorein(place, tag, id)
    if score and place == 'done' and scored(score) <= now then return nil end -- it may be there still
    if score then return place, score end
  end
  return 'unack', ''
end

-- remove(place, tag, id) takes a message out of a structure. takenOut counts those that were held, of which
-- state.canceled is told.
local takenOut = 0
local function remove(place, tag, id)
  if place == 'pending' then
    redis.call('ZREM', KEYS.pending, tag)
  elseif place == 'ready' then
    redis.call('LREM', KEYS.ready, 1, tag)
  elseif place == 'unack' then
    takenOut = takenOut + 1 -- its lease goes on to list it
  elseif place == 'retry' then
    redis.call('ZREM', KEYS.retry, tag)
  elseif place == 'garbage' then
    redis.call('ZREM', KEYS.garbage, id)
  elseif place == 'done' then
    redis.call('HDEL', KEYS.result, id)
    redis.call('ZREM', KEYS.done, id)
  end -- outof takes out what waits for a lane
end
