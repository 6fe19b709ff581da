-- The leases, part of fetch: what a lost reply held, and what nobody renewed.

-- A fetch gives its deliveries a lease end that no other lease has, so that a repeat finds
-- them by it: odd, whereas a renewal is even, not in use, and not that of the fetch before,
-- whose deliveries may all have been intercepted.
local function lend(tags)
  local ends = now + lease
  ends = ends - ends % 2 + 1
  while us(ends) == state[8] or redis.call('ZCOUNT', KEYS.unack, us(ends), us(ends)) > 0 do ends = ends + 2 end
  ends = us(ends)
  mark('lent', ends)
  local leases = {}
  for i = 1, #tags do
    leases[2 * i - 1] = ends
    leases[2 * i] = tags[i]
  end
  redis.call('ZADD', KEYS.unack, unpack(leases))
  return ends
end

-- Deliveries of a lost reply for which this one has no room go back: they count for nothing.
local function giveback(tag)
  local n, id = split(tag)
  local failures, losses, text = parse(redis.call('HGET', KEYS.fail, id))
  redis.call('ZREM', KEYS.unack, tag)
  redis.call('HSET', KEYS.fail, id, us(n + 1) .. ' ' .. us(failures) .. ' ' .. us(losses) .. ' ' .. us(now) .. ' ' .. text)
  redis.call('RPUSH', KEYS.ready, us(n + 1) .. ':' .. id)
end

