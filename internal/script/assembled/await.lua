-- KEYS: garbage, msg, fail, done, result
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
local function whole(text)
if not text or not string.find(text, '^%d+$') then return nil end
return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
local function failure(record)
local failures, losses, when, mark, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (\31?)(.*)$')
return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when), mark == '\31'
end
local REPLY = 1048576
local died, kept = redis.call('ZMSCORE', KEYS[1], unpack(ARGV)), redis.call('ZMSCORE', KEYS[4], unpack(ARGV))
local out, size = {us(now)}, 0
local function newest(errors)
local last = string.match(errors, '^\30([^\30]*)')
return last and (string.match(last, '^%d+ %d+ (.*)$') or last) or errors
end
for i, id in ipairs(ARGV) do
local word, at, text = 'gone', 0, ''
if redis.call('HEXISTS', KEYS[2], id) == 1 then
if kept[i] then
if scored(kept[i]) > now then
local _, _, errors, when, superseded = failure(redis.call('HGET', KEYS[3], id))
word, at, text = 'done', when or 0, redis.call('HGET', KEYS[5], id) or ''
if superseded then word, text = 'superseded', newest(errors) end
end
elseif died[i] then
local _, _, errors = failure(redis.call('HGET', KEYS[3], id))
word, at, text = 'garbage', scored(died[i]), newest(errors)
else
word = 'live'
end
end
size = size + #text
out[#out + 1], out[#out + 2], out[#out + 3] = word, us(at), text
if size > REPLY then break end
end
return out
