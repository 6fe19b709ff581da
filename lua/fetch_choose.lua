-- What is handed out, part of fetch: first what is ready, then pending and retry, half and
-- half when both have more than that, so that neither starves the other. `some` may be beyond their first
-- delivery: they come from ready (the first of them) and retry, or from the lost reply.
local some, fromready, pending = {}, 0, {}
if bytes > 0 then some = tags end

-- One that could not have its last chance now is looked at again in a moment; where many wait like that, they are
-- spread out, so that there is always one for whoever can take it and nobody looks at all of them again and again.
-- The instants are whole twentieths of a second, for each is a fetch.
local wait = ARGV[11] == '1' -- for a last chance: this consumer holds such a message
local spread
local function later()
  spread = spread or math.min(redis.call('ZCARD', KEYS.retry) * 500, 60000000)
  return us((math.floor((now + jitter(spread)) / 50000) + 2) * 50000)
end

if not handed then
  if wait and want > 0 and retried and retried <= now then
    -- Others on their last chance go aside, a page at a time and not one with each call.
    local page, names, aside = redis.call('ZRANGEBYSCORE', KEYS.retry, '-inf', us(now), 'LIMIT', 0, SWEEP), {}, {}
    for i = 1, #page do
      local _, id = split(page[i])
      names[i] = id
    end
    local records = names[1] and redis.call('HMGET', KEYS.fail, unpack(names)) or {}
    for i = 1, #page do
      if islast(records[i]) then
        aside[#aside + 1] = later()
        aside[#aside + 1] = page[i]
      end
    end
    if aside[1] then
      moved = moved + #aside / 2
      redis.call('ZADD', KEYS.retry, unpack(aside))
      retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES'))
    end
  end
  local rest = math.max(0, math.min(want, MOVES - moved))
  fromready = math.min(#ready, rest)
  for i = 1, fromready do some[i] = ready[i] end
  rest = rest - fromready
  if rest > 0 and pended and pended <= now then
    pending = redis.call('ZRANGEBYSCORE', KEYS.pending, '-inf', us(now), 'LIMIT', 0, rest)
  end
  local retry = {}
  if rest > 0 and retried and retried <= now then
    retry = redis.call('ZRANGEBYSCORE', KEYS.retry, '-inf', us(now), 'LIMIT', 0, rest)
  end
  local r = math.min(#retry, math.max(rest - #pending, math.floor((rest + jitter(2)) / 2)))
  for i = 1, r do some[fromready + i] = retry[i] end
  for i = #pending, rest - r + 1, -1 do pending[i] = nil end
end
local ids, numbered = {}, {}
for i = 1, #some do
  local n, id = split(some[i])
  ids[i] = id
  if n > 1 then numbered[#numbered + 1] = id end
end

-- Sizes are known before values are read: by the longest envelope ever stored, or one by one.
local keep, keeppending = #some, #pending
if not handed and (keep + keeppending) * big + size > bytes then
  local function fitting(ids, limit, least)
    for i = 1, #ids do
      local length = redis.call('HSTRLEN', KEYS.msg, ids[i])
      if size + length > limit and i > least then return i - 1 end
      size = size + length
    end
    return #ids
  end
  local half = (size + bytes) / 2 -- of what room there is, for whoever is looked at first
  if pending[1] and (not some[1] or jitter(2) == 0) then
    keeppending = fitting(pending, some[1] and half or bytes, 1)
    keep = fitting(ids, bytes, 0)
  else
    keep = fitting(ids, pending[1] and half or bytes, 1)
    keeppending = fitting(pending, bytes, 0)
  end
  for i = #pending, keeppending + 1, -1 do pending[i] = nil end
end
