-- The alarm, part of fetch: the same instant is set once, not once for each tick, for it wakes whoever
-- takes it; while more is due, it is set again and again, for it may have been taken.
local next = 0
local function soonest(t) if t and (next == 0 or t < next) then next = math.max(t, 1) end end
if (ready[1] or givenback) and redis.call('LLEN', KEYS.ready) > 0 then soonest(now) end
if pending[1] then pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES')) end
if some[1] then retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES')) end
soonest(pended)
soonest(retried)
if next ~= 0 and next < pause then next = pause end
local ends = leaseends()
if ends and ends < now + lease / 2 then soonest(ends) end -- its holder should have renewed it
if #gone >= SWEEP then soonest(now) end
if next == 0 then
  if armed ~= 0 then
    redis.call('ZREM', KEYS.wake, 'w')
    mark('armed', '0')
  end
elseif next ~= armed or next <= now or ARGV[8] == '1' then
  redis.call('ZADD', KEYS.wake, us(next), 'w')
  mark('armed', us(next))
end
