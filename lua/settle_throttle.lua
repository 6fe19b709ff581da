-- Part of settle: nothing is handed out for a while, of a queue with limits or without (fetch_limit.lua).
local limits, throttled = unpack(redis.call('HMGET', KEYS.state, 'limits', 'throttled'), 1, 2)
local said, till = string.match(throttled or '', '^(%d+) (%d+)$')
said, till = whole(said), whole(till)
local ends = now + math.min(throttle, 3600000000)
if not till or said > now or till - said > 3600000000 or till < ends then mark('throttled', us(now) .. ' ' .. us(ends)) end
if not limits then mark('limits', '') end
