-- The alarm is set, the consumer record is written, and the reply is made.
-- takes: big, list, canceled, givenBack, ready, pended, pending, score, spared, picked, retried, pause, alarm, byAlarm, limit, given,
--        repeated, leased, inGrace, graceOver, graceEnds, leaseEnd, leaseUS, SWEEP, byPages, more, overflow, trimmed, marker, dead, lost, replaced, dropped,
--        anyone, seen, fails, out, parts, missing, heardAt, heardCall, totals, reserved
-- from time: now, us, whole
-- from call: mark, remember
-- from alarm: gate, arm

-- The alarm is set for the next instant of work. For one instant the marker is set once, not with each tick, because the consumer
-- that takes it wakes up. While more is due each call sets it, because it may have been taken.
local next = 0
local function soonest(at) if at and (next == 0 or at < next) then next = math.max(at, 1) end end
if (ready[1] or givenBack) and redis.call('LLEN', KEYS.ready) > 0 then soonest(now) end
if pending[1] or spared > 0 then pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES')) end
if picked[1] or spared > 0 then retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES')) end
soonest(pended)
soonest(retried)
if next ~= 0 then next = gate(next, pause) end
if byAlarm then next = alarm end
local putOff, full -- next without the limit that puts it off; a message waits for a place
if limit then
  local taken = repeated and 0 or #given
  limit.take(repeated and 0 or taken - spared)
  if next ~= 0 and next <= now and limit.free and limit.free <= taken then
    putOff, next, full = next, 0, true
  elseif next ~= 0 and limit.open > math.max(next, now) then
    putOff, next = next, limit.open
  end
end

local over = leased -- when the first lease is over, its grace included
if leased and leased <= inGrace and leased > graceOver then
  over = score(redis.call('ZRANGEBYSCORE', KEYS.unack, '(' .. us(inGrace), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
  over = math.min(over or graceEnds, graceEnds)
end
if full then soonest(over or leaseEnd or now + leaseUS) end -- the consumer that has the place may be dead
if over and over < now + leaseUS / 2 then soonest(over) end -- its consumer should have renewed it
if (more or #trimmed >= SWEEP) and (overflow > 0 or not byPages) then soonest(now) end

if next == 0 then
  if marker ~= 0 then
    redis.call('ZREM', KEYS.wake, 'w')
    mark('armed', '0')
  end
elseif next ~= marker or next <= now or ARGV[8] == '1' then
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

-- One random record of a consumer is looked at, and deleted if it is old or from the future. Without any consumer all expire in a month.
if anyone and not anyone.err then
  local at, itsLease = string.match(anyone[2] or '', '^(%d+) (%d+) ')
  at, itsLease = whole(at), whole(itsLease)
  if anyone[1] and (not at or not itsLease or math.abs(now - at) > 2 * itsLease + 5000000) then
    redis.call('HDEL', KEYS.consumers, anyone[1])
  end
  if ARGV[12] == '-' then
    redis.call('HDEL', KEYS.consumers, ARGV[1])
  else
    redis.call('HSET', KEYS.consumers, ARGV[1], us(now) .. ' ' .. ARGV[4] .. ' ' .. ARGV[12])
    redis.pcall('EXPIRE', KEYS.consumers, 2678400)
  end
end
local known = heardAt and heardCall .. ' ' .. heardAt or '0 0'
remember(known)

-- The reply, as fetch.lua says.
local envelopes = #out
local numbers = {
  list, us(now), us(next), lost, dropped, overflow, seen and 0 or 1,
  us(leaseUS),
  limit and not limit.idle and limit.text .. ' ' .. (full and '-1' or us(limit.left(repeated and 0 or #given))) or '',
  #fails, #dead / 3, replaced, us(whole(canceled) or 0),
  known .. ' ' .. totals, #missing / 2, reserved, us(big),
}
for _, list in ipairs({numbers, fails, dead, missing, parts}) do
  for i = 1, #list do out[#out + 1] = list[i] end
end
out[#out + 1] = envelopes
return out
