-- Deliveries whose leases ran out are taken back, unless they have a grace.
-- takes: MOVES, furthest, leaseUS, SWEEP, leased, score, bytes, firstHold, groups, lost, maxLosses, name, replace, size, dead,
--        addparts, jitter, pended, retried, inGrace, graceOver, moved, replaced
-- gives: lookAgain
-- from time: now, us, whole
-- from record: split, failure
-- from lease: lendrest, isheld
-- from group: weight

-- The end of a lease is not believed if it is more than a lease ahead: the clock was stepped back since.
if furthest and furthest > now + leaseUS then
  local far = redis.call('ZREVRANGEBYSCORE', KEYS.unack, '+inf', '(' .. us(now + leaseUS), 'LIMIT', 0, SWEEP)
  local leases = {}
  for i = 1, #far do leases[2 * i - 1], leases[2 * i] = us(now + leaseUS), far[i] end
  if leases[1] then redis.call('ZADD', KEYS.unack, unpack(leases)) end
  leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES'))
end

if leased and leased <= now then
  local holds = (whole(firstHold) or 0) > 0 -- some key is held
  -- from message: keyof
  -- from group: leftkey, setleft
  -- from record: setfailure, superseded, witherror
  -- from keys: freekey
  -- from leavelane: relanes
  local unlist = groups and setleft
  local LOST = 'its lease ran out: its consumer died or was cut off'
  local UNRECEIVED = 'it did not come through: the line is too slow for it, or a limit of the server cuts it off'
  local function lose(id, n, why)
    lost = lost + 1
    local before = redis.call('HGET', KEYS.fail, id)
    local failures, losses, errors = failure(before)
    losses = losses + 1
    local poison = losses >= maxLosses and not superseded(before)
    errors = witherror(errors, n, poison and ARGV[10] or why)
    if superseded(before) then return replace(id, n, failures, losses, errors) end
    local record = setfailure(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
    if poison then
      local envelope = redis.call('HGET', KEYS.msg, id)
      local key = keyof(envelope)
      freekey(id, key ~= '' and key or unlist and leftkey(envelope) or '', holds, unlist)
      redis.call('ZADD', KEYS.garbage, us(now), id)
      relanes().outof(envelope, 'unack', '', id)
      size = size + weight(envelope)
      dead[#dead + 1] = id
      dead[#dead + 1] = size <= bytes and envelope or ''
      dead[#dead + 1] = record
      if size <= bytes then addparts(-#dead / 3, id, envelope) end
    else
      -- At a random instant, apart from the messages that were lost with it.
      local next = now + jitter(500000 * math.min(losses, 20))
      if not retried or next < retried then retried = next end
      redis.call('ZADD', KEYS.retry, us(next), us(n + 1) .. ':' .. id)
    end
  end

  local expired, from = {}, '-inf' -- leases that are over, with their grace
  if inGrace >= 0 then
    if leased <= graceOver then
      expired = redis.call('ZRANGEBYSCORE', KEYS.unack, '-inf', us(graceOver), 'LIMIT', 0, SWEEP)
    end
    from = '(' .. us(inGrace)
  end
  if inGrace < now then
    local rest = redis.call('ZRANGEBYSCORE', KEYS.unack, from, us(now), 'LIMIT', 0, SWEEP - #expired)
    for i = 1, #rest do expired[#expired + 1] = rest[i] end
  end
  -- A call takes back SWEEP deliveries, and looks at MOVES tags. Poison has about a quarter of the reply. What is left of a lease then is
  -- a lease of another name, which its holder does not know: else a late ack of the holder would end what has been taken back.
  local looked = 0
  local function full() return moved >= SWEEP or looked >= MOVES or size > bytes / 4 end
  local function reclaim(lease)
    local rest = {}
    for tag in string.gmatch(redis.call('HGET', KEYS.lease, lease) or '', '%S+') do
      if full() then
        rest[#rest + 1] = tag
      else
        looked = looked + 1
        local n, id = split(tag)
        if isheld(id, n) then
          if n > 1 or not redis.call('ZSCORE', KEYS.pending, id) then -- else it was sent again, too late
            moved = moved + 1
            lose(id, n, lease == name and UNRECEIVED or LOST)
          end
        elseif redis.call('HEXISTS', KEYS.msg, id) == 0 then
          redis.call('HDEL', KEYS.fail, id) -- it has one if another program deleted the message
        end
      end
    end
    local ends = rest[1] and redis.call('ZSCORE', KEYS.unack, lease)
    redis.call('ZREM', KEYS.unack, lease)
    redis.call('HDEL', KEYS.lease, lease, lease .. '#')
    if rest[1] then lendrest(lease, ends, rest) end
  end
  for i = 1, #expired do
    if full() then break end
    reclaim(expired[i])
  end
  if expired[1] then leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES')) end
end

-- lookAgain() is to be called where messages of lanes may have got places.
local function lookAgain()
  pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES'))
  retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES'))
end
if dead[1] or replaced > 0 then lookAgain() end
