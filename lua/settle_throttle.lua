-- Part of settle: nothing is handed out for a while, of a queue with limits or without (fetch_limit.lua).
-- include throttled
local limits, throttled = unpack(redis.call('HMGET', KEYS.state, 'limits', 'throttled'), 1, 2)
local ends = now + math.min(throttle, 3600000000)
if ends > throttledUntil(throttled) then mark('throttled', us(now) .. ' ' .. us(ends)) end
if not limits then mark('limits', '') end
