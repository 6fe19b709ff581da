-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, wake, state, done, result, holds, parts, lanes, waiting
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local function whole(text)
if not text or not string.find(text, '^%d+$') then return nil end
return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
local function gate(due, paused) return math.max(due, whole(paused) or 0) end
local function sooner(due, before)
before = whole(before) or 0
return before == 0 or due < before
end
local function unknown(layout)
if not layout or layout == '1' then return nil end
return {err = 'DQLAYOUT ' .. string.sub(string.gsub(layout, '[^!-~]', '?'), 1, 20)}
end
local noted = {stored = 0, longest = 0, looked = 0, spent = 0}
local LOOKS = 1000
local function rescore(n)
for _, range in ipairs({{'-inf', '(0'}, {'(0', '+inf'}}) do
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[16], range[1], range[2], 'LIMIT', 0, n)) do
redis.call('ZADD', KEYS[16], 0, member)
end
end
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
local WIDTH = 100
local NAME = 200
local function laneof(envelope)
if string.byte(envelope, 1) ~= 2 then return nil end
local i, size = fieldat(envelope, 136)
local width = i and size > 3 and size <= 3 + NAME and whole(string.sub(envelope, i, i + 2)) or 0
local lane = i and string.sub(envelope, i + 3, i + size - 1)
if width >= 1 and width <= WIDTH and not string.find(lane, '\0', 1, true) then return lane, width end
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
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local TURN = 4
local GONE = 500
local made
local function lanes()
if made then return made end
local function inlane(lane)
local all, waits, to = '[' .. lane .. '\0', '[' .. lane .. '\0\1', '(' .. lane .. '\1'
local found = redis.call('ZRANGEBYLEX', KEYS[16], all, to, 'LIMIT', 0, 2)
local first, second = readlane(lane, found[1]), readlane(lane, found[2])
if not first or not first.turn then return 0, WIDTH, first end
if not second or not second.turn then return 1, first.width, second end
found = redis.call('ZRANGEBYLEX', KEYS[16], waits, to, 'LIMIT', 0, 1)
return redis.call('ZLEXCOUNT', KEYS[16], all, '(' .. lane .. '\0\1'), first.width, readlane(lane, found[1])
end
local function turnsof(lane, most)
local turns = redis.call('ZRANGEBYLEX', KEYS[16], '[' .. lane .. '\0', '(' .. lane .. '\0\1', 'LIMIT', 0, most or 2 * WIDTH)
for i = 1, #turns do turns[i] = readlane(lane, turns[i]) end
return turns
end
local function hasturn(lane, tag, width) return lane .. '\0\0' .. string.format('%03d', width) .. tag end
local function waits(lane, due, tag, width)
local n, id = split(tag)
return lane .. '\0' .. string.format('%016.0f%s %d %03d', due, id, n, width)
end
local function moveto(tag, due)
if (split(tag)) == 1 then redis.call('ZADD', KEYS[1], us(due), tag) else redis.call('ZADD', KEYS[5], us(due), tag) end
noted.first = math.min(noted.first or due, due)
end
local function moveout(tag)
if (split(tag)) == 1 then redis.call('ZREM', KEYS[1], tag) else redis.call('ZREM', KEYS[5], tag) end
end
local function idle(lane, after)
local turns, tags, found = turnsof(lane), {}, {}
noted.looked = noted.looked + #turns
if not turns[1] then return found end
for i = 1, #turns do tags[i] = turns[i].tag end
local firsts, others = redis.call('ZMSCORE', KEYS[1], unpack(tags)), redis.call('ZMSCORE', KEYS[5], unpack(tags))
for i, turn in ipairs(turns) do
local due, _, id = scored(firsts[i] or others[i]), split(turn.tag)
turn.due, turn.id = due, id
if due and due > after then found[#found + 1] = turn end
end
table.sort(found, function(a, b) return a.due < b.due or a.due == b.due and a.id < b.id end)
return found
end
local function takeback(lane, turn)
moveout(turn.tag)
redis.call('ZREM', KEYS[16], turn.member)
redis.call('ZADD', KEYS[16], 0, waits(lane, turn.due, turn.tag, turn.width))
redis.call('ZADD', KEYS[17], us(turn.due), turn.tag)
noted.looked = noted.looked + TURN
end
local gone = 0
local function fill(lane, me)
local n, least, next = inlane(lane)
local others
while next and gone < 2 * GONE do
local most = math.min(least, next.width)
if n >= most then
others = next.id == me and (others or idle(lane, now)) or {}
local last = table.remove(others)
if not last or last.due < next.due or last.due == next.due and last.id < me then return true end
takeback(lane, last)
else
local there = redis.call('HEXISTS', KEYS[7], next.id) == 1
if not there and gone >= GONE then return false end
redis.call('ZREM', KEYS[16], next.member)
if redis.call('ZREM', KEYS[17], next.tag) == 1 and there then
redis.call('ZADD', KEYS[16], 0, hasturn(lane, next.tag, next.width))
noted.given = noted.given or next.due <= now
moveto(next.tag, math.max(next.due, now))
noted.looked = noted.looked + TURN
if n + 1 >= most then return true end
else
gone = gone + 1
if not there then redis.call('HDEL', KEYS[8], next.id) end
end
end
n, least, next = inlane(lane)
end
return not next
end
local function enter(lane, width, tag, due)
local n, least, next = inlane(lane)
if (n > 0 and least or next and next.width or width) ~= width then noted.uneven = lane end
if not next and n < math.min(least, width) then
redis.call('ZADD', KEYS[16], 0, hasturn(lane, tag, width))
noted.given = noted.given or due <= now
return moveto(tag, math.max(due, now))
end
redis.call('ZADD', KEYS[16], 0, waits(lane, due, tag, width))
redis.call('ZADD', KEYS[17], us(due), tag)
local _, id = split(tag)
if n == 0 or not next or next.due > due or next.due == due and next.id > id then fill(lane, id) end
end
made = {inlane = inlane, turnsof = turnsof, hasturn = hasturn, waits = waits, moveto = moveto, moveout = moveout, idle = idle,
takeback = takeback, fill = fill, enter = enter}
return made
end
local function isdead(id) return redis.call('ZSCORE', KEYS[6], id) or redis.call('ZSCORE', KEYS[12], id) end
local listed
local function leased(tag)
if not listed then
listed = {}
for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
for each in string.gmatch(redis.call('HGET', KEYS[4], name) or '', '[^ ]+') do listed[each] = true end
end
end
return listed[tag]
end
local function turnof(lane, id)
local turns = lanes().turnsof(lane)
noted.looked = noted.looked + #turns
for _, turn in ipairs(turns) do
local _, holder = split(turn.tag)
if holder == id then return turn.member end
end
end
local function belongs(member, lane)
local l, says = lanes(), readlane(lane, member)
local tag = says.tag
local _, id = split(tag)
local own, width = laneof(redis.call('HGET', KEYS[7], id) or '')
if own ~= lane or isdead(id) then return false end
local due = redis.call('ZSCORE', KEYS[17], tag)
if not says.turn then return due and member == l.waits(lane, scored(due), tag, width) end
due = due or redis.call('ZSCORE', KEYS[17], tagof(id, redis.call('HGET', KEYS[8], id)))
return not due and member == l.hasturn(lane, tag, width) and turnof(lane, id) == member
end
local function turnsin(lane)
local turns, all = lanes().turnsof(lane), {}
noted.looked = noted.looked + #turns
for i = 1, #turns do all[i] = turns[i].member end
return table.concat(all, ' '), #turns, turns[1] and turns[1].width or WIDTH
end
local function mendlanes(mend)
function mend.member(member)
local lane = string.sub(member, 1, (string.find(member, '\0', 1, true) or 1) - 1)
if not redis.call('ZSCORE', KEYS[16], member) then
local _, id = split(readlane(lane, member).tag)
member = lane ~= '' and turnof(lane, id)
end
if not member or lane ~= '' and belongs(member, lane) then return 'sound' end
redis.call('ZREM', KEYS[16], member)
if lane ~= '' then lanes().fill(lane) end
return 'done'
end
function mend.laned(id)
local envelope, tag, l = redis.call('HGET', KEYS[7], id), tagof(id, redis.call('HGET', KEYS[8], id)), lanes()
if not envelope then return 'sound' end
local lane, width = laneof(envelope)
local due = redis.call('ZSCORE', KEYS[17], tag)
if not lane and due then
redis.call('ZREM', KEYS[17], tag)
if not isdead(id) then l.moveto(tag, scored(due)) end
return 'done'
elseif not lane or isdead(id) or not due and turnof(lane, id)
or due and redis.call('ZSCORE', KEYS[16], l.waits(lane, scored(due), tag, width)) then
return 'sound'
end
due = due or redis.call('ZSCORE', KEYS[1], tag) or redis.call('ZSCORE', KEYS[5], tag)
if due then
redis.call('ZREM', KEYS[17], tag)
redis.call('ZREM', KEYS[1], tag)
redis.call('ZREM', KEYS[5], tag)
l.enter(lane, width, tag, scored(due))
elseif redis.call('LPOS', KEYS[2], tag) or leased(tag) then
redis.call('ZADD', KEYS[16], 0, l.hasturn(lane, tag, width))
else
return 'sound'
end
return 'done'
end
function mend.lane(lane)
local l = lanes()
local before, n, most = turnsin(lane)
local idle = n > most and l.idle(lane, 0) or {}
for _ = most + 1, n do
if idle[1] then l.takeback(lane, table.remove(idle)) end
end
local _, _, next = l.inlane(lane)
l.fill(lane, next and next.id)
return turnsin(lane) == before and 'sound' or 'done'
end
end
local function keyof(envelope, head)
head = head or 17
local hi, lo = string.byte(envelope, head + 1, head + 2)
if not lo or hi * 256 + lo == 0 then return '' end
return string.sub(envelope, head + 3, head + 2 + hi * 256 + lo)
end
local function holdends(key)
local ends = math.floor(tonumber(redis.call('ZSCORE', KEYS[14], key) or 0) or 0)
if ends > now and ends <= now + 31536000000000 then return ends end
end
local function drop(remove)
return function(tag)
local id = string.match(tag, '^.*:(.*)$') or tag
if redis.call('HEXISTS', KEYS[7], id) == 1 or remove(tag) == 0 then return 'sound' end
redis.call('HDEL', KEYS[8], id)
return 'done'
end
end
local function mendstructures(mend)
mend.pending = drop(function(tag) return redis.call('ZREM', KEYS[1], tag) end)
mend.ready = drop(function(tag) return redis.call('LREM', KEYS[2], 0, tag) end)
mend.retry = drop(function(tag) return redis.call('ZREM', KEYS[5], tag) end)
mend.waiting = drop(function(tag) return redis.call('ZREM', KEYS[17], tag) end)
mend.garbage = drop(function(tag) return redis.call('ZREM', KEYS[6], tag) end)
mend.done = drop(function(tag) return redis.call('ZREM', KEYS[12], tag) end)
function mend.unack(member)
if redis.call('HEXISTS', KEYS[4], member) == 1 or redis.call('ZREM', KEYS[3], member) == 0 then return 'sound' end
redis.call('HDEL', KEYS[4], member .. '#')
return 'done'
end
function mend.lease(field)
local name = string.match(field, '^(.*)#$') or field
if redis.call('ZSCORE', KEYS[3], name) or redis.call('HDEL', KEYS[4], name, name .. '#') == 0 then return 'sound' end
return 'done'
end
function mend.key(key)
local id = redis.call('HGET', KEYS[9], key)
if not id or string.sub(id, 1, 6) == 'acked:' and redis.call('ZSCORE', KEYS[14], key) then return 'sound' end
local envelope = redis.call('HGET', KEYS[7], id)
if envelope and not isdead(id) and keyof(envelope) == key then return 'sound' end
if holdends(key) then
redis.call('HSET', KEYS[9], key, 'acked:' .. id)
else
redis.call('HDEL', KEYS[9], key)
end
return 'done'
end
end
local function failure(record)
local failures, losses, when, mark, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (\31?)(.*)$')
return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when), mark == '\31'
end
local function setfailure(id, n, counts, errors, ended)
local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. errors
redis.call('HSET', KEYS[8], id, record)
return record
end
local function superseded(record) return record and string.find(record, '^%d+ %d+ %d+ %d+ \31') ~= nil end
local remade
local function relanes()
if remade then return remade end
local l = lanes()
local function vacate(lane, width, id, tag)
local ended = redis.call('ZREM', KEYS[16], l.hasturn(lane, id, width)) == 1
or tag ~= id and tag ~= '' and redis.call('ZREM', KEYS[16], l.hasturn(lane, tag, width)) == 1
local turns = ended and {} or l.turnsof(lane)
noted.looked = noted.looked + #turns
for _, turn in ipairs(turns) do
local _, holder = split(turn.tag)
if holder == id then ended = redis.call('ZREM', KEYS[16], turn.member) == 1 end
end
if ended then l.fill(lane) end
end
local function leavewaiting(lane, width, tag, due)
redis.call('ZREM', KEYS[17], tag)
redis.call('ZREM', KEYS[16], l.waits(lane, due, tag, width))
local n, least, next = l.inlane(lane)
if next and n < math.min(least, next.width) then l.fill(lane) end
end
local function shift(lane, width, place, tag, id, before, due)
if not lane then
redis.call('ZREM', KEYS[17], tag)
return l.moveto(tag, due)
elseif place == 'waiting' then
leavewaiting(lane, width, tag, before)
return l.enter(lane, width, tag, due)
end
if place == 'ready' then redis.call('LREM', KEYS[2], 1, tag) else l.moveout(tag) end
if due <= before and not redis.call('ZSCORE', KEYS[16], l.hasturn(lane, tag, width)) then return l.moveto(tag, due) end
vacate(lane, width, id, tag)
l.enter(lane, width, tag, due)
end
local function outof(envelope, place, tag, id, score)
local lane, width = laneof(envelope)
if not lane and place == 'waiting' then redis.call('ZREM', KEYS[17], tag) end
if not lane or place == 'garbage' or place == 'done' then return end
if place == 'waiting' then leavewaiting(lane, width, tag, scored(score)) else vacate(lane, width, id, tag) end
end
local function relane(envelope, other, place, tag, id, before, due)
local lane, width = laneof(envelope)
local next, most = laneof(other)
if lane == next and width == most then
if due and due ~= before then shift(lane, width, place, tag, id, before, due) end
return
end
due = due or tag == id and place == 'pending' and whole(string.sub(envelope, 2, 17)) or before
if place == 'ready' then redis.call('LREM', KEYS[2], 1, tag) elseif place ~= 'waiting' then l.moveout(tag) end
outof(envelope, place, tag, id, us(before))
if next then l.enter(next, most, tag, due) else l.moveto(tag, due) end
end
remade = {vacate = vacate, shift = shift, outof = outof, relane = relane, enter = l.enter}
return remade
end
local function placed(tag)
return redis.call('ZSCORE', KEYS[1], tag) or redis.call('ZSCORE', KEYS[5], tag)
or redis.call('ZSCORE', KEYS[6], tag) or redis.call('ZSCORE', KEYS[12], tag) or redis.call('ZSCORE', KEYS[17], tag)
or redis.call('LPOS', KEYS[2], tag)
end
local function mendmessages(mend)
function mend.record(tag)
if redis.call('HEXISTS', KEYS[7], tag) == 0 and redis.call('HDEL', KEYS[8], tag) == 1 then return 'done' end
local n, id = split(tag)
local record = redis.call('HGET', KEYS[8], id)
local current = tagof(id, record)
if tonumber(delivery(record)) <= n then return 'sound' end
if isdead(id) or placed(current) or leased(current) then
local n = redis.call('ZREM', KEYS[1], tag) + redis.call('ZREM', KEYS[5], tag) + redis.call('ZREM', KEYS[17], tag)
return n + redis.call('LREM', KEYS[2], 1, tag) > 0 and 'done' or 'sound'
elseif not placed(tag) then
return 'sound'
end
if n > 1 then setfailure(id, us(n), '0 0', '') else redis.call('HDEL', KEYS[8], id) end
return 'done'
end
function mend.place(id)
local envelope, record = redis.call('HGET', KEYS[7], id), redis.call('HGET', KEYS[8], id)
local tag = tagof(id, record)
if not envelope or placed(id) or placed(tag) or leased(tag) then return 'sound' end
local key, n = keyof(envelope), delivery(record)
local failures, losses, errors = failure(record)
local counts = us(failures) .. ' ' .. us(losses)
local holder = key ~= '' and redis.call('HGET', KEYS[9], key)
local acked = holder and string.match(holder, '^acked:(.*)$')
if acked and holdends(key) then
holder = acked
elseif holder and redis.call('HEXISTS', KEYS[7], holder) == 0 then
holder = nil
end
local other = holder and holder ~= id and 'message ' .. holder .. ' has its key'
if not other and superseded(record) then other = 'another send took its key' end
if other then
redis.call('ZADD', KEYS[6], us(now), id)
relanes().outof(envelope, 'unack', tag, id)
if errors ~= '' and string.sub(errors, 1, 1) ~= '\30' then errors = '\30' .. '0 0 ' .. errors end
errors = string.match(errors, '^(' .. string.rep('\30[^\30]*', 4) .. ')\30') or errors
setfailure(id, n, counts, '\30' .. us(now) .. ' 0 found in no structure by doctor, and ' .. other .. errors)
return 'garbage'
end
n = us(n + 1)
local due, lane, width = whole(string.sub(envelope, 2, 17)) or now, laneof(envelope)
local next = math.max(now, due)
setfailure(id, n, counts, errors)
if lane and not turnof(lane, id) then
lanes().enter(lane, width, n .. ':' .. id, due)
else
redis.call('ZADD', KEYS[5], us(next), n .. ':' .. id)
noted.first = math.min(noted.first or next, next)
end
if key ~= '' then redis.call('HSET', KEYS[9], key, id) end
mend.listed(id)
return 'done'
end
end
local function leftkey(envelope)
local i, size = fieldat(envelope, 129)
return i and size > 11 and string.sub(envelope, i + 11, i + size - 1) or ''
end
local LEFT = 100
local function relist(key, id)
local before = redis.call('HGET', KEYS[15], ':' .. key) or ''
local ids, there = {}, {}
for other in string.gmatch(string.sub(before, 1, 1000 * 37) .. ' ' .. id, '%S+') do
local envelope = not there[other] and redis.call('HGET', KEYS[7], other)
local live = envelope and not redis.call('ZSCORE', KEYS[6], other) and not redis.call('ZSCORE', KEYS[12], other)
if live and leftkey(envelope) == key and #ids < LEFT then ids[#ids + 1] = other end
there[other] = true
end
local list = table.concat(ids, ' ')
if list == before and (list ~= '' or redis.call('HEXISTS', KEYS[15], ':' .. key) == 0) then return 'sound' end
if list == '' then
redis.call('HDEL', KEYS[15], ':' .. key)
else
redis.call('HSET', KEYS[15], ':' .. key, list)
redis.call('HSET', KEYS[11], 'parts', '1')
end
return 'done'
end
local function mendgroups(mend)
function mend.part(field)
if redis.call('HEXISTS', KEYS[7], string.match(field, '^[^:]*')) == 1 or redis.call('HDEL', KEYS[15], field) == 0 then return 'sound' end
return 'done'
end
function mend.list(key) return relist(key, '') end
function mend.listed(id)
local key = leftkey(redis.call('HGET', KEYS[7], id) or '')
return key == '' and 'sound' or relist(key, id)
end
end
local armed, pause, layout = unpack(redis.call('HMGET', KEYS[11], 'armed', 'pause', 'layout'), 1, 3)
local alarm = whole(armed) or 0
local refusal = unknown(layout)
if refusal then return refusal end
redis.call('ZCARD', KEYS[1])
redis.call('LLEN', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('HLEN', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('ZCARD', KEYS[6])
redis.call('HLEN', KEYS[7])
redis.call('HLEN', KEYS[8])
redis.call('HLEN', KEYS[9])
redis.call('ZCARD', KEYS[10])
redis.call('ZCARD', KEYS[12])
redis.call('HLEN', KEYS[13])
redis.call('ZCARD', KEYS[14])
redis.call('HLEN', KEYS[15])
redis.call('ZCARD', KEYS[16])
redis.call('ZCARD', KEYS[17])
redis.call('ZREM', KEYS[3], '')
rescore(1000)
local mend = {}
mendstructures(mend)
mendgroups(mend)
mendmessages(mend)
mendlanes(mend)
function mend.result(id)
if redis.call('ZSCORE', KEYS[12], id) or redis.call('HDEL', KEYS[13], id) == 0 then return 'sound' end
return 'done'
end
function mend.alarm(member)
local score = redis.call('ZSCORE', KEYS[10], member)
if not score or member == 'w' and tonumber(score) == alarm then return 'sound' end
if member == 'w' and alarm > 0 then
redis.call('ZADD', KEYS[10], us(alarm), 'w')
else
redis.call('ZREM', KEYS[10], member)
end
return 'done'
end
local words = {}
for i = 1, #ARGV, 2 do
if noted.looked >= LOOKS then break end
words[#words + 1] = mend[ARGV[i]](ARGV[i + 1])
end
if noted.first then
local first = gate(noted.first, pause)
if sooner(first, armed) then
redis.call('ZADD', KEYS[10], us(first), 'w')
redis.call('HSET', KEYS[11], 'armed', us(first))
end
end
return words
