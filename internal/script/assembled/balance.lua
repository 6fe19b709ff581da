-- KEYS: msg, state
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
local values, here = redis.call('HMGET', KEYS[2], unpack(BOOKS)), redis.call('HLEN', KEYS[1])
local opened, missing = whole(redis.call('HGET', KEYS[2], 'books')) or 1, difference(values, here)
if not missing then opened = 0 end
local out = {us(now), us(redis.call('HLEN', KEYS[2])), us(opened), us(here), us(missing or 0)}
for i = 1, #BOOKS do out[#out + 1] = us(missing and whole(values[i]) or 0) end
return out
