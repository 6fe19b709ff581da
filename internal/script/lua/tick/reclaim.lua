-- Deliveries whose leases ran out are taken back, unless they have a grace.
-- from time: now, us
-- from jitter: jitter
-- from record: split, failure, setfailure, superseded, witherror, finish
-- from message: keyof
-- from group: weight, leftkey, setleft
-- from keys: freekey
-- from lease: lendrest, isheld
-- from leavelane: relanes
-- from grace: graceof
-- from parts: addparts
-- from tick/read: SWEEP

local MOVES = 500 -- how many tags a call looks at
local LOST = 'its lease ran out: its consumer died or was cut off'
local UNRECEIVED = 'it did not come through: the line is too slow for it, or a limit of the server cuts it off'

-- shorten(c) takes the end of a lease back that is more than a lease ahead, because the clock was stepped back since.
local function shorten(c)
  local latest = us(now + c.leaseUS)
  local far, leases = redis.call('ZREVRANGEBYSCORE', KEYS.unack, '+inf', '(' .. latest, 'LIMIT', 0, SWEEP), {}
  for i = 1, #far do leases[2 * i - 1], leases[2 * i] = latest, far[i] end
  if leases[1] then redis.call('ZADD', KEYS.unack, unpack(leases)) end
end

-- lose(c, id, n, why) takes back the nth delivery of a message: it comes again, is poison, or ends if it was
-- superseded.
local function lose(c, id, n, why)
  c.lost = c.lost + 1
  local before = redis.call('HGET', KEYS.fail, id)
  local failures, losses, errors = failure(before)
  losses = losses + 1
  local poison = losses >= tonumber(ARGV[5]) and not superseded(before)
  errors = witherror(errors, n, poison and ARGV[8] or why)
  local counts = us(failures) .. ' ' .. us(losses)
  if superseded(before) then
    local ends, size = finish(id, us(n + 1), counts, errors)
    c.replaced, c.size = c.replaced + 1, c.size + size
    if not ends then
      c.outs['out:superseded'] = (c.outs['out:superseded'] or 0) + 1
    elseif c.done == 0 or ends < c.done then
      c.done, c.kept = ends, true
    end
    return
  end
  local record = setfailure(id, us(n + 1), counts, errors)
  if poison then
    local dead, envelope = c.dead, redis.call('HGET', KEYS.msg, id)
    local key, unlist = keyof(envelope), c.groups and setleft
    freekey(id, key ~= '' and key or unlist and leftkey(envelope) or '', c.holds, unlist)
    redis.call('ZADD', KEYS.garbage, us(now), id)
    relanes().outof(envelope, 'unack', '', id)
    c.size = c.size + weight(envelope)
    dead[#dead + 1] = id
    dead[#dead + 1] = c.size <= c.bytes and envelope or ''
    dead[#dead + 1] = record
    if c.size <= c.bytes then addparts(c, -#dead / 3, id, envelope) end
  else
    -- At a random instant, apart from the messages that were lost with it.
    local next = now + jitter(500000 * math.min(losses, 20))
    if not c.first or next < c.first then c.first = next end
    redis.call('ZADD', KEYS.retry, us(next), us(n + 1) .. ':' .. id)
  end
end

-- leasesover(c) are leases that are over, with their grace, SWEEP at most.
local function leasesover(c)
  local _, upto, before, ends = graceof(c.grace, c.leaseUS)
  if ends <= now then return redis.call('ZRANGEBYSCORE', KEYS.unack, '-inf', us(now), 'LIMIT', 0, SWEEP) end
  local over = redis.call('ZRANGEBYSCORE', KEYS.unack, '-inf', us(math.min(before, now)), 'LIMIT', 0, SWEEP)
  if upto < now then
    local rest = redis.call('ZRANGEBYSCORE', KEYS.unack, '(' .. us(upto), us(now), 'LIMIT', 0, SWEEP - #over)
    for i = 1, #rest do over[#over + 1] = rest[i] end
  end
  return over
end

-- reclaim(c) takes back SWEEP deliveries, and looks at MOVES tags. Poison has about a quarter of the reply. What is
-- left of a lease then is a lease of another name, which its holder does not know: else a late ack of the holder would
-- end what has been taken back. The lease of a message that did not come through ends in '!' (fetch/again.lua).
local function reclaim(c)
  if c.furthest and c.furthest > now + c.leaseUS then shorten(c) end
  if not c.leased or c.leased > now then return end
  if now - c.seen > c.leaseUS * 2 / 3 then return end -- this tick was held up by an outage: a fetch gives leases a grace first
  local looked = 0
  local function full() return c.moved >= SWEEP or looked >= MOVES or c.size > c.bytes / 4 end
  local over = leasesover(c)
  c.ended = over[1] ~= nil
  c.more = #over == SWEEP
  for _, lease in ipairs(over) do
    if full() then
      c.more = true
      break
    end
    local rest, why = {}, string.sub(lease, -1) == '!' and UNRECEIVED or LOST
    for tag in string.gmatch(redis.call('HGET', KEYS.lease, lease) or '', '%S+') do
      if full() then
        rest[#rest + 1] = tag
      else
        looked = looked + 1
        local n, id = split(tag)
        if isheld(id, n) then
          if n > 1 or not redis.call('ZSCORE', KEYS.pending, id) then -- else it was sent again, too late
            c.moved = c.moved + 1
            lose(c, id, n, why)
          end
        elseif redis.call('HEXISTS', KEYS.msg, id) == 0 then
          redis.call('HDEL', KEYS.fail, id) -- it has one if another program deleted the message
        end
      end
    end
    local ends = rest[1] and redis.call('ZSCORE', KEYS.unack, lease)
    redis.call('ZREM', KEYS.unack, lease)
    redis.call('HDEL', KEYS.lease, lease, lease .. '#')
    if rest[1] then
      lendrest(lease, ends, rest)
      c.more = true
    end
  end
end
