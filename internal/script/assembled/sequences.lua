-- KEYS: sequence
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local name = ARGV[1]
if name ~= '' then
local last = redis.call('HGET', KEYS[1], name)
if last then return {us(now), '0', name, last} end
return {us(now), '0'}
end
local page = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', 100)
local out = {us(now), page[1]}
for i = 1, #page[2] do out[i + 2] = page[2][i] end
return out
