-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, done, result, holds, parts, waiting
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local function scored(score)
if not score then return nil end
local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
local function keyof(envelope, head)
head = head or 17
local hi, lo = string.byte(envelope, head + 1, head + 2)
if not lo or hi * 256 + lo == 0 then return '' end
return string.sub(envelope, head + 3, head + 2 + hi * 256 + lo)
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
local function partnames(id, n, from)
local names = {}
for i = from or 2, n do names[#names + 1] = id .. ':' .. i end
return names
end
local function weight(envelope)
local n, bytes = partsof(envelope)
if n < 2 then return #envelope end
return #envelope + bytes + 256 * n
end
local function leftkey(envelope)
local i, size = fieldat(envelope, 129)
return i and size > 11 and string.sub(envelope, i + 11, i + size - 1) or ''
end
local LEFT = 100
local function left(key)
local list, ids = redis.pcall('HGET', KEYS[13], ':' .. key), {}
for id in string.gmatch(list and not list.err and list or '', '%S+') do
ids[#ids + 1] = id
if #ids == LEFT then break end
end
return ids
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
local value = redis.pcall('HGET', KEYS[13], id .. ':0')
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
local function delivery(record)
local n = string.match(record or '', '^([1-9]%d*) ')
return n and #n < 10 and n or '1'
end
local function tagof(id, record)
local n = delivery(record)
return n == '1' and id or n .. ':' .. id
end
local function scorein(place, tag, id)
if place == 'pending' then return redis.call('ZSCORE', KEYS[1], tag) or nil end
if place == 'ready' then return redis.call('LPOS', KEYS[2], tag) and '0' or nil end
if place == 'retry' then return redis.call('ZSCORE', KEYS[5], tag) or nil end
if place == 'waiting' then return redis.call('ZSCORE', KEYS[14], tag) or nil end
if place == 'garbage' then return redis.call('ZSCORE', KEYS[6], id) or nil end
if place == 'done' then return redis.call('ZSCORE', KEYS[10], id) or nil end
end
local function locate(tag, id)
for _, place in ipairs({'pending', 'retry', 'garbage', 'done', 'waiting', tag ~= id and 'ready' or nil}) do
local score = scorein(place, tag, id)
if score and place == 'done' and scored(score) <= now then return nil end
if score then return place, score end
end
return 'unack', ''
end
local function leaseof(tag)
local leases, bytes = redis.call('ZRANGE', KEYS[3], 0, 5000, 'WITHSCORES'), 0
for i = 1, #leases, 2 do
if i > 10000 or bytes > 4194304 then return '0' end
local tags = redis.call('HGET', KEYS[4], leases[i]) or ''
if string.find(' ' .. tags .. ' ', ' ' .. tag .. ' ', 1, true) then return leases[i + 1] end
bytes = bytes + #tags
end
end
local function holdends(key)
local ends = math.floor(tonumber(redis.call('ZSCORE', KEYS[12], key) or 0) or 0)
if ends > now and ends <= now + 31536000000000 then return ends end
end
local most = tonumber(ARGV[3] or '')
local function look(id, key)
local size = most and redis.call('HSTRLEN', KEYS[7], id) or 0
local envelope = most and size > most and '' or redis.call('HGET', KEYS[7], id)
if not envelope or key ~= '' and envelope ~= '' and keyof(envelope) ~= key and leftkey(envelope) ~= key then return nil end
if most and envelope ~= '' then size = weight(envelope) end
local large = most and size > most
local record = redis.call('HGET', KEYS[8], id)
local tag = tagof(id, record)
local state, at = locate(tag, id)
if state == 'unack' then at = leaseof(tag) end
at = scored(at)
if (state == 'pending' or state == 'retry') and at <= now then state, at = 'ready', 0 end
if not at then return nil end
local result = state == 'done' and redis.call('HGET', KEYS[11], id)
local n = large and 1 or partsof(envelope)
local missing = missingof(id, envelope)
local out = {us(now), id, state, us(at), large and '\0large ' .. us(size) or envelope, record or '', result or '',
missing and us(missing) or '', math.max(n - 1, 0)}
local values = n > 1 and redis.call('HMGET', KEYS[13], unpack(partnames(id, n))) or {}
for i = 1, n - 1 do out[9 + i] = values[i] or '' end
return out, n > 0
end
local key = ARGV[2]
if ARGV[1] ~= 'key' then return (look(key, '')) or {} end
local holder = redis.call('HGET', KEYS[9], key)
local acked = holder and string.match(holder, '^acked:(.*)$')
local ends = acked and holdends(key)
local out, group
if holder and not ends then out, group = look(holder, key) end
if out and not group then return out end
for _, id in ipairs(left(key)) do
if out then out[#out + 1] = id else out = look(id, key) end
end
return out or ends and {us(now), acked, 'hold', us(ends)} or {}
