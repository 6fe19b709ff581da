-- The alarm is set.
-- from time: now, us
-- from call: mark
-- from alarm: gate, arm
-- from grace: graceof
-- from fetch/read: score

-- overat(c) is when the first lease is over, its grace included; nil if there is none.
local function overat(c)
  local leased = c.leased
  if not leased or (c.grace or '') == '' then return leased end
  local _, upto, before, ends = graceof(c.grace, c.leaseUS)
  if ends <= now or leased > upto or leased <= before then return leased end
  local next = score(redis.call('ZRANGEBYSCORE', KEYS.unack, '(' .. us(upto), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
  return math.min(next or ends, ends)
end

-- setalarm(c, limit, marker) sets the alarm for the next instant of work, and returns that; 0: none. For one instant
-- the marker is set once, not with each call, because the consumer that takes it wakes up. While more is due each call
-- sets it, because it may have been taken.
local function setalarm(c, limit, marker)
  local next, given = 0, #c.given
  local function soonest(at) if at and (next == 0 or at < next) then next = math.max(at, 1) end end
  if (c.ready[1] or c.givenBack) and redis.call('LLEN', KEYS.ready) > 0 then soonest(now) end
  if c.fromPending then c.pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES')) end
  if c.fromRetry then c.retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES')) end
  soonest(c.pended)
  soonest(c.retried)
  if next ~= 0 then next = gate(next, c.pause) end
  if c.byAlarm then next = c.alarm end
  local putOff, full -- next without the limit that puts it off; a message waits for a place
  if limit then
    local taken = c.repeated and 0 or given
    limit.take(c.repeated and 0 or taken - c.spared)
    if next ~= 0 and next <= now and limit.free and limit.free <= taken then
      putOff, next, full = next, 0, true
    elseif next ~= 0 and limit.open > math.max(next, now) then
      putOff, next = next, limit.open
    end
  end

  local over = overat(c)
  c.over = over and over <= now
  if c.over then over = now + 1000000 end -- if the tick that this consumer is told to make does not come
  if full then soonest(over or c.leaseEnd or now + c.leaseUS) end -- the consumer that has the place may be dead
  if over and (c.over or over < now + c.leaseUS / 2) then soonest(over) end -- its consumer should have renewed it

  if next == 0 then
    if marker ~= 0 then
      redis.call('ZREM', KEYS.wake, 'w')
      mark('armed', '0')
    end
  elseif next ~= marker or next <= now or ARGV[7] == '1' then
    arm(next)
  end
  if limit then
    local first = math.min(putOff or next, next)
    mark('armed', us(first))
    if putOff then
      mark('limited', table.concat({us(limit.since or now), us(first), us(limit.open), us(next), full and '1' or '0'}, ' '))
    elseif limit.before ~= '' and not limit.idle then
      mark('limited', '')
    end
  end
  return next, full
end
