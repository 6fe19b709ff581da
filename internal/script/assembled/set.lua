-- KEYS: pending, ready, retry, msg, wake, state
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
local field = 'call:' .. ARGV[1]
local STALE = 'DQSTALE a later call of this caller was carried out'
local function recall(saved)
if not saved then return nil end
local n, at, reply = string.match(saved, '^(%d+) (%d+) (.*)$')
if not n then return nil end
local call, last = tonumber(ARGV[2]), tonumber(n)
if last < call then return nil, at, n end
if last > call then return false end
return reply, at, n
end
local function guard() end
local marks = {}
local function mark(name, value)
marks[#marks + 1] = name
marks[#marks + 1] = value
end
local function remember(reply)
redis.call('HSET', KEYS[6], field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply, unpack(marks))
end
local NOQUEUE = {err = 'DQNOQUEUE the queue has no key'}
local function missing(armed)
if armed or redis.call('HLEN', KEYS[6]) > 0 or redis.call('HLEN', KEYS[4]) > 0 then return nil end
return NOQUEUE
end
local word, value = ARGV[3], ARGV[4]
local saved, armed, pause, said, limits, override, limited, throttled, loss =
unpack(redis.call('HMGET', KEYS[6], field, 'armed', 'pause', 'paused', 'limits', 'override', 'limited', 'throttled', 'loss'), 1, 9)
local reply, at = recall(saved)
if reply then return {at, reply} elseif reply == false then return {err = STALE} end
local refusal = missing(armed)
if refusal then return refusal end
guard(redis.call('ZCARD', KEYS[5]))
local before = ''
if word == 'until' or word == 'for' then
local function scored(score)
if not score then return nil end
local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
local function gate(due, paused) return math.max(due, whole(paused) or 0) end
local function sooner(due, before)
before = whole(before) or 0
return before == 0 or due < before
end
local function arm(due)
redis.call('ZADD', KEYS[5], us(due), 'w')
mark('armed', us(due))
end
local till = tonumber(value)
if word == 'for' then
till = math.min(now + till, 7258118400000000)
elseif till > 0 and till <= now then
return {err = 'DQPAST that instant is over'}
end
local pended = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local ready = redis.call('LLEN', KEYS[2])
local retried = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
redis.call('ZREM', KEYS[5], '')
local first = scored(pended[2])
if retried[2] and (not first or scored(retried[2]) < first) then first = scored(retried[2]) end
if ready > 0 and (not first or now < first) then first = now end
if till > now then
local since, upto = string.match(said or '', '^(%d+) (%d+) ')
since = whole(since)
if not since or since > now or upto ~= pause or (whole(pause) or 0) <= now then since = now end
mark('pause', us(till))
mark('paused', us(since) .. ' ' .. us(till) .. ' ' .. (ARGV[5] or ''))
first = first and gate(first, us(till))
else
redis.call('HDEL', KEYS[6], 'pause', 'paused')
end
if first and sooner(first, armed) then arm(first) end
elseif word == 'accept' then
local BOOKS = {'in:stored', 'in:found', 'kept', 'in:followed', 'in:scheduled', 'in:imported', 'out:acked', 'out:over', 'out:superseded',
'out:intercepted', 'out:canceled', 'out:deleted', 'out:aged', 'out:trimmed', 'out:lost'}
local function openbooks()
local here = redis.call('HLEN', KEYS[4])
redis.call('HDEL', KEYS[6], unpack(BOOKS))
redis.call('HSET', KEYS[6], 'in:stored', '0', 'told', '0 0', 'books', us(now))
if here > 0 then redis.call('HSET', KEYS[6], 'in:found', us(here)) end
end
local function difference(values, here)
if not whole(values[1]) then return nil end
local sum = -here
for i = 1, #BOOKS do
local n = values[i] and whole(values[i]) or 0
if i <= 3 then sum = sum + n elseif i > 6 then sum = sum - n end
end
return sum
end
local function acceptbooks()
local values = redis.call('HMGET', KEYS[6], unpack(BOOKS))
local missing, rubbish = difference(values, redis.call('HLEN', KEYS[4])), false
for i = 1, #BOOKS do rubbish = rubbish or (whole(values[i] or '0') or 1e15) >= 1e15 end
if not missing or rubbish then openbooks() end
if rubbish or not missing or missing == 0 then return missing or 0 end
local i = missing > 0 and #BOOKS or 2
redis.call('HSET', KEYS[6], BOOKS[i], us((whole(values[i]) or 0) + math.abs(missing)))
return missing
end
guard(redis.call('HLEN', KEYS[4]))
redis.call('ZREM', KEYS[5], '')
before = us(acceptbooks()) .. ' ' .. string.sub(loss or '', 1, 60)
redis.call('HDEL', KEYS[6], 'loss')
elseif word == 'loss' then
redis.call('ZREM', KEYS[5], '')
local from, at, n = tonumber(value), tonumber(ARGV[5]), tonumber(ARGV[6])
local since, last, sum = string.match(loss or '', '^(%d+) (%d+) (%d+)$')
since, last, sum = whole(since) or from, whole(last) or 0, whole(sum) or 0
if ARGV[7] == '1' and from < last then sum = math.max(sum, n) else sum = sum + n end
mark('loss', us(math.min(since, from)) .. ' ' .. us(math.max(last, at)) .. ' ' .. us(math.min(sum, 1e15)))
else
redis.call('ZREM', KEYS[5], '')
if word == 'lift' then
local function throttledUntil(text)
local said, till = string.match(text or '', '^(%d+) (%d+)$')
said, till = whole(said), whole(till)
if not till or said > now or till - said > 3600000000 or till <= now then return 0 end
return till
end
local till = throttledUntil(throttled)
if till > 0 then before = us(till) end
redis.call('HDEL', KEYS[6], 'throttled')
else
before = override or ''
if value ~= '' or limits then
mark('override', value)
if not limits then mark('limits', '') end
end
end
local since, open = string.match(limited or '', '^(%d+) %d+ (%d+) %d+ [01]$')
if since and (word == 'limits' or before ~= '') then
redis.call('ZADD', KEYS[5], us(now), 'w')
mark('limited', since .. ' ' .. us(whole(armed) or 0) .. ' ' .. open .. ' ' .. us(now) .. ' 0')
end
end
remember(before)
return {us(now), before}
