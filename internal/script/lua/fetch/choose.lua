-- Deliveries are chosen to be handed out.
-- from time: now, us, whole, scored
-- from jitter: jitter
-- from record: split
-- from fetch/read: MOVES
-- from group: weight

-- weigh(c, id, room) is what a message counts in the reply; if it is more than room, any number above that.
local function weigh(c, id, room)
  local length = redis.call('HSTRLEN', KEYS.msg, id)
  if not c.groups or length > room then return length end
  return weight(redis.call('HGET', KEYS.msg, id) or '')
end

-- truncate(c, tags, room, least) shortens tags to those whose bytes have room, at least so many, and adds their bytes
-- to c.size.
local function truncate(c, tags, room, least)
  for i = 1, #tags do
    local _, id = split(tags[i])
    local length = weigh(c, id, room)
    if c.size + length > room and i > least then
      for j = #tags, i, -1 do tags[j] = nil end
      break
    end
    c.size = c.size + length
  end
end

-- askedfor(c, limit) is the one message on its last chance that ARGV 8 names, if nobody has moved it since; nil if it
-- cannot go now. If the limits let it go within a lease, it stays reserved.
local function askedfor(c, limit)
  local tag, instant = string.match(ARGV[8], '^(.*) (%d+)$')
  if not tag or scored(redis.call('ZSCORE', KEYS.retry, tag)) ~= whole(instant) then return nil end
  if c.want > 0 then return tag end
  if limit then
    limit.take(0)
    if limit.open > now and limit.open <= now + c.leaseUS then c.reserved = ARGV[8] end -- its consumer asks again
  end
end

-- choose(c) chooses up to c.want deliveries. It returns tags from ready (so many, the third result) and from retry, and
-- ids from pending. First come deliveries from ready, then from pending and retry, half and half if both have more than
-- fits, so that neither starves the other. c.weighed says whether the bytes of what was chosen are in c.size.
local function choose(c)
  local picked, pending, fromReady, rest = {}, {}, 0, math.min(c.want, MOVES)
  if rest > 0 then
    local ready, retry = c.ready, {}
    fromReady = math.min(#ready, rest)
    for i = 1, fromReady do picked[i] = ready[i] end
    rest = rest - fromReady
    if rest > 0 and c.pended and c.pended <= now then
      pending = redis.call('ZRANGEBYSCORE', KEYS.pending, '-inf', us(now), 'LIMIT', 0, rest)
    end
    if rest > 0 and c.retried and c.retried <= now then
      retry = redis.call('ZRANGEBYSCORE', KEYS.retry, '-inf', us(now), 'LIMIT', 0, rest)
    end
    local fromRetry = math.min(#retry, math.max(rest - #pending, math.floor((rest + jitter(2)) / 2)))
    for i = 1, fromRetry do picked[fromReady + i] = retry[i] end
    for i = #pending, rest - fromRetry + 1, -1 do pending[i] = nil end
  end
  -- Sizes are known before values are read: by the longest envelope ever stored, or one by one.
  local size, bytes = c.size, c.bytes
  if (#picked + #pending) * c.big + size > bytes then
    local half = (size + bytes) / 2 -- of the room, for those that are looked at first
    if pending[1] and (not picked[1] or jitter(2) == 0) then
      truncate(c, pending, picked[1] and half or bytes, 1)
      truncate(c, picked, bytes, 0)
    else
      truncate(c, picked, pending[1] and half or bytes, 1)
      truncate(c, pending, bytes, 0)
    end
    fromReady, c.weighed = math.min(fromReady, #picked), true
  end
  return picked, pending, fromReady
end
