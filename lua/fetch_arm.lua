-- Part of fetch: sets the alarm for the next instant of work. The marker is set once for an instant, not with each tick,
-- for whoever takes it wakes up. Only while more is due it is set with each call, for it may have been taken.
local next = 0
local function soonest(at) if at and (next == 0 or at < next) then next = math.max(at, 1) end end
if (ready[1] or givenBack) and redis.call('LLEN', KEYS.ready) > 0 then soonest(now) end
if pending[1] or spared > 0 then pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES')) end
if picked[1] or spared > 0 then retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES')) end
soonest(pended)
soonest(retried)
if next ~= 0 then next = gate(next, pause) end
if byAlarm then next = alarm end
local putOff, full -- when it would be without a limit, if that puts it off; it waits for a place
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
if full then soonest(over or whole(leaseEnd) or now + leaseUS) end -- whoever has the place may be dead
if over and over < now + leaseUS / 2 then soonest(over) end -- its holder should have renewed it
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
