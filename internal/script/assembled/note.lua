-- KEYS: journal
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
local MOST = 1000
local what, token, made, text = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local from, to = made, made
if made == '' then from, to = us(now - tonumber(ARGV[4]) - 1000000), '+inf' end
local old, said, wrote, before = nil, '', us(now), ''
if made ~= '' or ARGV[4] ~= '0' then
local page = redis.call('ZRANGEBYSCORE', KEYS[1], from, to, 'WITHSCORES')
for i = 1, #page, 2 do
local name, word, at, rest = string.match(page[i], '^(%x+) (%l+) (%d+) (.*)$')
if name == token then old, said, made, wrote, before = page[i], word, us(scored(page[i + 1])), at, rest end
end
else
redis.call('ZCARD', KEYS[1])
end
if what == 'stop' and not old then return {us(now), '0', ''} end
local word = what
if what == 'stop' or said == 'done' then text = before else wrote = us(now) end
if said == 'done' or said == 'stop' and what == 'runs' then word = said end
if old and what ~= 'stop' and said == word and text == before then return {us(now), made, word} end
redis.call('ZREM', KEYS[1], old or '')
if made == '' then made = us(now) end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -MOST)
redis.call('ZADD', KEYS[1], made, token .. ' ' .. word .. ' ' .. wrote .. ' ' .. text)
if ARGV[6] == '0' then redis.call('PERSIST', KEYS[1]) else redis.call('EXPIRE', KEYS[1], ARGV[6]) end
return {us(now), made, what == 'stop' and said or word}
