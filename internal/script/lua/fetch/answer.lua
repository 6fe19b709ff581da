-- The alarm is set, the counts go to history, the consumer record is written, and the reply is made.
-- takes: bytes, list, canceled, givenBack, ready, pended, pending, score, spared, picked, retried, pause, alarm, byAlarm, limit, given,
--        repeated, leased, inGrace, graces, leaseEnd, leaseUS, SWEEP, byPages, more, overflow, trimmed, marker, counted, dead, late,
--        latest, lost, replaced, started, FIELDS, state, byAge, dropped, droppedBefore, anyone, doneMax, garbageAge, garbageMax,
--        maxLosses, seen, fails, described, out, parts, missing
-- from time: now, us, whole
-- from call: mark, remember
-- from alarm: gate, arm
-- from history: KINDS, merged

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
if leased and leased <= inGrace then
  over = score(redis.call('ZRANGEBYSCORE', KEYS.unack, '(' .. us(inGrace), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
  for i = #graces, 1, -1 do
    if leased <= graces[i].upto and (not over or graces[i].till < over) then over = graces[i].till end
  end
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

-- The counts of this call, and of all calls since they were moved last, go to history at most once a second.
local function ms(n) return math.floor(n / 1000 + 0.5) end
local counts, any, countedBefore =
  {0, repeated and 0 or #given, 0, 0, lost, #dead / 3, replaced, started, ms(late), ms(latest)}, false, whole(counted) or 0
for i = 1, #KINDS do
  counts[i] = merged(i, counts[i], whole(state[FIELDS + i]) or 0)
  any = any or counts[i] > 0
end
if any and (countedBefore > now or now - countedBefore >= 1000000) then
  -- from history: hour, day, tally, kept
  local spans = {us(hour), 'd' .. us(day)}
  local sums = redis.pcall('HMGET', KEYS.history, unpack(spans))
  if not sums.err then
    redis.pcall('HSET', KEYS.history, spans[1], tally(sums[1], counts), spans[2], tally(sums[2], counts))
    if byAge and not sums[1] then -- the first of this hour
      local fields, old = redis.pcall('HRANDFIELD', KEYS.history, SWEEP), {} -- all fields, or SWEEP of them
      for i = 1, #fields do
        if not kept(fields[i]) then old[#old + 1] = fields[i] end
      end
      if old[1] then redis.pcall('HDEL', KEYS.history, unpack(old)) end
    end
    for i = 1, #KINDS do counts[i] = 0 end
    mark('counted', us(now))
  end
end
for i = 1, #KINDS do
  if us(counts[i]) ~= (state[FIELDS + i] or '0') then mark(KINDS[i], us(counts[i])) end
end
if dropped > 0 then mark('dropped', us((whole(droppedBefore) or 0) + dropped)) end

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
remember('')

-- The reply, as fetch.lua says.
local envelopes = #out
local numbers = {
  bytes > 0 and list or '', us(now), us(next), lost, dropped, overflow, seen and 0 or 1,
  us(leaseUS), us(maxLosses), us(garbageAge), us(garbageMax), us(doneMax),
  limit and not limit.idle and limit.text .. ' ' .. (full and '-1' or us(limit.left(repeated and 0 or #given))) or '',
  #fails, #dead / 3, #described / 4, replaced, us(whole(canceled) or 0), #missing / 2,
}
for _, list in ipairs({numbers, fails, dead, described, missing, parts}) do
  for i = 1, #list do out[#out + 1] = list[i] end
end
out[#out + 1] = envelopes
return out
