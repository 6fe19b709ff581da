-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, done, parts, waiting
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
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
local function whole(text)
if not text or not string.find(text, '^%d+$') then return nil end
return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
local function countof(envelope)
local i, size = fieldat(envelope, 134)
return size == 10 and whole(string.sub(envelope, i, i + 9)) or 0
end
local function countdownof(id)
local value = redis.pcall('HGET', KEYS[10], id .. ':0')
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
local function delivery(record)
local n = string.match(record or '', '^([1-9]%d*) ')
return n and #n < 10 and n or '1'
end
local function isheld(id, n)
return redis.call('HEXISTS', KEYS[7], id) == 1 and tonumber(delivery(redis.call('HGET', KEYS[8], id))) <= n
end
local function howmanyheld()
if redis.call('HLEN', KEYS[4]) == 0 then return 0 end
local held = redis.call('HLEN', KEYS[7]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
- redis.call('ZCARD', KEYS[5]) - redis.call('ZCARD', KEYS[6]) - redis.call('ZCARD', KEYS[9])
- redis.call('ZCARD', KEYS[11])
return math.max(held, 0)
end
local REPLY, LOOKS = 524288, 20000
local most, want = tonumber(ARGV[9] or ''), tonumber(ARGV[2])
local cursor = string.match(ARGV[5], '^%d+$') or '0'
local lease, last = string.match(ARGV[6], '^(.*) (%S*)$')
local function part(cursor)
local got, names, ends = redis.call('ZSCAN', KEYS[3], cursor, 'COUNT', 1), {}, {}
for i = 1, #got[2], 2 do names[#names + 1], ends[got[2][i]] = got[2][i], got[2][i + 1] end
table.sort(names)
return names, ends, got[1]
end
local function tagsof(name)
local tags, begin = {}, 1
for tag in string.gmatch(redis.call('HGET', KEYS[4], name) or '', '%S+') do
tags[#tags + 1] = tag
if name == lease and tag == last then begin = #tags + 1 end
end
return tags, begin
end
local out, size, looks, full = {us(now), 0, 0}, 0, 0, false
local function add(tag, ends, name)
local n, id = split(tag)
looks = looks + 1
if not isheld(id, n) then return end
if out[3] == want then full = true return end
local length, envelope = redis.call('HSTRLEN', KEYS[7], id), nil
if most and length > most then envelope, length = '\0large ' .. us(length), 0 end
size = size + length
if size > REPLY and out[3] > 0 then full = true return end
out[3] = out[3] + 1
if not envelope then
envelope = redis.call('HGET', KEYS[7], id) or ''
size = size + weight(envelope) - #envelope
end
out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = tag, ends, envelope, redis.call('HGET', KEYS[8], id) or ''
local missing = missingof(id, envelope)
out[#out + 1], out[#out + 2], out[#out + 3] = missing and us(missing) or '', cursor, name
end
repeat
local names, ends, follows = part(cursor)
for _, name in ipairs(names) do
local tags, begin = {}, 1
if not full and not (lease and name < lease) then tags, begin = tagsof(name) end
for i = begin, #tags do
if not full then add(tags[i], ends[name], name) end
full = full or looks >= LOOKS
end
looks = looks + 1
end
lease = nil
if not full then cursor = follows end
full = full or looks >= LOOKS and cursor ~= '0'
until full or cursor == '0'
out[2] = full and (out[3] > 0 or want == 0) and math.max(out[3] + 1, howmanyheld()) or out[3]
return out
