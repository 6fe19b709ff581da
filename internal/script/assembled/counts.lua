-- KEYS: pending, ready, lease, retry, garbage, msg, fail, state, done, waiting
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local function whole(text)
if not text or not string.find(text, '^%d+$') then return nil end
return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
local function scored(score)
if not score then return nil end
local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
local function split(tag)
local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
if n and n ~= '1' and #n < 10 then return tonumber(n), id end
return 1, tag
end
local function failure(record)
local failures, losses, when, mark, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (\31?)(.*)$')
return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when), mark == '\31'
end
local function throttledUntil(text)
local said, till = string.match(text or '', '^(%d+) (%d+)$')
said, till = whole(said), whole(till)
if not till or said > now or till - said > 3600000000 or till <= now then return 0 end
return till
end
local function howmanyheld()
if redis.call('HLEN', KEYS[3]) == 0 then return 0 end
local held = redis.call('HLEN', KEYS[6]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
- redis.call('ZCARD', KEYS[4]) - redis.call('ZCARD', KEYS[5]) - redis.call('ZCARD', KEYS[9])
- redis.call('ZCARD', KEYS[10])
return math.max(held, 0)
end
local BOOKS = {'in:stored', 'in:found', 'kept', 'in:followed', 'in:scheduled', 'in:imported', 'out:acked', 'out:over', 'out:superseded',
'out:intercepted', 'out:canceled', 'out:deleted', 'out:aged', 'out:trimmed', 'out:lost'}
local function difference(values, here)
if not whole(values[1]) then return nil end
local sum = -here
for i = 1, #BOOKS do
local n = values[i] and whole(values[i]) or 0
if i <= 3 then sum = sum + n elseif i > 6 then sum = sum - n end
end
return sum
end
local due = redis.call('ZCOUNT', KEYS[1], '-inf', us(now))
local again = redis.call('ZCOUNT', KEYS[4], '-inf', us(now))
local oldest, next = 0, 0
local function soonest(a, b) return b and (a == 0 or b < a) and b or a end
local function score(head) return scored(head[2]) end
if due > 0 then oldest = soonest(oldest, score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))) end
if again > 0 then oldest = soonest(oldest, score(redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES'))) end
local head = redis.call('LINDEX', KEYS[2], 0)
if head then
local _, id = split(head)
local _, _, _, at = failure(redis.call('HGET', KEYS[7], id))
oldest = soonest(oldest, at)
end
next = soonest(next, score(redis.call('ZRANGE', KEYS[1], due, due, 'WITHSCORES')))
next = soonest(next, score(redis.call('ZRANGE', KEYS[4], again, again, 'WITHSCORES')))
local waited = score(redis.call('ZRANGE', KEYS[10], 0, 0, 'WITHSCORES'))
local pause, layout, limits, override, limited, throttled, paused, loss, books =
unpack(redis.call('HMGET', KEYS[8], 'pause', 'layout', 'limits', 'override', 'limited', 'throttled', 'paused', 'loss', 'books'), 1, 9)
pause = whole(pause) or 0
if pause <= now then pause = 0 end
local unack = howmanyheld()
local since, open, full = string.match(limited or '', '^(%d+) %d+ (%d+) %d+ ([01])$')
since, open = whole(since) or 0, whole(open) or 0
if oldest == 0 or since > now or open <= now - 1000000 and (full == '0' or unack == 0) then since, open = 0, 0 end
if open <= now then open = 0 end
return {
us(now),
redis.call('ZCARD', KEYS[1]) - due,
redis.call('LLEN', KEYS[2]) + due + again,
unack,
redis.call('ZCARD', KEYS[4]) - again,
redis.call('ZCARD', KEYS[5]),
redis.call('ZCOUNT', KEYS[9], '(' .. us(now), '+inf'),
us(oldest), us(next), us(pause),
redis.call('HLEN', KEYS[8]), layout or '1', limits or '', override or '', us(since), us(open), us(throttledUntil(throttled)),
paused or '', redis.call('ZCARD', KEYS[10]), us(waited and waited <= now and waited or 0),
us(difference(redis.call('HMGET', KEYS[8], unpack(BOOKS)), redis.call('HLEN', KEYS[6])) or 0),
string.sub(loss or '', 1, 60),
us(whole(books) or 0),
}
