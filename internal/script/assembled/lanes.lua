-- KEYS: pending, ready, retry, garbage, msg, fail, done, lanes, waiting
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
local function split(tag)
local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
if n and n ~= '1' and #n < 10 then return tonumber(n), id end
return 1, tag
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
if place == 'retry' then return redis.call('ZSCORE', KEYS[3], tag) or nil end
if place == 'waiting' then return redis.call('ZSCORE', KEYS[9], tag) or nil end
if place == 'garbage' then return redis.call('ZSCORE', KEYS[4], id) or nil end
if place == 'done' then return redis.call('ZSCORE', KEYS[7], id) or nil end
end
local function locate(tag, id)
for _, place in ipairs({'pending', 'retry', 'garbage', 'done', 'waiting', tag ~= id and 'ready' or nil}) do
local score = scorein(place, tag, id)
if score and place == 'done' and scored(score) <= now then return nil end
if score then return place, score end
end
return 'unack', ''
end
local WIDTH = 100
local function whole(text)
if not text or not string.find(text, '^%d+$') then return nil end
return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
local function readlane(lane, member)
local text = member and string.sub(member, #lane + 2)
if not text then return nil end
if string.byte(text, 1) == 0 then
return {turn = true, width = math.max(whole(string.sub(text, 2, 4)) or 1, 1), tag = string.sub(text, 5), member = member}
end
local id, n, width = string.match(text, '^(.*) (%d+) (%d%d%d)$', 17)
if not id then id, n = '', '1' end
local due = whole(string.sub(text, 1, 16)) or 0
return {due = due, id = id, tag = n == '1' and id or n .. ':' .. id, width = math.max(whole(width) or 1, 1), member = member}
end
local function inlane(lane)
local all, waits, to = '[' .. lane .. '\0', '[' .. lane .. '\0\1', '(' .. lane .. '\1'
local found = redis.call('ZRANGEBYLEX', KEYS[8], all, to, 'LIMIT', 0, 2)
local first, second = readlane(lane, found[1]), readlane(lane, found[2])
if not first or not first.turn then return 0, WIDTH, first end
if not second or not second.turn then return 1, first.width, second end
found = redis.call('ZRANGEBYLEX', KEYS[8], waits, to, 'LIMIT', 0, 1)
return redis.call('ZLEXCOUNT', KEYS[8], all, '(' .. lane .. '\0\1'), first.width, readlane(lane, found[1])
end
local function turnsof(lane, most)
local turns = redis.call('ZRANGEBYLEX', KEYS[8], '[' .. lane .. '\0', '(' .. lane .. '\0\1', 'LIMIT', 0, most or 2 * WIDTH)
for i = 1, #turns do turns[i] = readlane(lane, turns[i]) end
return turns
end
local only, from, want = ARGV[1], ARGV[2], tonumber(ARGV[3])
local out = {us(now), ''}
local searches = math.floor(1000000 / math.max(redis.call('LLEN', KEYS[2]), 1))
local function turn(tag)
local _, id = split(tag)
local record = redis.call('HGET', KEYS[6], id) or ''
tag = tagof(id, record)
if tag ~= id then searches = searches - 1 end
if searches < 0 then return false end
local state, at = 'gone', '0'
if redis.call('HEXISTS', KEYS[5], id) == 1 then state, at = locate(tag, id) end
at = at ~= '' and scored(at) or 0
if (state == 'pending' or state == 'retry') and at <= now then state = 'ready' end
out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = id, state or 'gone', us(at), record
return true
end
local function add(lane, most)
local n, least, next = inlane(lane)
if n == 0 and not next then return end
local turns = turnsof(lane, most)
local width = math.min(least, next and next.width or WIDTH)
local to = only ~= '' and from ~= '' and '(' .. lane .. '\0' .. from or '(' .. lane .. '\1'
local all = redis.call('ZLEXCOUNT', KEYS[8], '[' .. lane .. '\0', to)
local at = #out
out[at + 1], out[at + 2], out[at + 3], out[at + 4], out[at + 5] = lane, width, n, all - n, us(next and next.due or 0)
out[at + 6] = 0
for i = 1, #turns do
if turn(turns[i].tag) then out[at + 6] = i else return end
end
end
if only ~= '' then
add(only, WIDTH)
return out
end
local min = from == '' and '-' or '(' .. from .. '\1'
for _ = 1, want do
local member = redis.call('ZRANGEBYLEX', KEYS[8], min, '+', 'LIMIT', 0, 1)[1]
if not member then
out[2] = ''
break
end
local lane = string.sub(member, 1, (string.find(member, '\0', 1, true) or 0) - 1)
if lane ~= '' then
add(lane, 1)
out[2] = lane
end
min = '(' .. lane .. '\1'
end
return out
