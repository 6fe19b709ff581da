-- KEYS: journal
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local REPLY, CHUNK = 1048576, 16
local most, last, token, alone = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4] == '1'
local out, size, n = {us(now), '0'}, 0, 0
local upto, passed = '+inf', 0
if last ~= '' then upto, passed = last, redis.call('ZCOUNT', KEYS[1], last, last) end
local from, left = 0, most + passed + 1
while left > 0 do
local page = redis.call('ZREVRANGEBYSCORE', KEYS[1], upto, alone and last or '-inf', 'WITHSCORES', 'LIMIT', from,
math.min(left, CHUNK))
for i = 1, #page, 2 do
local name = string.match(page[i], '^(%x+) ') or ''
from = from + 1
local wanted = last == '' or from > passed or name < token
if alone then wanted = name == token end
if wanted then
n, size = n + 1, size + #page[i]
if n > most or size > REPLY and n > 1 then
out[2] = '1'
return out
end
out[#out + 1], out[#out + 2] = page[i + 1], page[i]
end
end
left = #page == 2 * CHUNK and left - CHUNK or 0
end
return out
