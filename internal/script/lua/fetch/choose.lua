-- Deliveries are chosen to be handed out.
-- takes: limit, leaseUS, jitter, alone, repeated, retried, want, moved, MOVES, fromReady, ready, picked, pended, pending, weigh, size, big, bytes
-- gives: reserved, later, truncate, weighed
-- from time: now, us, whole, scored
-- from record: split

-- Poison dies alone: a message on its last chance is handed out alone, to a process that handles nothing else. A fetch that meets such
-- messages defers the first by two leases, and names it, with that instant. Its consumer asks for it by both once its process handles
-- nothing, and gets it unless somebody has moved it since. It asks again if the rate lets the message go within a lease. The fetch
-- defers the others, and all if its consumer has one already, until later(): in a moment, or later if many wait in retry. The instants are spread, so that there is always a
-- message for a consumer that can take it, and no fetch looks at all of them. They are whole twentieths of a second, because each
-- instant costs a fetch.
local function later()
  local spread = math.min(redis.call('ZCARD', KEYS.retry) * 500, 60000000)
  return us((math.floor((now + jitter(spread)) / 50000) + 2) * 50000)
end
local reserved = '' -- a message on its last chance, and the instant to which it was deferred: its consumer is to ask for it alone
picked.asked = not repeated and alone ~= '' and alone ~= '-' -- for one message
if picked.asked then
  local tag, instant = string.match(alone, '^(.*) (%d+)$')
  if tag and scored(redis.call('ZSCORE', KEYS.retry, tag)) == whole(instant) then
    if want > 0 then
      picked[1] = tag
    elseif limit then
      limit.take(0)
      if limit.open > now and limit.open <= now + leaseUS then reserved = alone end -- its consumer asks again
    end
  end
  want = 0
end

-- First come deliveries from ready, then from pending and retry, half and half if both have more than fits, so that neither starves
-- the other.
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

local function truncate(tags, room, least) -- to those whose bytes have room, at least so many, and adds their bytes to size
  for i = 1, #tags do
    local _, id = split(tags[i])
    local length = weigh(id, room)
    if size + length > room and i > least then
      for j = #tags, i, -1 do tags[j] = nil end
      break
    end
    size = size + length
  end
end

-- Sizes are known before values are read: by the longest envelope ever stored, or one by one.
local weighed = (#picked + #pending) * big + size > bytes
if not repeated and weighed then
  local half = (size + bytes) / 2 -- of the room, for those that are looked at first
  if pending[1] and (not picked[1] or jitter(2) == 0) then
    truncate(pending, picked[1] and half or bytes, 1)
    truncate(picked, bytes, 0)
  else
    truncate(picked, pending[1] and half or bytes, 1)
    truncate(pending, bytes, 0)
  end
  fromReady = math.min(fromReady, #picked)
end
