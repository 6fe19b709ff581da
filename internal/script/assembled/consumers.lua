-- KEYS: consumers
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 25)
local out = {us(now), page[1]}
for i = 1, #page[2] do out[i + 2] = page[2][i] end
return out
