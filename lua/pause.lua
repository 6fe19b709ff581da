-- pause makes consumers hand out nothing until an instant, or makes them go on.
--
-- KEYS: pending, ready, retry, msg, wake, state
-- ARGV: 3 us until which; '0': go on; 4 who says so, a newline, and why; 5 '1': 3 is how many us from now on
-- Returns {now}, of a repeat when it was carried out. Or an error, and nothing was changed: DQNOQUEUE; DQPAST, of an instant that is
--       not after now.
-- Cost: 10 commands of O(log n).
-- Keeps: invariants 6 and 9 of PROTOCOL.md. The first write is a ZREM: a full server lets the rest pass.

-- include head, call, score, arm
local saved, armed, before, said = unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'pause', 'paused'), 1, 4)
local reply, at = recall(saved)
if reply then return {at} elseif reply == false then return STALE end
-- include existing
local till = tonumber(ARGV[3])
if ARGV[5] == '1' then
  till = math.min(now + till, 7258118400000000) -- year 2200
elseif till > 0 and till <= now then
  return {err = 'DQPAST that instant is over'} -- it would end a pause that somebody has made
end
local pended = redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES')
local ready = redis.call('LLEN', KEYS.ready)
local retried = redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES')
guard(redis.call('ZCARD', KEYS.wake))
redis.call('ZREM', KEYS.pending, '') -- the first write

local first = scored(pended[2])
if retried[2] and (not first or scored(retried[2]) < first) then first = scored(retried[2]) end
if ready > 0 and (not first or now < first) then first = now end
if till > now then
  -- Since when: that of a pause that goes on is kept. What is said of another pause than the one in force counts for nothing.
  local since, upto = string.match(said or '', '^(%d+) (%d+) ')
  since = whole(since)
  if not since or since > now or upto ~= before or (whole(before) or 0) <= now then since = now end
  mark('pause', us(till))
  mark('paused', us(since) .. ' ' .. us(till) .. ' ' .. (ARGV[4] or ''))
  first = first and gate(first, us(till))
else
  redis.call('HDEL', KEYS.state, 'pause', 'paused')
end
if first and sooner(first, armed) then arm(first) end
remember('')
return {us(now)}
