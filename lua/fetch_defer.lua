-- Part of fetch: while this consumer holds a last chance, the others that are due are deferred, a page at a time and not one
-- with each call. handout defers too: a consumer has one last chance at a time, so the message that kills its
-- consumers does so alone, and none of those lost with it dies of it.

-- later() is when one that could not have its last chance now is looked at again: in a moment; where many wait like that,
-- they are spread out, so that there is always one for whoever can take it and nobody looks at all of them again and again.
-- The instants are whole twentieths of a second, for each is a fetch.
local spread
local function later()
  spread = spread or math.min(redis.call('ZCARD', KEYS.retry) * 500, 60000000)
  return us((math.floor((now + jitter(spread)) / 50000) + 2) * 50000)
end

if not repeated and holdsLastChance and want > 0 and retried and retried <= now then
  local page, ids, deferred = redis.call('ZRANGEBYSCORE', KEYS.retry, '-inf', us(now), 'LIMIT', 0, SWEEP), {}, {}
  for i = 1, #page do
    local _, id = split(page[i])
    ids[i] = id
  end
  local records = ids[1] and redis.call('HMGET', KEYS.fail, unpack(ids)) or {}
  for i = 1, #page do
    if lastChance(records[i]) then
      moved = moved + 1
      deferred[#deferred + 1] = later()
      deferred[#deferred + 1] = page[i]
    end
  end
  if deferred[1] then
    redis.call('ZADD', KEYS.retry, unpack(deferred))
    retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES'))
  end
end
