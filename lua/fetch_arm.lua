-- Part of fetch: sets the alarm for the next instant of work. The marker is set once for an instant, not with each tick,
-- for whoever takes it wakes up. Only while more is due it is set with each call, for it may have been taken.
local next = 0
local function soonest(at) if at and (next == 0 or at < next) then next = math.max(at, 1) end end
if (ready[1] or givenBack) and redis.call('LLEN', KEYS.ready) > 0 then soonest(now) end
if pending[1] then pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES')) end
if picked[1] then retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES')) end
soonest(pended)
soonest(retried)
if next ~= 0 then next = gate(next, pause) end

local over = leased -- when the first lease is over, its grace included
if leased and leased <= inGrace then
  over = score(redis.call('ZRANGEBYSCORE', KEYS.unack, '(' .. us(inGrace), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
  for i = #graces, 1, -1 do
    if leased <= graces[i].upto and (not over or graces[i].till < over) then over = graces[i].till end
  end
end
if over and over < now + leaseUS / 2 then soonest(over) end -- its holder should have renewed it
if more or #trimmed >= SWEEP then soonest(now) end

local armedBefore = whole(armed) or 0
if next == 0 then
  if armedBefore ~= 0 then
    redis.call('ZREM', KEYS.wake, 'w')
    mark('armed', '0')
  end
elseif next ~= armedBefore or next <= now or ARGV[8] == '1' then
  arm(next)
end