local tags, reply, held, givenback = {}, '', {}, false
if handed and handed ~= '' then
  tags = redis.call('ZRANGEBYSCORE', KEYS.unack, handed, handed, 'LIMIT', 0, MOVES)
  if bytes == 0 then
    for i = 1, #tags do
      local _, id = split(tags[i])
      local record, key = redis.call('HGET', KEYS.fail, id) or '', ''
      local _, losses = parse(record)
      if losses >= maxlosses - 1 then key = keyof(redis.call('HGET', KEYS.msg, id) or '', 18) end
      for _, part in ipairs({tags[i], redis.call('HSTRLEN', KEYS.msg, id), record, key}) do held[#held + 1] = part end
    end
  elseif #tags * big > bytes then
    local fit, total = {}, 0
    for i = 1, #tags do
      local _, id = split(tags[i])
      local length = redis.call('HSTRLEN', KEYS.msg, id)
      if total + length <= bytes then
        total = total + length
        fit[#fit + 1] = tags[i]
      end
    end
    if not fit[1] then fit[1] = tags[1] end
    local kept = {}
    for i = 1, #fit do kept[fit[i]] = true end
    for i = 1, #tags do
      if not kept[tags[i]] then
        givenback = true
        giveback(tags[i])
      end
    end
    tags = fit
  end
  if tags[1] then
    reply = lend(tags)
    leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES'))
  end
end

-- A lease's end is not believed beyond the longest that there is: the clock was stepped back since.
if furthest and furthest > now + lease + 2 * MOVES then
  local far = redis.call('ZREVRANGEBYSCORE', KEYS.unack, '+inf', '(' .. us(now + lease + 2 * MOVES), 'LIMIT', 0, SWEEP)
  local renewed, leases = now + lease, {}
  for i = 1, #far do
    leases[2 * i - 1] = us(renewed - renewed % 2)
    leases[2 * i] = far[i]
  end
  if leases[1] then redis.call('ZADD', KEYS.unack, unpack(leases)) end
  leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES'))
end

-- After a time in which this consumer was cut off for half a lease, others were too, and may find back later; after
-- two thirds of one without any consumer's call (an outage, a step of the clock) the holders of what ran out meanwhile
-- may live. So the leases that end while they find back are given a grace: those that end up to graces[i] and after
-- graces[i - 2] last until graces[i + 1], half a lease longer at least. A lease is given one, once: so a consumer
-- that is cut off again and again keeps nobody's messages for long. A grace takes in more leases for a quarter of a
-- lease, then there is another: seven at most that are not over, and one that is, for what ended with it.
local graces = {}
local function last(i) return graces[#graces - i] or 0 end
for upto, till in string.gmatch(state[4] or '', '(%d+) (%d+)') do
  upto, till = whole(upto), whole(till)
  if #graces < 16 and upto > last(1) and till >= upto and till >= last(0) and till <= now + 2 * lease then
    graces[#graces + 1] = upto
    graces[#graces + 1] = till
  end
end
while graces[4] and graces[4] <= now do
  table.remove(graces, 1)
  table.remove(graces, 1)
end
if seen > now then -- the clock was stepped back: a grace of another time is none, also if that time comes again
  seen, graces = 0, {}
  mark('grace', '')
end
if now - heard > lease / 2 or leased and leased <= now and now - seen > lease * 2 / 3 then
  local back = math.min(math.max(math.floor(lease / 2), 2000000), lease) -- in which all find back
  if graces[2] and now + back + lease / 2 <= last(0) then
    graces[#graces - 1] = math.max(last(1), now + back)
  else
    local upto, till = math.max(now + back, last(1) + 1), math.max(now + back + math.floor(lease * 3 / 4), last(0))
    graces[#graces + 1] = upto
    graces[#graces + 1] = till
  end
  local texts = {}
  for i = 1, #graces do texts[i] = us(graces[i]) end
  mark('grace', table.concat(texts, ' '))
end
local ended, upto = -1, -1 -- leases up to `ended` had a grace that is over; up to `upto` one that is not
if graces[2] and graces[2] <= now then ended = graces[1] end
if last(0) > now then upto = last(1) end
local function leaseends() -- when the first lease is over, its grace included
  if not leased or leased > upto then return leased end
  local at = score(redis.call('ZRANGEBYSCORE', KEYS.unack, '(' .. us(upto), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
  for i = 1, #graces, 2 do
    if leased <= graces[i] then return math.min(graces[i + 1], at or graces[i + 1]) end
  end
end

local expired = {}
if leased and leased <= now and bytes > 0 then
  local from = '-inf'
  if upto >= 0 then
    if leased <= ended then
      expired = redis.call('ZRANGEBYSCORE', KEYS.unack, '-inf', us(ended), 'LIMIT', 0, SWEEP)
    end
    from = '(' .. us(upto)
  end
  local rest = upto < now and redis.call('ZRANGEBYSCORE', KEYS.unack, from, us(now), 'LIMIT', 0, SWEEP - #expired) or {}
  for i = 1, #rest do expired[#expired + 1] = rest[i] end
end
for i = 1, #expired do
  if size > bytes / 4 then break end
  local tag = expired[i]
  local n, id = split(tag)
  moved = moved + 1
  redis.call('ZREM', KEYS.unack, tag)
  if redis.call('HEXISTS', KEYS.msg, id) == 0 then
    dropped = dropped + 1
    redis.call('HDEL', KEYS.fail, id)
  else
    lost = lost + 1
    local failures, losses, text = parse(redis.call('HGET', KEYS.fail, id))
    losses = losses + 1
    if losses >= maxlosses then text = ARGV[10] end
    local record = us(n + 1) .. ' ' .. us(failures) .. ' ' .. us(losses) .. ' ' .. us(now) .. ' ' .. text
    redis.call('HSET', KEYS.fail, id, record)
    if losses >= maxlosses then
      local envelope = redis.call('HGET', KEYS.msg, id)
      local key = keyof(envelope, 18)
      if key ~= '' and redis.call('HGET', KEYS.key, key) == id then redis.call('HDEL', KEYS.key, key) end
      redis.call('ZADD', KEYS.garbage, us(now), id)
      size = size + #envelope
      dead[#dead + 1] = id
      dead[#dead + 1] = size <= bytes and envelope or ''
      dead[#dead + 1] = record
    else
      -- Apart from those that it was lost with.
      local next = now + jitter(500000 * math.min(losses, 20))
      if not retried or next < retried then retried = next end
      redis.call('ZADD', KEYS.retry, us(next), us(n + 1) .. ':' .. id)
    end
  end
end
if expired[1] then leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES')) end
