-- KEYS: state, history
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
local KINDS = {'in:stored', 'delivered', 'out:acked', 'failed', 'lost', 'garbage', 'superseded', 'started', 'late', 'latest'}
local HOURS, DAYS = 48, 30
local hour, day = math.floor(now / 3600000000), math.floor(now / 86400000000)
local function merged(i, a, b) return i == #KINDS and math.max(a, b) or a + b end
local function tally(text, numbers)
local sums = {string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')}
for i = 1, #KINDS do sums[i] = us(merged(i, whole(sums[i]) or 0, numbers[i])) end
return table.concat(sums, ' ')
end
local function untold(counts, told)
local stored, acked = string.match(told or '', '^(%d+) (%d+)$')
counts[1] = math.max(counts[1] - (whole(stored) or counts[1]), 0)
counts[3] = math.max(counts[3] - (whole(acked) or counts[3]), 0)
end
local names = {}
for i = 0, HOURS - 1 do names[#names + 1] = us(hour - i) end
for i = 0, DAYS - 1 do names[#names + 1] = 'd' .. us(day - i) end
local values = redis.call('HMGET', KEYS[2], unpack(names))
local counts = redis.call('HMGET', KEYS[1], unpack(KINDS))
for i = 1, #KINDS do counts[i] = whole(counts[i]) or 0 end
untold(counts, redis.call('HGET', KEYS[1], 'told'))
values[1] = tally(values[1], counts)
values[HOURS + 1] = tally(values[HOURS + 1], counts)
local out = {us(now)}
for i = 1, #names do
if values[i] then
out[#out + 1] = names[i]
out[#out + 1] = values[i]
end
end
return out
