-- KEYS: place, msg, fail, parts
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
local function fieldat(envelope, wanted)
local version, hi, lo = string.byte(envelope, 1), string.byte(envelope, 18, 19)
if version ~= 2 or not lo then return nil end
local i, before = 20 + hi * 256 + lo, 256
while true do
local kind, size, scale = string.byte(envelope, i), 0, 1
if not kind or kind < wanted or kind >= before then return nil end
repeat
i = i + 1
local digit = string.byte(envelope, i)
if not digit or scale > 1e12 then return nil end
size, scale = size + digit % 128 * scale, scale * 128
until digit < 128
i, before = i + 1, kind
if kind == wanted then
if #envelope < i + size - 1 then return nil end
return i, size
end
i = i + size
end
end
local PARTS = 1000
local function partsof(envelope)
if string.byte(envelope, 1) ~= 2 then return 0, 0 end
local i, size = fieldat(envelope, 129)
if not i or size < 11 then return 0, 0 end
local n, bytes = string.match(string.sub(envelope, i, i + 10), '^(%d%d%d%d)(%d%d%d%d%d%d%d)$')
n = tonumber(n) or 0
if n < 1 or n > PARTS then return 0, 0 end
return n, tonumber(bytes), i
end
local function weight(envelope)
local n, bytes = partsof(envelope)
if n < 2 then return #envelope end
return #envelope + bytes + 256 * n
end
local function countof(envelope)
local i, size = fieldat(envelope, 134)
return size == 10 and whole(string.sub(envelope, i, i + 9)) or 0
end
local function countdownof(id)
local value = redis.pcall('HGET', KEYS[4], id .. ':0')
local counted, n = string.match(type(value) ~= 'table' and value or '', '^(%d+) (%d+)$')
return whole(counted), whole(n)
end
local function acksleft(id)
local counted, n = countdownof(id)
return n and math.max(n - counted, 0)
end
local function missingof(id, envelope)
local n = countof(envelope)
return n > 0 and (acksleft(id) or n) or nil
end
local function split(tag)
local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
if n and n ~= '1' and #n < 10 then return tonumber(n), id end
return 1, tag
end
local REPLY = 524288
local most = tonumber(ARGV[9] or '')
local want, from, to, score, last, back = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1'
local function before(a, b)
for i = 1, math.min(#a, #b) do
local x, y = string.byte(a, i), string.byte(b, i)
if x ~= y then return x < y end
end
return #a < #b
end
local function rankOfLast()
local low, high = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score), redis.call('ZCOUNT', KEYS[1], '-inf', score)
local ends = high
while low < high do
local mid = math.floor((low + high) / 2)
if before(redis.call('ZRANGE', KEYS[1], mid, mid)[1], last) then low = mid + 1 else high = mid end
end
return low, low < ends and redis.call('ZRANGE', KEYS[1], low, low)[1] == last
end
local low, page, high = 0, {}
if ARGV[1] == 'list' then
high = redis.call('LLEN', KEYS[1]) - 1
if last ~= '' then
local behind = whole(score) or 0
local at = redis.call('LPOS', KEYS[1], last, 'RANK', back and 1 or -1) or back and behind or high - behind
if back then high = math.min(high, at - 1) else low = math.max(at + 1, 0) end
end
local n = math.min(want, high - low + 1)
if n > 0 then
local first = back and high - n + 1 or low
for i, tag in ipairs(redis.call('LRANGE', KEYS[1], first, first + n - 1)) do
local to = back and n + 1 - i or i
page[2 * to - 1], page[2 * to] = tag, '0'
end
end
else
if from ~= '-inf' then
low = redis.call('ZCARD', KEYS[1]) - redis.call('ZCOUNT', KEYS[1], from, '+inf')
end
high = redis.call('ZCOUNT', KEYS[1], '-inf', to) - 1
local due = ARGV[8] ~= '' and redis.call('ZCOUNT', KEYS[1], '-inf', us(now))
if ARGV[8] == 'due' then high = math.min(high, due - 1) end
if ARGV[8] == 'later' then low = math.max(low, due) end
if score ~= '' then
local rank, there = rankOfLast()
if back then high = math.min(high, rank - 1) else low = math.max(low, there and rank + 1 or rank) end
end
local n = math.min(want, high - low + 1)
if n > 0 and back then
local all = redis.call('ZCARD', KEYS[1])
page = redis.call('ZREVRANGE', KEYS[1], all - 1 - high, all - 2 - high + n, 'WITHSCORES')
elseif n > 0 then
page = redis.call('ZRANGE', KEYS[1], low, low + n - 1, 'WITHSCORES')
end
end
local out, size = {us(now), math.max(high - low + 1, 0), 0}, 0
for i = 1, #page, 2 do
local _, id = split(page[i])
local length, envelope = redis.call('HSTRLEN', KEYS[2], id), nil
if most and length > most then envelope, length = '\0large ' .. us(length), 0 end
size = size + length
if size > REPLY and i > 1 then break end
out[3] = out[3] + 1
if not envelope then
envelope = redis.call('HGET', KEYS[2], id) or ''
size = size + weight(envelope) - #envelope
end
out[#out + 1], out[#out + 2], out[#out + 3] = page[i], page[i + 1], envelope
out[#out + 1] = redis.call('HGET', KEYS[3], id) or ''
local missing = missingof(id, envelope)
out[#out + 1] = missing and us(missing) or ''
end
return out
