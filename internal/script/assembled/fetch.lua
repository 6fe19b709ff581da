-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, wake, state, consumers, history, done, result, held, parts, lanes, waiting
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local number, digits
local function us(n)
if n ~= number then number, digits = n, string.format('%.0f', n) end
return digits
end
local function whole(text)
if not text or not string.match(text, '^%d+$') then return nil end
return math.min(tonumber(text) or 7258118400000000, 7258118400000000)
end
local function scored(score)
if not score then return nil end
local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
local field = 'call:' .. ARGV[1]
local STALE = 'DQSTALE a later call of this caller was carried out'
local function recall(saved)
if not saved then return nil end
local n, at, reply = string.match(saved, '^(%d+) (%d+) (.*)$')
if not n then return nil end
local call = tonumber(ARGV[2])
if whole(n) < call then return nil end
if whole(n) > call then return false end
return reply, at
end
local function guard() end
local marks = {}
local function mark(name, value)
marks[#marks + 1] = name
marks[#marks + 1] = value
end
local CENTURY = 3155760000000000
local function longest(text, asked)
local lease, at = string.match(text or '', '^(%d+) (%d+)$')
lease, at = whole(lease), whole(at)
if lease and at and lease > asked and lease <= CENTURY and math.abs(now - at) <= lease then return lease, text end
return asked, us(asked) .. ' ' .. us(now)
end
local function failure(record)
local failures, losses, when, mark, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (\31?)(.*)$')
return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when), mark == '\31'
end
local SMALL = 2048
local KINDS = {'in:stored', 'delivered', 'out:acked', 'failed', 'lost', 'garbage', 'superseded', 'started', 'late', 'latest'}
local MOVES, SWEEP = 500, 100
local want, bytes = tonumber(ARGV[3]), tonumber(ARGV[13])
local alone = ARGV[11]
local seed = tonumber(ARGV[9])
local function jitter(width)
seed = seed * 16807 % 2147483647
return math.floor(seed / 2147483647 * width)
end
local FIELDS = 20
local state = redis.call('HMGET', KEYS[11], field, 'armed', 'seen', 'grace', 'big', 'swept', 'cursor', 'canceled',
'pause', 'lease', 'dropped', 'counted', 'done', 'held', 'parts', 'limits', 'overtaken', 'aging', 'told', 'shards',
unpack(KINDS))
local saved, armed, seen, grace, big, swept, cursor, canceled, pause, asked, droppedBefore, counted, done, firstHold,
groups, limits, overtaken, aging, told =
unpack(state, 1, FIELDS)
if state[FIELDS] or ARGV[16] then
local function shardsof(said)
local n = tonumber(string.match(said or '', '^[1-9]%d?$') or '')
return n and n <= 64 and n or nil
end
local function othershards(said, n)
local shards = shardsof(said) and said or '1'
return shards ~= n and {err = 'DQSHARDS ' .. shards} or nil
end
local other = othershards(state[FIELDS], ARGV[16] or '1')
if other then return other end
end
big = math.max(whole(big) or 0, SMALL)
local heardCall, heardAt = string.match(saved or '', '^(%d+) (%d+) ')
local heard = whole(heardAt) or now
local repeated = recall(saved)
if repeated == false then return {err = STALE} end
if repeated then heardCall, heardAt = string.match(repeated, '^(%d+) (%d+)$') end
local name = ARGV[1] .. ':' .. ARGV[2]
if (whole(pause) or 0) > now or bytes == 0 then want = 0 end
local leaseUS, agreed = longest(asked, tonumber(ARGV[4]))
local maxLosses, garbageAge, garbageMax = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local function lastChance(record)
local _, losses = failure(record)
return losses > 0 and losses >= maxLosses - 1
end
local byAge, byPages
do
local HOUR, MINUTE = 3600000000, 60000000
local before = whole(aging) or 0
local agingAt, last = before, now
if saved then
last = heard
elseif seen and before == 0 then
last = whole(seen) or 0
end
if math.abs(now - last) > HOUR or before > now + MINUTE then
agingAt = now + MINUTE
elseif before ~= 0 and now - before > HOUR then
agingAt = 0
end
if agingAt ~= before then mark('aging', us(agingAt)) end
byAge, byPages = agingAt <= now, agingAt ~= 0
end
local function score(head) return scored(head[2]) end
local leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'))
local furthest = leased and score(redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES'))
local function isOver(first) return byAge and first and first ~= '0' and (whole(first) or 0) <= now end
local overdue, holdOver = isOver(done), isOver(firstHold)
local alarm = whole(armed or '0')
local byAlarm = ARGV[8] == '2' and saved and repeated == nil and alarm and (alarm == 0 or alarm > now)
and not (limits or ARGV[14] ~= '' or overdue or holdOver)
and not (leased and (leased < now + leaseUS / 2 or furthest > now + leaseUS))
local oldest, pended, retried, ready = nil, nil, nil, {}
if not byAlarm then
oldest = score(redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES'))
pended = score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))
retried = score(redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES'))
ready = redis.call('LRANGE', KEYS[2], 0, want)
guard(redis.call('ZCARD', KEYS[10]), redis.call('HLEN', KEYS[7]), redis.call('HLEN', KEYS[8]))
if groups then guard(redis.call('HLEN', KEYS[17])) end
end
local limited = limits or ARGV[14] ~= ''
local listed
if repeated or limited or ready[1] or pended and pended <= now or retried and retried <= now or leased and leased <= now then
listed = redis.call('HGET', KEYS[4], name)
if listed then repeated = repeated or '' end
end
if leased and leased <= now or overtaken and listed then
guard(redis.call('HLEN', KEYS[9]), redis.call('ZCARD', KEYS[16]), redis.call('ZCARD', KEYS[18]), redis.call('ZCARD', KEYS[19]))
end
if limited or overtaken and (listed or leased and leased <= now) then guard(redis.call('ZCARD', KEYS[14])) end
if overdue then guard(redis.call('ZCARD', KEYS[14]), redis.call('HLEN', KEYS[15])) end
if holdOver then guard(redis.call('ZCARD', KEYS[16]), redis.call('HLEN', KEYS[9])) end
if not state[FIELDS + 1] then guard(redis.call('HLEN', KEYS[7])) end
local anyone = ARGV[12] ~= '' and redis.pcall('HRANDFIELD', KEYS[12], 1, 'WITHVALUES')
redis.call('ZREM', KEYS[3], '')
mark('seen', us(now))
mark('lease', agreed)
local leaseEnd
local lost, dropped, overflow, replaced, dead = 0, 0, 0, 0, {}
local size = 0
local moved = 0
local picked, fromReady, pending = {}, 0, {}
local parts = {}
if not state[FIELDS + 1] then
local BOOKS = {'in:stored', 'in:found', 'kept', 'in:followed', 'in:scheduled', 'in:imported', 'out:acked', 'out:over', 'out:superseded',
'out:intercepted', 'out:canceled', 'out:deleted', 'out:aged', 'out:trimmed', 'out:lost'}
local function openbooks()
local here = redis.call('HLEN', KEYS[7])
redis.call('HDEL', KEYS[11], unpack(BOOKS))
redis.call('HSET', KEYS[11], 'in:stored', '0', 'told', '0 0', 'books', us(now))
if here > 0 then redis.call('HSET', KEYS[11], 'in:found', us(here)) end
end
openbooks()
state[FIELDS + 1], state[FIELDS + 3], told = '0', '0', '0 0'
end
local outs
local function leaves(out, n)
outs = outs or {}
outs[out] = (outs[out] or 0) + n
end
local function lend(name, ends, tags)
local list = table.concat(tags, ' ')
redis.call('ZADD', KEYS[3], ends, name)
redis.call('HSET', KEYS[4], name, list, name .. '#', #tags)
return list
end
local function delivery(record)
local n = string.match(record or '', '^([1-9]%d*) ')
return n and #n < 10 and n or '1'
end
local function isheld(id, n)
return redis.call('HEXISTS', KEYS[7], id) == 1 and tonumber(delivery(redis.call('HGET', KEYS[8], id))) <= n
end
local function split(tag)
local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
if n and n ~= '1' and #n < 10 then return tonumber(n), id end
return 1, tag
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
local list = ''
local function lease(tags)
leaseEnd = now + leaseUS
list = lend(name, us(leaseEnd), tags)
end
local function weigh(id, room)
local length = redis.call('HSTRLEN', KEYS[7], id)
if not groups or length > room then return length end
return weight(redis.call('HGET', KEYS[7], id) or '')
end
local keptUntil
local function replace(id, n, failures, losses, errors)
local function dropparts(id, n, from)
if n >= (from or 2) then redis.pcall('HDEL', KEYS[17], unpack(partnames(id, n, from))) end
end
local function dropall(id, envelope) dropparts(id, (partsof(envelope)), fieldat(envelope, 134) and 0 or nil) end
local noted = {stored = 0, longest = 0, looked = 0, spent = 0}
local WIDTH, NAME = 100, 200
local function laneof(envelope)
if string.byte(envelope, 1) ~= 2 then return nil end
local i, size = fieldat(envelope, 136)
local width = i and size > 3 and size <= 3 + NAME and whole(string.sub(envelope, i, i + 2)) or 0
local lane = i and string.sub(envelope, i + 3, i + size - 1)
if width >= 1 and width <= WIDTH and not string.find(lane, '\0', 1, true) then return lane, width end
end
local TURN, LOOKS = 4, 1000
local GONE = 500
local made
local function lanes()
if made then return made end
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
local found = redis.call('ZRANGEBYLEX', KEYS[18], all, to, 'LIMIT', 0, 2)
local first, second = readlane(lane, found[1]), readlane(lane, found[2])
if not first or not first.turn then return 0, WIDTH, first end
if not second or not second.turn then return 1, first.width, second end
found = redis.call('ZRANGEBYLEX', KEYS[18], waits, to, 'LIMIT', 0, 1)
return redis.call('ZLEXCOUNT', KEYS[18], all, '(' .. lane .. '\0\1'), first.width, readlane(lane, found[1])
end
local function turnsof(lane, most)
local turns = redis.call('ZRANGEBYLEX', KEYS[18], '[' .. lane .. '\0', '(' .. lane .. '\0\1', 'LIMIT', 0, most or 2 * WIDTH)
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
redis.call('ZREM', KEYS[18], turn.member)
redis.call('ZADD', KEYS[18], 0, waits(lane, turn.due, turn.tag, turn.width))
redis.call('ZADD', KEYS[19], us(turn.due), turn.tag)
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
redis.call('ZREM', KEYS[18], next.member)
if redis.call('ZREM', KEYS[19], next.tag) == 1 and there then
redis.call('ZADD', KEYS[18], 0, hasturn(lane, next.tag, next.width))
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
redis.call('ZADD', KEYS[18], 0, hasturn(lane, tag, width))
noted.given = noted.given or due <= now
return moveto(tag, math.max(due, now))
end
redis.call('ZADD', KEYS[18], 0, waits(lane, due, tag, width))
redis.call('ZADD', KEYS[19], us(due), tag)
local _, id = split(tag)
if n == 0 or not next or next.due > due or next.due == due and next.id > id then fill(lane, id) end
end
made = {inlane = inlane, turnsof = turnsof, hasturn = hasturn, waits = waits, moveto = moveto, moveout = moveout, idle = idle,
takeback = takeback, fill = fill, enter = enter}
return made
end
local remade
local function relanes()
if remade then return remade end
local l = lanes()
local function vacate(lane, width, id, tag)
local ended = redis.call('ZREM', KEYS[18], l.hasturn(lane, id, width)) == 1
or tag ~= id and tag ~= '' and redis.call('ZREM', KEYS[18], l.hasturn(lane, tag, width)) == 1
local turns = ended and {} or l.turnsof(lane)
noted.looked = noted.looked + #turns
for _, turn in ipairs(turns) do
local _, holder = split(turn.tag)
if holder == id then ended = redis.call('ZREM', KEYS[18], turn.member) == 1 end
end
if ended then l.fill(lane) end
end
local function leavewaiting(lane, width, tag, due)
redis.call('ZREM', KEYS[19], tag)
redis.call('ZREM', KEYS[18], l.waits(lane, due, tag, width))
local n, least, next = l.inlane(lane)
if next and n < math.min(least, next.width) then l.fill(lane) end
end
local function shift(lane, width, place, tag, id, before, due)
if not lane then
redis.call('ZREM', KEYS[19], tag)
return l.moveto(tag, due)
elseif place == 'waiting' then
leavewaiting(lane, width, tag, before)
return l.enter(lane, width, tag, due)
end
if place == 'ready' then redis.call('LREM', KEYS[2], 1, tag) else l.moveout(tag) end
if due <= before and not redis.call('ZSCORE', KEYS[18], l.hasturn(lane, tag, width)) then return l.moveto(tag, due) end
vacate(lane, width, id, tag)
l.enter(lane, width, tag, due)
end
local function outof(envelope, place, tag, id, score)
local lane, width = laneof(envelope)
if not lane and place == 'waiting' then redis.call('ZREM', KEYS[19], tag) end
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
remade = {vacate = vacate, shift = shift, outof = outof, relane = relane}
return remade
end
local function setfailure(id, n, counts, errors, ended)
local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. errors
redis.call('HSET', KEYS[8], id, record)
return record
end
local function finish(id, n, counts, errors)
local envelope = redis.call('HGET', KEYS[7], id) or ''
local i, size = fieldat(envelope, 133)
if KEYS[18] then relanes().outof(envelope, 'unack', '', id) end
if not i then
dropall(id, envelope)
redis.call('HDEL', KEYS[7], id)
redis.call('HDEL', KEYS[8], id)
return nil, #envelope
end
local ends = now
for j = 0, math.min(size, 7) - 1 do ends = ends + string.byte(envelope, i + j) % 128 * 128 ^ j end
setfailure(id, n, counts, '\31' .. errors)
redis.call('ZADD', KEYS[14], us(ends), id)
return ends, #envelope
end
local ends, bytesRead = finish(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
replaced, size = replaced + 1, size + bytesRead
if ends then keptUntil = math.min(keptUntil or ends, ends) else leaves('out:superseded', 1) end
end
local missing, acksleftof = {}, nil
if groups then
local function countof(envelope)
local i, size = fieldat(envelope, 134)
return size == 10 and whole(string.sub(envelope, i, i + 9)) or 0
end
local function countdownof(id)
local value = redis.pcall('HGET', KEYS[17], id .. ':0')
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
acksleftof = missingof
end
local function addparts(nth, id, envelope)
local acks = acksleftof and acksleftof(id, envelope)
if acks then missing[#missing + 1], missing[#missing + 2] = us(nth), us(acks) end
local n = partsof(envelope)
if n < 2 then return end
local values = redis.pcall('HMGET', KEYS[17], unpack(partnames(id, n)))
local there = not values.err
for i = 1, #values do there = there and values[i] end
local at = #parts
parts[at + 1], parts[at + 2] = us(nth), there and us(#values) or '0'
for i = 1, there and #values or 0 do parts[at + 2 + i] = values[i] end
end
local givenBack = false
if listed then
local LARGE = 65536
local function setfailure(id, n, counts, errors, ended)
local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. errors
redis.call('HSET', KEYS[8], id, record)
return record
end
local function superseded(record) return record and string.find(record, '^%d+ %d+ %d+ %d+ \31') ~= nil end
local tags = {}
for tag in string.gmatch(listed, '%S+') do
local n, id = split(tag)
if #tags < MOVES and isheld(id, n) then tags[#tags + 1] = tag end
end
local over = false
if bytes == 0 and #tags == 1 then
local _, id = split(tags[1])
over = redis.call('HSTRLEN', KEYS[7], id) > LARGE
end
if over then
lend(name, us(now), tags)
tags = {}
elseif #tags * big > bytes then
local fit, rest, total = {}, {}, 0
for i = 1, #tags do
local _, id = split(tags[i])
local length = weigh(id, bytes)
if total + length <= bytes then
total = total + length
fit[#fit + 1] = tags[i]
else
rest[#rest + 1] = tags[i]
end
end
if not fit[1] then fit[1] = table.remove(rest, 1) end
for i = 1, #rest do
local n, id = split(rest[i])
local record = redis.call('HGET', KEYS[8], id)
local failures, losses, errors = failure(record)
if superseded(record) then
replace(id, n, failures, losses, errors)
else
setfailure(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
redis.call('RPUSH', KEYS[2], us(n + 1) .. ':' .. id)
givenBack = true
end
end
tags = fit
end
if tags[1] then
lease(tags)
elseif not over then
redis.call('ZREM', KEYS[3], name)
redis.call('HDEL', KEYS[4], name, name .. '#')
end
leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'))
picked = tags
end
local begun, upto, before = string.match(grace or '', '^(%d+) (%d+) (%d+)$')
begun, upto, before = whole(begun) or 0, whole(upto) or 0, whole(before) or 0
if begun > now then
begun, upto, before = 0, 0, 0
mark('grace', '')
end
local function ends() return math.min(upto + math.floor(leaseUS * 3 / 4), begun + 2 * leaseUS) end
local lastCall = whole(seen) or 0
if lastCall > now then lastCall = 0 end
if now - heard > leaseUS / 2 or leased and leased <= now and now - lastCall > leaseUS * 2 / 3 then
local back = now + math.min(math.max(math.floor(leaseUS / 2), 2000000), leaseUS)
if ends() <= now then
before = upto
begun, upto = now, 0
end
if back <= begun + leaseUS * 3 / 2 then
upto = math.max(upto, back)
mark('grace', us(begun) .. ' ' .. us(upto) .. ' ' .. us(before))
end
end
local graceEnds = ends()
local inGrace, graceOver = graceEnds > now and upto or -1, before
local function lendrest(name, ends, tags)
name = string.gsub(name, '~+$', '')
repeat name = name .. '~' until redis.call('HEXISTS', KEYS[4], name) == 0
lend(name, ends, tags)
end
if furthest and furthest > now + leaseUS then
local far = redis.call('ZREVRANGEBYSCORE', KEYS[3], '+inf', '(' .. us(now + leaseUS), 'LIMIT', 0, SWEEP)
local leases = {}
for i = 1, #far do leases[2 * i - 1], leases[2 * i] = us(now + leaseUS), far[i] end
if leases[1] then redis.call('ZADD', KEYS[3], unpack(leases)) end
leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'))
end
if leased and leased <= now then
local holds = (whole(firstHold) or 0) > 0
local function keyof(envelope, head)
head = head or 17
local hi, lo = string.byte(envelope, head + 1, head + 2)
if not lo or hi * 256 + lo == 0 then return '' end
return string.sub(envelope, head + 3, head + 2 + hi * 256 + lo)
end
local function leftkey(envelope)
local i, size = fieldat(envelope, 129)
return i and size > 11 and string.sub(envelope, i + 11, i + size - 1) or ''
end
local LEFT = 100
local function left(key)
local list, ids = redis.pcall('HGET', KEYS[17], ':' .. key), {}
for id in string.gmatch(list and not list.err and list or '', '%S+') do
ids[#ids + 1] = id
if #ids == LEFT then break end
end
return ids
end
local function setleft(key, id, lives)
local ids = left(key)
for i = #ids, 1, -1 do
if ids[i] == id then table.remove(ids, i) end
end
if lives then table.insert(ids, 1, id) end
ids[LEFT + 1] = nil
if ids[1] then
redis.pcall('HSET', KEYS[17], ':' .. key, table.concat(ids, ' '))
else
redis.pcall('HDEL', KEYS[17], ':' .. key)
end
end
local function setfailure(id, n, counts, errors, ended)
local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. errors
redis.call('HSET', KEYS[8], id, record)
return record
end
local function superseded(record) return record and string.find(record, '^%d+ %d+ %d+ %d+ \31') ~= nil end
local FOUR = '^(' .. string.rep('\30[^\30]*', 4) .. ')\30'
local function witherror(errors, n, text)
if errors ~= '' and string.sub(errors, 1, 1) ~= '\30' then errors = '\30' .. '0 0 ' .. errors end
return '\30' .. us(now) .. ' ' .. us(n) .. ' ' .. text .. (string.match(errors, FOUR) or errors)
end
local function heldUntil(key)
local ends = tonumber(redis.call('ZSCORE', KEYS[16], key) or 0) or 0
if ends > now and ends <= now + 31536000000000 then return ends end
end
local function freekey(id, key, holds, unlist)
if key == '' then return end
if redis.call('HGET', KEYS[9], key) ~= id then
if unlist then unlist(key, id) end
return
end
if holds and heldUntil(key) then
redis.call('HSET', KEYS[9], key, 'acked:' .. id)
else
redis.call('HDEL', KEYS[9], key)
end
end
local noted = {stored = 0, longest = 0, looked = 0, spent = 0}
local WIDTH, NAME = 100, 200
local function laneof(envelope)
if string.byte(envelope, 1) ~= 2 then return nil end
local i, size = fieldat(envelope, 136)
local width = i and size > 3 and size <= 3 + NAME and whole(string.sub(envelope, i, i + 2)) or 0
local lane = i and string.sub(envelope, i + 3, i + size - 1)
if width >= 1 and width <= WIDTH and not string.find(lane, '\0', 1, true) then return lane, width end
end
local TURN, LOOKS = 4, 1000
local GONE = 500
local made
local function lanes()
if made then return made end
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
local found = redis.call('ZRANGEBYLEX', KEYS[18], all, to, 'LIMIT', 0, 2)
local first, second = readlane(lane, found[1]), readlane(lane, found[2])
if not first or not first.turn then return 0, WIDTH, first end
if not second or not second.turn then return 1, first.width, second end
found = redis.call('ZRANGEBYLEX', KEYS[18], waits, to, 'LIMIT', 0, 1)
return redis.call('ZLEXCOUNT', KEYS[18], all, '(' .. lane .. '\0\1'), first.width, readlane(lane, found[1])
end
local function turnsof(lane, most)
local turns = redis.call('ZRANGEBYLEX', KEYS[18], '[' .. lane .. '\0', '(' .. lane .. '\0\1', 'LIMIT', 0, most or 2 * WIDTH)
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
redis.call('ZREM', KEYS[18], turn.member)
redis.call('ZADD', KEYS[18], 0, waits(lane, turn.due, turn.tag, turn.width))
redis.call('ZADD', KEYS[19], us(turn.due), turn.tag)
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
redis.call('ZREM', KEYS[18], next.member)
if redis.call('ZREM', KEYS[19], next.tag) == 1 and there then
redis.call('ZADD', KEYS[18], 0, hasturn(lane, next.tag, next.width))
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
redis.call('ZADD', KEYS[18], 0, hasturn(lane, tag, width))
noted.given = noted.given or due <= now
return moveto(tag, math.max(due, now))
end
redis.call('ZADD', KEYS[18], 0, waits(lane, due, tag, width))
redis.call('ZADD', KEYS[19], us(due), tag)
local _, id = split(tag)
if n == 0 or not next or next.due > due or next.due == due and next.id > id then fill(lane, id) end
end
made = {inlane = inlane, turnsof = turnsof, hasturn = hasturn, waits = waits, moveto = moveto, moveout = moveout, idle = idle,
takeback = takeback, fill = fill, enter = enter}
return made
end
local remade
local function relanes()
if remade then return remade end
local l = lanes()
local function vacate(lane, width, id, tag)
local ended = redis.call('ZREM', KEYS[18], l.hasturn(lane, id, width)) == 1
or tag ~= id and tag ~= '' and redis.call('ZREM', KEYS[18], l.hasturn(lane, tag, width)) == 1
local turns = ended and {} or l.turnsof(lane)
noted.looked = noted.looked + #turns
for _, turn in ipairs(turns) do
local _, holder = split(turn.tag)
if holder == id then ended = redis.call('ZREM', KEYS[18], turn.member) == 1 end
end
if ended then l.fill(lane) end
end
local function leavewaiting(lane, width, tag, due)
redis.call('ZREM', KEYS[19], tag)
redis.call('ZREM', KEYS[18], l.waits(lane, due, tag, width))
local n, least, next = l.inlane(lane)
if next and n < math.min(least, next.width) then l.fill(lane) end
end
local function shift(lane, width, place, tag, id, before, due)
if not lane then
redis.call('ZREM', KEYS[19], tag)
return l.moveto(tag, due)
elseif place == 'waiting' then
leavewaiting(lane, width, tag, before)
return l.enter(lane, width, tag, due)
end
if place == 'ready' then redis.call('LREM', KEYS[2], 1, tag) else l.moveout(tag) end
if due <= before and not redis.call('ZSCORE', KEYS[18], l.hasturn(lane, tag, width)) then return l.moveto(tag, due) end
vacate(lane, width, id, tag)
l.enter(lane, width, tag, due)
end
local function outof(envelope, place, tag, id, score)
local lane, width = laneof(envelope)
if not lane and place == 'waiting' then redis.call('ZREM', KEYS[19], tag) end
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
remade = {vacate = vacate, shift = shift, outof = outof, relane = relane}
return remade
end
local unlist = groups and setleft
local LOST = 'its lease ran out: its consumer died or was cut off'
local UNRECEIVED = 'it did not come through: the line is too slow for it, or a limit of the server cuts it off'
local function lose(id, n, why)
lost = lost + 1
local before = redis.call('HGET', KEYS[8], id)
local failures, losses, errors = failure(before)
losses = losses + 1
local poison = losses >= maxLosses and not superseded(before)
errors = witherror(errors, n, poison and ARGV[10] or why)
if superseded(before) then return replace(id, n, failures, losses, errors) end
local record = setfailure(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
if poison then
local envelope = redis.call('HGET', KEYS[7], id)
local key = keyof(envelope)
freekey(id, key ~= '' and key or unlist and leftkey(envelope) or '', holds, unlist)
redis.call('ZADD', KEYS[6], us(now), id)
relanes().outof(envelope, 'unack', '', id)
size = size + weight(envelope)
dead[#dead + 1] = id
dead[#dead + 1] = size <= bytes and envelope or ''
dead[#dead + 1] = record
if size <= bytes then addparts(-#dead / 3, id, envelope) end
else
local next = now + jitter(500000 * math.min(losses, 20))
if not retried or next < retried then retried = next end
redis.call('ZADD', KEYS[5], us(next), us(n + 1) .. ':' .. id)
end
end
local expired, from = {}, '-inf'
if inGrace >= 0 then
if leased <= graceOver then
expired = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', us(graceOver), 'LIMIT', 0, SWEEP)
end
from = '(' .. us(inGrace)
end
if inGrace < now then
local rest = redis.call('ZRANGEBYSCORE', KEYS[3], from, us(now), 'LIMIT', 0, SWEEP - #expired)
for i = 1, #rest do expired[#expired + 1] = rest[i] end
end
local looked = 0
local function full() return moved >= SWEEP or looked >= MOVES or size > bytes / 4 end
local function reclaim(lease)
local rest = {}
for tag in string.gmatch(redis.call('HGET', KEYS[4], lease) or '', '%S+') do
if full() then
rest[#rest + 1] = tag
else
looked = looked + 1
local n, id = split(tag)
if isheld(id, n) then
if n > 1 or not redis.call('ZSCORE', KEYS[1], id) then
moved = moved + 1
lose(id, n, lease == name and UNRECEIVED or LOST)
end
elseif redis.call('HEXISTS', KEYS[7], id) == 0 then
redis.call('HDEL', KEYS[8], id)
end
end
end
local ends = rest[1] and redis.call('ZSCORE', KEYS[3], lease)
redis.call('ZREM', KEYS[3], lease)
redis.call('HDEL', KEYS[4], lease, lease .. '#')
if rest[1] then lendrest(lease, ends, rest) end
end
for i = 1, #expired do
if full() then break end
reclaim(expired[i])
end
if expired[1] then leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')) end
end
local function lookAgain()
pended = score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))
retried = score(redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES'))
end
if dead[1] or replaced > 0 then lookAgain() end
local trimmed, more, clearAll = {}, false, nil
if groups and (oldest or overdue) then
local function clear(ids)
local parts = 0
for i = 1, #ids do
if parts > PARTS / 2 then
for j = #ids, i, -1 do ids[j] = nil end
return false
end
local from, size = 0, 6
repeat
local gone = redis.call('HDEL', KEYS[17], unpack(partnames(ids[i], from + size - 1, from)))
parts, from, size = parts + gone, from + size, 2 * size
until gone == 0 or from > PARTS
end
return true
end
clearAll = clear
end
if byAge and oldest and garbageAge > 0 and oldest <= now - garbageAge then
trimmed = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', us(now - garbageAge), 'LIMIT', 0, SWEEP)
end
local aged = #trimmed
if oldest and garbageMax > 0 then
overflow = math.max(0, math.min(redis.call('ZCARD', KEYS[6]) - aged - garbageMax, SWEEP - aged))
if overflow > 0 then
for i, id in ipairs(redis.call('ZRANGE', KEYS[6], aged, aged + overflow - 1)) do trimmed[aged + i] = id end
end
end
if trimmed[1] then
if groups then
more = not clearAll(trimmed)
overflow = math.max(0, #trimmed - aged)
end
redis.call('ZREM', KEYS[6], unpack(trimmed))
aged = math.min(aged, #trimmed)
if aged > 0 then leaves('out:aged', redis.call('HDEL', KEYS[7], unpack(trimmed, 1, aged))) end
if #trimmed > aged then leaves('out:trimmed', redis.call('HDEL', KEYS[7], unpack(trimmed, aged + 1))) end
end
if keptUntil and ((whole(done) or 0) == 0 or keptUntil < whole(done)) then mark('done', us(keptUntil)) end
if overdue and #trimmed < SWEEP then
local over = redis.call('ZRANGEBYSCORE', KEYS[14], '-inf', us(now), 'LIMIT', 0, SWEEP - #trimmed)
if over[1] then
if groups then more = not clearAll(over) or more end
redis.call('ZREM', KEYS[14], unpack(over))
redis.call('HDEL', KEYS[15], unpack(over))
leaves('out:over', redis.call('HDEL', KEYS[7], unpack(over)))
for _, id in ipairs(over) do trimmed[#trimmed + 1] = id end
end
mark('done', us(score(redis.call('ZRANGE', KEYS[14], 0, 0, 'WITHSCORES')) or 0))
end
if trimmed[1] then
moved = moved + #trimmed
redis.call('HDEL', KEYS[8], unpack(trimmed))
end
if holdOver then
local over, free = redis.call('ZRANGEBYSCORE', KEYS[16], '-inf', us(now), 'LIMIT', 0, MOVES), {}
if over[1] then
local holders = redis.call('HMGET', KEYS[9], unpack(over))
for i = 1, #over do
if holders[i] and string.sub(holders[i], 1, 6) == 'acked:' then free[#free + 1] = over[i] end
end
redis.call('ZREM', KEYS[16], unpack(over))
if free[1] then redis.call('HDEL', KEYS[9], unpack(free)) end
end
more = more or #over == MOVES
mark('held', us(score(redis.call('ZRANGE', KEYS[16], 0, 0, 'WITHSCORES')) or 0))
end
local noted = {stored = 0, longest = 0, looked = 0, spent = 0}
local function tagof(id, record)
local n = delivery(record)
return n == '1' and id or n .. ':' .. id
end
local page, lane = string.match(cursor or '', '^(%d+) ?(.*)$')
local sweptBefore = whole(swept) or 0
if sweptBefore > now then sweptBefore = 0 end
if not page or #page > 19 then page, lane = '0', '' end
local callers = page ~= '0' or lane == '' and now - sweptBefore > 600000000
if byAge and not byAlarm and (callers or lane ~= '') then
local function isover(turn)
local _, id = split(turn.tag)
return redis.call('HEXISTS', KEYS[7], id) == 0 or redis.call('ZSCORE', KEYS[6], id) or redis.call('ZSCORE', KEYS[14], id)
or redis.call('ZSCORE', KEYS[19], tagof(id, redis.call('HGET', KEYS[8], id)))
end
local function sweeplanes(lane, n)
local WIDTH, NAME = 100, 200
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
local function turnsof(lane, most)
local turns = redis.call('ZRANGEBYLEX', KEYS[18], '[' .. lane .. '\0', '(' .. lane .. '\0\1', 'LIMIT', 0, most or 2 * WIDTH)
for i = 1, #turns do turns[i] = readlane(lane, turns[i]) end
return turns
end
local TURN, LOOKS = 4, 1000
local GONE = 500
local made
local function lanes()
if made then return made end
local function inlane(lane)
local all, waits, to = '[' .. lane .. '\0', '[' .. lane .. '\0\1', '(' .. lane .. '\1'
local found = redis.call('ZRANGEBYLEX', KEYS[18], all, to, 'LIMIT', 0, 2)
local first, second = readlane(lane, found[1]), readlane(lane, found[2])
if not first or not first.turn then return 0, WIDTH, first end
if not second or not second.turn then return 1, first.width, second end
found = redis.call('ZRANGEBYLEX', KEYS[18], waits, to, 'LIMIT', 0, 1)
return redis.call('ZLEXCOUNT', KEYS[18], all, '(' .. lane .. '\0\1'), first.width, readlane(lane, found[1])
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
redis.call('ZREM', KEYS[18], turn.member)
redis.call('ZADD', KEYS[18], 0, waits(lane, turn.due, turn.tag, turn.width))
redis.call('ZADD', KEYS[19], us(turn.due), turn.tag)
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
redis.call('ZREM', KEYS[18], next.member)
if redis.call('ZREM', KEYS[19], next.tag) == 1 and there then
redis.call('ZADD', KEYS[18], 0, hasturn(lane, next.tag, next.width))
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
redis.call('ZADD', KEYS[18], 0, hasturn(lane, tag, width))
noted.given = noted.given or due <= now
return moveto(tag, math.max(due, now))
end
redis.call('ZADD', KEYS[18], 0, waits(lane, due, tag, width))
redis.call('ZADD', KEYS[19], us(due), tag)
local _, id = split(tag)
if n == 0 or not next or next.due > due or next.due == due and next.id > id then fill(lane, id) end
end
made = {inlane = inlane, turnsof = turnsof, hasturn = hasturn, waits = waits, moveto = moveto, moveout = moveout, idle = idle,
takeback = takeback, fill = fill, enter = enter}
return made
end
local function rescore(n)
for _, range in ipairs({{'-inf', '(0'}, {'(0', '+inf'}}) do
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[18], range[1], range[2], 'LIMIT', 0, n)) do
redis.call('ZADD', KEYS[18], 0, member)
end
end
end
local l = lanes()
rescore(n)
while n > 0 do
local member = redis.call('ZRANGEBYLEX', KEYS[18], lane == '' and '-' or '(' .. lane .. '\1', '+', 'LIMIT', 0, 1)[1]
if not member then return '' end
local before, ends = lane, string.find(member, '\0', 1, true) or 0
n = n - 1
if ends < 2 or ends > NAME + 1 then
redis.call('ZREM', KEYS[18], member)
else
lane = string.sub(member, 1, ends - 1)
local turns, looked = turnsof(lane), noted.looked
for i = 1, #turns do
if isover(turns[i]) then redis.call('ZREM', KEYS[18], turns[i].member) end
end
if not l.fill(lane) then return before == '' and '\0' or before end
n = n - #turns - (noted.looked - looked)
end
end
return lane
end
if callers then
local function forgotten(name, record)
if string.sub(name, 1, 5) ~= 'call:' then return false end
local called = whole(string.match(record, '^%d+ (%d+) '))
return not called or math.abs(now - called) > 3600000000
end
local found = redis.call('HSCAN', KEYS[11], page, 'MATCH', 'call:*', 'COUNT', SWEEP)
for i = 1, #found[2], 2 do
if found[2][i] ~= field and forgotten(found[2][i], found[2][i + 1]) then
redis.call('HDEL', KEYS[11], found[2][i])
end
end
page = found[1]
end
if redis.call('HLEN', KEYS[7]) == 0 then redis.call('HDEL', KEYS[11], 'big', 'parts', 'changed', 'overtaken') end
local some, waiting, done = redis.pcall('ZCARD', KEYS[18]), redis.pcall('ZCARD', KEYS[19]), redis.pcall('ZCARD', KEYS[14])
if type(some) == 'number' and some > 0 and type(waiting) == 'number' and type(done) == 'number' then
lane = sweeplanes(lane, SWEEP)
lookAgain()
else
lane = ''
end
mark('swept', us(now))
mark('cursor', lane == '' and page or page .. ' ' .. lane)
end
local limit
local marker = alarm or 0
if limits or ARGV[14] ~= '' then
local tat, throttled, before, override =
unpack(redis.call('HMGET', KEYS[11], 'tat', 'throttled', 'limited', 'override'), 1, 4)
local function numbers(text)
local list, i = {0, 0, 0, 0, 0, 0}, 0
for word in string.gmatch(text or '', '%S+') do
i = i + 1
list[i] = whole(word) or 0
end
return list
end
local function rated(r) return r[1] > 0 and r[1] <= r[2] and r[3] > 0 end
local function slower(a, b)
local x, y = a[1] / a[2], b[1] / b[2]
return x < y or x == y and a[3] < b[3]
end
local mine, theirs, set = numbers(ARGV[14]), numbers(limits), numbers(override)
mine[5], mine[6] = now, now
local rate, crowd = mine, mine
if rated(theirs) and math.abs(now - theirs[5]) <= leaseUS and (not rated(mine) or slower(theirs, mine)) then rate = theirs end
if theirs[4] > 0 and math.abs(now - theirs[6]) <= leaseUS and (mine[4] == 0 or theirs[4] < mine[4]) then crowd = theirs end
local asked = {us(rate[1]), us(rate[2]), us(rate[3]), us(crowd[4]), us(rate[5]), us(crowd[6])}
local overridden = rated(set) or set[4] > 0
if rated(set) then rate = set end
if set[4] > 0 then crowd = set end
local function throttledUntil(text)
local said, till = string.match(text or '', '^(%d+) (%d+)$')
said, till = whole(said), whole(till)
if not till or said > now or till - said > 3600000000 or till <= now then return 0 end
return till
end
local till = throttledUntil(throttled)
limit = {before = '', open = till, free = nil, take = function() end, spare = nil}
local since, first, stood = string.match(before or '', '^(%d+) (%d+) %d+ (%d+) [01]$')
if since then
limit.since, limit.before = whole(since), before
if whole(first) == marker then marker = whole(stood) end
end
limit.text = table.concat({us(rate[1]), us(rate[2]), us(rate[3]), us(crowd[4]), overridden and '1' or '0'}, ' ')
limit.idle = not rated(rate) and crowd[4] == 0 and till == 0
if limit.idle then
redis.call('HDEL', KEYS[11], 'limits', 'override', 'tat', 'throttled', 'limited')
else
mark('limits', table.concat(asked, ' '))
end
local function expired(nth, envelope, at)
at = at or now
local function instant(kind)
local i, size = fieldat(envelope, kind)
return size == 16 and whole(string.sub(envelope, i, i + 15)) or 0
end
local deadline = instant(130)
if deadline > 0 and deadline <= at then return true end
local due, hi, lo = whole(string.sub(envelope, 2, 17)), string.byte(envelope, 18, 19)
if nth > 1 or not due or not lo then return false end
local function uvarint(i)
local n, scale = 0, 1
while i do
local d = string.byte(envelope, i)
if not d or scale > 1e15 then return nil end
n, scale, i = n + d % 128 * scale, scale * 128, i + 1
if d < 128 then return n, i end
end
end
local ttl
if string.byte(envelope, 1) == 1 then
local flags = 20 + hi * 256 + lo
local _, after = uvarint(flags + 1)
if (string.byte(envelope, flags) or 0) % 2 == 1 then ttl = uvarint(after) end
else
ttl = uvarint((fieldat(envelope, 4)))
end
return ttl and ttl > 0 and at - math.max(due, instant(6)) > ttl or false
end
limit.spare = expired
if till > 0 then want = 0 end
if crowd[4] > 0 then
local function howmanyheld()
if redis.call('HLEN', KEYS[4]) == 0 then return 0 end
local held = redis.call('HLEN', KEYS[7]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
- redis.call('ZCARD', KEYS[5]) - redis.call('ZCARD', KEYS[6]) - redis.call('ZCARD', KEYS[14])
- redis.call('ZCARD', KEYS[19])
return math.max(held, 0)
end
local function howmanylent(most)
local lent = 0
for i = 0, 2 * most - 1, 1000 do
local names = redis.call('ZRANGE', KEYS[3], i, math.min(i + 999, 2 * most - 1))
if not names[1] then break end
for j = 1, #names do names[j] = names[j] .. '#' end
for _, left in ipairs(redis.call('HMGET', KEYS[4], unpack(names))) do lent = lent + (whole(left) or 0) end
end
return lent
end
local held = howmanylent(crowd[4])
if held >= crowd[4] and now - (whole(canceled) or 0) <= 2 * leaseUS then held = math.min(held, howmanyheld()) end
limit.free = crowd[4] - held
want = math.max(math.min(want, limit.free), 0)
end
local room
function limit.left(taken)
local n = till > 0 and 0 or 2 * MOVES
if limit.free then n = math.min(n, limit.free - taken) end
if room then n = math.min(n, room()) end
return math.max(n, 0)
end
if rated(rate) then
local n, per, burst = rate[1] * 1.0, rate[2] * 1.0, rate[3]
local read = math.max(tonumber(string.match(tat or '', '^%d+$') or '') or 0, now)
tat = math.min(read, now + math.ceil(burst * per / n))
if tat < read then mark('tat', us(tat)) end
function room() return math.floor((burst * per - (tat - now) * n) / per) end
want = math.max(math.min(want, room()), 0)
function limit.take(k)
if k > 0 then
tat = tat + math.ceil(k * per / n)
mark('tat', us(tat))
end
if room() < 1 then
limit.open = math.min(math.max(limit.open, tat - math.floor((burst - 1) * per / n), now + 1), 7258118400000000)
end
end
end
end
local function later()
local spread = math.min(redis.call('ZCARD', KEYS[5]) * 500, 60000000)
return us((math.floor((now + jitter(spread)) / 50000) + 2) * 50000)
end
local reserved = ''
picked.asked = not repeated and alone ~= '' and alone ~= '-'
if picked.asked then
local tag, instant = string.match(alone, '^(.*) (%d+)$')
if tag and scored(redis.call('ZSCORE', KEYS[5], tag)) == whole(instant) then
if want > 0 then
picked[1] = tag
elseif limit then
limit.take(0)
if limit.open > now and limit.open <= now + leaseUS then reserved = alone end
end
end
want = 0
end
if not repeated and want > 0 then
local rest = math.max(0, math.min(want, MOVES - moved))
fromReady = math.min(#ready, rest)
for i = 1, fromReady do picked[i] = ready[i] end
rest = rest - fromReady
if rest > 0 and pended and pended <= now then
pending = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', us(now), 'LIMIT', 0, rest)
end
local retry = {}
if rest > 0 and retried and retried <= now then
retry = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', us(now), 'LIMIT', 0, rest)
end
local fromRetry = math.min(#retry, math.max(rest - #pending, math.floor((rest + jitter(2)) / 2)))
for i = 1, fromRetry do picked[fromReady + i] = retry[i] end
for i = #pending, rest - fromRetry + 1, -1 do pending[i] = nil end
end
local function truncate(tags, room, least)
for i = 1, #tags do
local _, id = split(tags[i])
local length = weigh(id, room)
if size + length > room and i > least then
for j = #tags, i, -1 do tags[j] = nil end
break
end
size = size + length
end
end
local weighed = (#picked + #pending) * big + size > bytes
if not repeated and weighed then
local half = (size + bytes) / 2
if pending[1] and (not picked[1] or jitter(2) == 0) then
truncate(pending, picked[1] and half or bytes, 1)
truncate(picked, bytes, 0)
else
truncate(picked, pending[1] and half or bytes, 1)
truncate(pending, bytes, 0)
end
fromReady = math.min(fromReady, #picked)
end
local out, given = {}, {}
local started, late, latest = 0, 0, 0
local spared = 0
local function look(n, tag, envelope)
if limit and limit.spare((split(tag)), envelope) then spared = spared + 1 end
if string.byte(envelope, 1) == 2 then
local _, id = split(tag)
addparts(n, id, envelope)
end
end
local function give(tag, envelope)
local n = #given + 1
given[n], out[n] = tag, envelope
look(n, tag, envelope)
end
local function begin(envelope, n)
local lateness = math.max(now - (whole(string.sub(envelope, 2, 17)) or now), 0)
late, latest = late + lateness * n, math.max(latest, lateness)
end
local fails = {}
if picked[1] then
local ids, numbered, j = {}, {}, 0
for i = 1, #picked do
local n, id = split(picked[i])
ids[i] = id
if n > 1 then numbered[#numbered + 1] = id end
end
local envelopes = redis.call('HMGET', KEYS[7], unpack(ids))
local records = numbered[1] and redis.call('HMGET', KEYS[8], unpack(numbered)) or {}
if fromReady > 0 then redis.call('LTRIM', KEYS[2], fromReady, -1) end
if picked.asked then
redis.call('ZREM', KEYS[5], picked[1])
elseif not repeated and #picked > fromReady then
redis.call('ZREMRANGEBYRANK', KEYS[5], 0, #picked - fromReady - 1)
end
for i = 1, #picked do
local tag, record = picked[i], nil
if ids[i] ~= tag then
j = j + 1
record = records[j] or ''
end
if not envelopes[i] then
dropped = dropped + 1
redis.call('HDEL', KEYS[8], ids[i])
elseif not repeated and not picked.asked and lastChance(record) then
local reserves = reserved == '' and alone == ''
local deferred = reserves and us(now + 2 * leaseUS) or later()
redis.call('ZADD', KEYS[5], deferred, tag)
if reserves then reserved = tag .. ' ' .. deferred end
else
give(tag, envelopes[i])
fails[#fails + 1] = record or ''
end
end
end
local n = #pending
local step = math.ceil(n / 16)
local apart = tonumber(ARGV[15])
if apart > 0 and n >= apart and not (limit or groups or given[1]) then
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, n - 1)
local sample = {}
for i = 1, n, step do sample[#sample + 1] = pending[i] end
local envelopes = redis.call('HMGET', KEYS[7], unpack(sample))
for i = 1, #sample do
if envelopes[i] then begin(envelopes[i], math.min(step, n - (i - 1) * step)) end
end
given, started = pending, n
elseif n > 0 then
local envelopes = redis.call('HMGET', KEYS[7], unpack(pending))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, n - 1)
local byte, plain = string.byte, not limit and not given[1]
for i = 1, n do plain = plain and envelopes[i] and byte(envelopes[i], 1) ~= 2 end
if plain then
given, out, started = pending, envelopes, n
end
for i = 1, n, plain and step or 1 do
if not envelopes[i] then
dropped = dropped + 1
redis.call('HDEL', KEYS[8], pending[i])
else
if not plain then
give(pending[i], envelopes[i])
started = started + 1
end
if (i - 1) % step == 0 then begin(envelopes[i], math.min(step, n - i + 1)) end
end
end
end
local function sweepSpare(head, remove)
local page, rest = 16, MOVES - moved - #given
while rest > 0 do
local tags, ids, out = head(math.min(page, rest)), {}, {}
if #tags * big + size > bytes then
truncate(tags, bytes, 0)
else
size = size + #tags * big
end
for i = 1, #tags do
local _, id = split(tags[i])
ids[i] = id
end
local envelopes = ids[1] and redis.call('HMGET', KEYS[7], unpack(ids)) or {}
local records = ids[1] and ids[1] ~= tags[1] and redis.call('HMGET', KEYS[8], unpack(ids)) or {}
for i = 1, #tags do
local first = ids[i] == tags[i]
if not envelopes[i] or not limit.spare((split(tags[i])), envelopes[i]) or not first and lastChance(records[i]) then break end
out[i] = tags[i]
end
if out[1] then remove(#out - 1) end
for i = 1, #out do
give(out[i], envelopes[i])
if ids[i] == out[i] then
started = started + 1
begin(envelopes[i], 1)
else
for j = #fails + 1, #given - 1 do fails[j] = '' end
fails[#given] = records[i] or ''
end
end
rest = rest - #out
if #out < page then break end
page = page * 2
end
end
if spared > 0 and not repeated and not limit.idle then
if not weighed then size = size + #given * big end
sweepSpare(function(n) return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', us(now), 'LIMIT', 0, n) end,
function(last) redis.call('ZREMRANGEBYRANK', KEYS[1], 0, last) end)
sweepSpare(function(n) return redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', us(now), 'LIMIT', 0, n) end,
function(last) redis.call('ZREMRANGEBYRANK', KEYS[5], 0, last) end)
end
if given[1] and not repeated then lease(given) end
local function merged(i, a, b) return i == #KINDS and math.max(a, b) or a + b end
local function ms(n) return math.floor(n / 1000 + 0.5) end
local counts, any = {0, repeated and 0 or #given, 0, 0, lost, #dead / 3, replaced, started, ms(late), ms(latest)}, false
local stored, acked = state[FIELDS + 1], state[FIELDS + 3] or '0'
local totals = stored .. ' ' .. acked
if #totals > 40 then totals = '' end
for i = 1, #KINDS do
if i ~= 1 and i ~= 3 then
counts[i] = merged(i, counts[i], whole(state[FIELDS + i]) or 0)
any = any or counts[i] > 0
end
end
local countedBefore = whole(counted) or 0
if (any or told ~= totals) and (countedBefore > now or now - countedBefore >= 1000000) then
local hour, day = math.floor(now / 3600000000), math.floor(now / 86400000000)
local function untold(counts, told)
local stored, acked = string.match(told or '', '^(%d+) (%d+)$')
counts[1] = math.max(counts[1] - (whole(stored) or counts[1]), 0)
counts[3] = math.max(counts[3] - (whole(acked) or counts[3]), 0)
end
local function tally(text, numbers)
local sums = {string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')}
for i = 1, #KINDS do sums[i] = us(merged(i, whole(sums[i]) or 0, numbers[i])) end
return table.concat(sums, ' ')
end
local HOURS, DAYS = 48, 30
local function kept(span)
local kind, n = string.match(span, '^(d?)(%d+)$')
n = whole(n)
if not n then return false end
if kind == 'd' then return n > day - DAYS and n <= day end
return n > hour - HOURS and n <= hour
end
local spans = {us(hour), 'd' .. us(day)}
local sums = redis.pcall('HMGET', KEYS[13], unpack(spans))
if not sums.err then
counts[1], counts[3] = whole(stored) or 0, whole(acked) or 0
untold(counts, told)
redis.pcall('HSET', KEYS[13], spans[1], tally(sums[1], counts), spans[2], tally(sums[2], counts))
if byAge and not sums[1] then
local fields, old = redis.pcall('HRANDFIELD', KEYS[13], SWEEP), {}
for i = 1, #fields do
if not kept(fields[i]) then old[#old + 1] = fields[i] end
end
if old[1] then redis.pcall('HDEL', KEYS[13], unpack(old)) end
end
for i = 1, #KINDS do counts[i] = 0 end
mark('counted', us(now))
mark('told', totals)
end
end
for i = 1, #KINDS do
if i ~= 1 and i ~= 3 and us(counts[i]) ~= (state[FIELDS + i] or '0') then mark(KINDS[i], us(counts[i])) end
end
if dropped > 0 then mark('dropped', us((whole(droppedBefore) or 0) + dropped)) end
if outs then
for out, n in pairs(outs) do
if n > 0 then mark(out, us((whole(redis.call('HGET', KEYS[11], out)) or 0) + n)) end
end
end
local function remember(reply)
mark(field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply)
redis.call('HSET', KEYS[11], unpack(marks))
end
local function gate(due, paused) return math.max(due, whole(paused) or 0) end
local function arm(due)
redis.call('ZADD', KEYS[10], us(due), 'w')
mark('armed', us(due))
end
local next = 0
local function soonest(at) if at and (next == 0 or at < next) then next = math.max(at, 1) end end
if (ready[1] or givenBack) and redis.call('LLEN', KEYS[2]) > 0 then soonest(now) end
if pending[1] or spared > 0 then pended = score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')) end
if picked[1] or spared > 0 then retried = score(redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')) end
soonest(pended)
soonest(retried)
if next ~= 0 then next = gate(next, pause) end
if byAlarm then next = alarm end
local putOff, full
if limit then
local taken = repeated and 0 or #given
limit.take(repeated and 0 or taken - spared)
if next ~= 0 and next <= now and limit.free and limit.free <= taken then
putOff, next, full = next, 0, true
elseif next ~= 0 and limit.open > math.max(next, now) then
putOff, next = next, limit.open
end
end
local over = leased
if leased and leased <= inGrace and leased > graceOver then
over = score(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. us(inGrace), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
over = math.min(over or graceEnds, graceEnds)
end
if full then soonest(over or leaseEnd or now + leaseUS) end
if over and over < now + leaseUS / 2 then soonest(over) end
if (more or #trimmed >= SWEEP) and (overflow > 0 or not byPages) then soonest(now) end
if next == 0 then
if marker ~= 0 then
redis.call('ZREM', KEYS[10], 'w')
mark('armed', '0')
end
elseif next ~= marker or next <= now or ARGV[8] == '1' then
arm(next)
end
if limit then
local first = math.min(putOff or next, next)
mark('armed', us(first))
if putOff then
mark('limited', table.concat({us(limit.since or now), us(first), us(limit.open), us(next), full and '1' or '0'}, ' '))
elseif limit.before ~= '' and not limit.idle then
mark('limited', '')
end
end
if anyone and not anyone.err then
local at, itsLease = string.match(anyone[2] or '', '^(%d+) (%d+) ')
at, itsLease = whole(at), whole(itsLease)
if anyone[1] and (not at or not itsLease or math.abs(now - at) > 2 * itsLease + 5000000) then
redis.call('HDEL', KEYS[12], anyone[1])
end
if ARGV[12] == '-' then
redis.call('HDEL', KEYS[12], ARGV[1])
else
redis.call('HSET', KEYS[12], ARGV[1], us(now) .. ' ' .. ARGV[4] .. ' ' .. ARGV[12])
redis.pcall('EXPIRE', KEYS[12], 2678400)
end
end
local known = heardAt and heardCall .. ' ' .. heardAt or '0 0'
remember(known)
local envelopes = #out
local numbers = {
list, us(now), us(next), lost, dropped, overflow, seen and 0 or 1,
us(leaseUS),
limit and not limit.idle and limit.text .. ' ' .. (full and '-1' or us(limit.left(repeated and 0 or #given))) or '',
#fails, #dead / 3, replaced, us(whole(canceled) or 0),
known .. ' ' .. totals, #missing / 2, reserved, us(big),
}
for _, list in ipairs({numbers, fails, dead, missing, parts}) do
for i = 1, #list do out[#out + 1] = list[i] end
end
out[#out + 1] = envelopes
return out
