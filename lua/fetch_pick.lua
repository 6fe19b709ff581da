-- Part of fetch: what is handed out. First what is ready, then pending and retry, half and
-- half when both have more than that, so that neither starves the other.
if not repeated and want > 0 then
  local rest = math.max(0, math.min(want, MOVES - moved))
  fromReady = math.min(#ready, rest)
  for i = 1, fromReady do picked[i] = ready[i] end
  rest = rest - fromReady
  if rest > 0 and pended and pended <= now then
    pending = redis.call('ZRANGEBYSCORE', KEYS.pending, '-inf', us(now), 'LIMIT', 0, rest)
  end
  local retry = {}
  if rest > 0 and retried and retried <= now then
    retry = redis.call('ZRANGEBYSCORE', KEYS.retry, '-inf', us(now), 'LIMIT', 0, rest)
  end
  local fromRetry = math.min(#retry, math.max(rest - #pending, math.floor((rest + jitter(2)) / 2)))
  for i = 1, fromRetry do picked[fromReady + i] = retry[i] end
  for i = #pending, rest - fromRetry + 1, -1 do pending[i] = nil end
end

local function truncate(tags, limit, least) -- to what has room, so many at least; size is then with them
  for i = 1, #tags do
    local _, id = split(tags[i])
    local length = weigh(id, limit)
    if size + length > limit and i > least then
      for j = #tags, i, -1 do tags[j] = nil end
      break
    end
    size = size + length
  end
end

-- Sizes are known before values are read: by the longest envelope ever stored, or one by one.
local weighed = (#picked + #pending) * big + size > bytes
if not repeated and weighed then
  local half = (size + bytes) / 2 -- of what room there is, for whoever is looked at first
  if pending[1] and (not picked[1] or jitter(2) == 0) then
    truncate(pending, picked[1] and half or bytes, 1)
    truncate(picked, bytes, 0)
  else
    truncate(picked, pending[1] and half or bytes, 1)
    truncate(pending, bytes, 0)
  end
  fromReady = math.min(fromReady, #picked)
end
