-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, sequence, done, holds, parts, lanes, waiting
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
local field = 'call:' .. ARGV[1]
local STALE = 'DQSTALE a later call of this caller was carried out'
local function recall(saved)
if not saved then return nil end
local n, at, reply = string.match(saved, '^(%d+) (%d+) (.*)$')
if not n then return nil end
local call, last = tonumber(ARGV[2]), tonumber(n)
if last < call then return nil, at, n end
if last > call then return false end
return reply, at, n
end
local function again(saved)
local reply, at = recall(saved)
if reply then
redis.call('ZREM', KEYS[1], '')
redis.call('HSET', KEYS[10], field, saved)
return {at, reply}
end
return reply == false and {err = STALE} or nil
end
local function guard() end
local marks = {}
local function mark(name, value)
marks[#marks + 1] = name
marks[#marks + 1] = value
end
local function remember(reply)
redis.call('HSET', KEYS[10], field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply, unpack(marks))
end
local function gate(due, paused) return math.max(due, whole(paused) or 0) end
local function sooner(due, before)
before = whole(before) or 0
return before == 0 or due < before
end
local function arm(due)
redis.call('ZADD', KEYS[9], us(due), 'w')
mark('armed', us(due))
end
local function lastof(name)
local last = redis.call('HGET', KEYS[11], name)
return last and #last == 20 and string.match(last, '^%d+$') and last <= '18446744073709551615' and last or nil
end
local noted = {stored = 0, longest = 0, looked = 0, spent = 0}
local LOOKS = 1000
local PUTS = {refuse = 4, keep = 4, reschedule = 5, replace = 6, append = 7}
local function keyof(envelope, head)
head = head or 17
local hi, lo = string.byte(envelope, head + 1, head + 2)
if not lo or hi * 256 + lo == 0 then return '' end
return string.sub(envelope, head + 3, head + 2 + hi * 256 + lo)
end
local function redue(envelope, digits) return string.sub(envelope, 1, 1) .. digits .. string.sub(envelope, 18) end
local function complete(delay, version, envelope)
if delay then
return string.char(tonumber(version)) .. us(now + delay) .. envelope, now + delay
end
local due = tonumber(string.sub(envelope, 2, 17))
if due >= now then return envelope, due end
return redue(envelope, us(now)), now
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
local function holdends(key)
local ends = math.floor(tonumber(redis.call('ZSCORE', KEYS[13], key) or 0) or 0)
if ends > now and ends <= now + 31536000000000 then return ends end
end
local function holderof(key)
local holder = redis.call('HGET', KEYS[8], key)
if not holder then return nil end
local size = redis.call('HSTRLEN', KEYS[6], holder)
if size > 0 then return holder, false, size end
if string.sub(holder, 1, 6) == 'acked:' and holdends(key) then return string.sub(holder, 7), true end
return false
end
local function named(holder, acked) return '=' .. (acked and 'acked:' or '') .. string.gsub(holder, '[^!-~]', '?') end
local function edited(envelope, edits)
if not edits[1] then return envelope end
table.sort(edits, function(a, b) return a[1] < b[1] end)
local pieces, from = {}, 1
for _, edit in ipairs(edits) do
pieces[#pieces + 1], pieces[#pieces + 2] = string.sub(envelope, from, edit[1] - 1), edit[3]
from = edit[1] + edit[2]
end
pieces[#pieces + 1] = string.sub(envelope, from)
return table.concat(pieces)
end
local function instantat(envelope, kind)
local i, size = fieldat(envelope, kind)
if size == 16 then return whole(string.sub(envelope, i, i + 15)), i end
end
local function stamp(edits, envelope, kind, instant)
local _, i = instantat(envelope, kind)
if i then edits[#edits + 1] = {i, 16, string.format('%016.0f', instant)} end
end
local function redueto(edits, envelope, digits)
if string.sub(envelope, 2, 17) ~= digits then edits[#edits + 1] = {2, 16, digits} end
end
local LATEST, SINCE = 5, 6
local function scored(score)
if not score then return nil end
local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
return math.min(math.max(math.floor(n), 0), 7258118400000000)
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
local function weight(envelope)
local n, bytes = partsof(envelope)
if n < 2 then return #envelope end
return #envelope + bytes + 256 * n
end
local function write(id, envelope)
redis.call('HSET', KEYS[6], id, envelope)
noted.longest = math.max(noted.longest, weight(envelope))
end
local function keyless(edits, envelope, count)
local key, i, size = keyof(envelope), fieldat(envelope, 129)
local length, before = 11 + #key, size < 128 and 1 or 2
local long = length < 128 and string.char(length) or string.char(length % 128 + 128, math.floor(length / 128))
edits[#edits + 1] = {18, 2 + #key, '\0\0'}
edits[#edits + 1] = {i - before, before + size, long .. count .. key}
end
local LEFT = 100
local function left(key)
local list, ids = redis.pcall('HGET', KEYS[14], ':' .. key), {}
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
redis.pcall('HSET', KEYS[14], ':' .. key, table.concat(ids, ' '))
else
redis.pcall('HDEL', KEYS[14], ':' .. key)
end
end
local function list(id, envelope)
setleft(keyof(envelope), id, true)
noted.grown = true
end
local function leave(id, envelope)
local edits, _, _, at = {}, partsof(envelope)
list(id, envelope)
keyless(edits, envelope, string.sub(envelope, at, at + 10))
write(id, edited(envelope, edits))
end
local function append(id, envelope, other, most)
local n, bytes, at = partsof(envelope)
local i, size = fieldat(other, 1)
if n == 0 or not i then return nil end
local _, first = fieldat(envelope, 1)
local left = 1048576 - bytes - (first or 0)
if n >= most or size > left then return at, string.sub(envelope, at, at + 10), false, true end
redis.call('HSET', KEYS[14], id .. ':' .. n + 1, string.sub(other, i, i + size - 1))
noted.grown = true
return at, string.format('%04d%07d', n + 1, bytes + size), true, n + 1 >= most or size == left
end
local function countof(envelope)
local i, size = fieldat(envelope, 134)
return size == 10 and whole(string.sub(envelope, i, i + 9)) or 0
end
local function countdownof(id)
local value = redis.pcall('HGET', KEYS[14], id .. ':0')
local counted, n = string.match(type(value) ~= 'table' and value or '', '^(%d+) (%d+)$')
return whole(counted), whole(n)
end
local function acksleft(id)
local counted, n = countdownof(id)
return n and math.max(n - counted, 0)
end
local function setcountdown(id, counted, n) redis.call('HSET', KEYS[14], id .. ':0', us(counted) .. ' ' .. us(n)) end
local function recount(id, envelope, n)
if n > 0 then
local counted = countdownof(id) or 0
setcountdown(id, counted, n)
return math.max(n - counted, 0)
end
if countof(envelope) > 0 then redis.pcall('HDEL', KEYS[14], id .. ':0') end
end
local function partnames(id, n, from)
local names = {}
for i = from or 2, n do names[#names + 1] = id .. ':' .. i end
return names
end
local function dropparts(id, n, from)
if n >= (from or 2) then redis.pcall('HDEL', KEYS[14], unpack(partnames(id, n, from))) end
end
local function delivery(record)
local n = string.match(record or '', '^([1-9]%d*) ')
return n and #n < 10 and n or '1'
end
local function tagof(id, record)
local n = delivery(record)
return n == '1' and id or n .. ':' .. id
end
local function failure(record)
local failures, losses, when, mark, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (\31?)(.*)$')
return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when), mark == '\31'
end
local function setfailure(id, n, counts, errors, ended)
local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. errors
redis.call('HSET', KEYS[7], id, record)
return record
end
local function scorein(place, tag, id)
if place == 'pending' then return redis.call('ZSCORE', KEYS[1], tag) or nil end
if place == 'ready' then return redis.call('LPOS', KEYS[2], tag) and '0' or nil end
if place == 'retry' then return redis.call('ZSCORE', KEYS[4], tag) or nil end
if place == 'waiting' then return redis.call('ZSCORE', KEYS[16], tag) or nil end
if place == 'garbage' then return redis.call('ZSCORE', KEYS[5], id) or nil end
if place == 'done' then return redis.call('ZSCORE', KEYS[12], id) or nil end
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
local NAME = 200
local function laneof(envelope)
if string.byte(envelope, 1) ~= 2 then return nil end
local i, size = fieldat(envelope, 136)
local width = i and size > 3 and size <= 3 + NAME and whole(string.sub(envelope, i, i + 2)) or 0
local lane = i and string.sub(envelope, i + 3, i + size - 1)
if width >= 1 and width <= WIDTH and not string.find(lane, '\0', 1, true) then return lane, width end
end
local function split(tag)
local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
if n and n ~= '1' and #n < 10 then return tonumber(n), id end
return 1, tag
end
local TURN = 4
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
local found = redis.call('ZRANGEBYLEX', KEYS[15], all, to, 'LIMIT', 0, 2)
local first, second = readlane(lane, found[1]), readlane(lane, found[2])
if not first or not first.turn then return 0, WIDTH, first end
if not second or not second.turn then return 1, first.width, second end
found = redis.call('ZRANGEBYLEX', KEYS[15], waits, to, 'LIMIT', 0, 1)
return redis.call('ZLEXCOUNT', KEYS[15], all, '(' .. lane .. '\0\1'), first.width, readlane(lane, found[1])
end
local function turnsof(lane, most)
local turns = redis.call('ZRANGEBYLEX', KEYS[15], '[' .. lane .. '\0', '(' .. lane .. '\0\1', 'LIMIT', 0, most or 2 * WIDTH)
for i = 1, #turns do turns[i] = readlane(lane, turns[i]) end
return turns
end
local function hasturn(lane, tag, width) return lane .. '\0\0' .. string.format('%03d', width) .. tag end
local function waits(lane, due, tag, width)
local n, id = split(tag)
return lane .. '\0' .. string.format('%016.0f%s %d %03d', due, id, n, width)
end
local function moveto(tag, due)
if (split(tag)) == 1 then redis.call('ZADD', KEYS[1], us(due), tag) else redis.call('ZADD', KEYS[4], us(due), tag) end
noted.first = math.min(noted.first or due, due)
end
local function moveout(tag)
if (split(tag)) == 1 then redis.call('ZREM', KEYS[1], tag) else redis.call('ZREM', KEYS[4], tag) end
end
local function idle(lane, after)
local turns, tags, found = turnsof(lane), {}, {}
noted.looked = noted.looked + #turns
if not turns[1] then return found end
for i = 1, #turns do tags[i] = turns[i].tag end
local firsts, others = redis.call('ZMSCORE', KEYS[1], unpack(tags)), redis.call('ZMSCORE', KEYS[4], unpack(tags))
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
redis.call('ZREM', KEYS[15], turn.member)
redis.call('ZADD', KEYS[15], 0, waits(lane, turn.due, turn.tag, turn.width))
redis.call('ZADD', KEYS[16], us(turn.due), turn.tag)
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
local there = redis.call('HEXISTS', KEYS[6], next.id) == 1
if not there and gone >= GONE then return false end
redis.call('ZREM', KEYS[15], next.member)
if redis.call('ZREM', KEYS[16], next.tag) == 1 and there then
redis.call('ZADD', KEYS[15], 0, hasturn(lane, next.tag, next.width))
noted.given = noted.given or next.due <= now
moveto(next.tag, math.max(next.due, now))
noted.looked = noted.looked + TURN
if n + 1 >= most then return true end
else
gone = gone + 1
if not there then redis.call('HDEL', KEYS[7], next.id) end
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
redis.call('ZADD', KEYS[15], 0, hasturn(lane, tag, width))
noted.given = noted.given or due <= now
return moveto(tag, math.max(due, now))
end
redis.call('ZADD', KEYS[15], 0, waits(lane, due, tag, width))
redis.call('ZADD', KEYS[16], us(due), tag)
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
local ended = redis.call('ZREM', KEYS[15], l.hasturn(lane, id, width)) == 1
or tag ~= id and tag ~= '' and redis.call('ZREM', KEYS[15], l.hasturn(lane, tag, width)) == 1
local turns = ended and {} or l.turnsof(lane)
noted.looked = noted.looked + #turns
for _, turn in ipairs(turns) do
local _, holder = split(turn.tag)
if holder == id then ended = redis.call('ZREM', KEYS[15], turn.member) == 1 end
end
if ended then l.fill(lane) end
end
local function leavewaiting(lane, width, tag, due)
redis.call('ZREM', KEYS[16], tag)
redis.call('ZREM', KEYS[15], l.waits(lane, due, tag, width))
local n, least, next = l.inlane(lane)
if next and n < math.min(least, next.width) then l.fill(lane) end
end
local function shift(lane, width, place, tag, id, before, due)
if not lane then
redis.call('ZREM', KEYS[16], tag)
return l.moveto(tag, due)
elseif place == 'waiting' then
leavewaiting(lane, width, tag, before)
return l.enter(lane, width, tag, due)
end
if place == 'ready' then redis.call('LREM', KEYS[2], 1, tag) else l.moveout(tag) end
if due <= before and not redis.call('ZSCORE', KEYS[15], l.hasturn(lane, tag, width)) then return l.moveto(tag, due) end
vacate(lane, width, id, tag)
l.enter(lane, width, tag, due)
end
local function outof(envelope, place, tag, id, score)
local lane, width = laneof(envelope)
if not lane and place == 'waiting' then redis.call('ZREM', KEYS[16], tag) end
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
local function change(id, envelope, other, due, word, said, latest, most, acks)
local record = redis.call('HGET', KEYS[7], id)
local tag = tagof(id, record)
local place, score = locate(tag, id)
if place == 'ready' then score = us(now) end
local failures, losses, errors, ended = failure(record)
if place == 'unack' and word ~= 'append' then
setfailure(id, delivery(record), us(failures) .. ' ' .. us(losses), '\31' .. errors, ended or 0)
noted.overtaken = true
return nil, (countdownof(id))
elseif place == 'unack' then
if partsof(envelope) == 0 then return false end
leave(id, envelope)
end
if place == 'unack' or place == 'garbage' or place == 'done' or not place then return nil end
local fresh = tag == id
local edits, added, full, replaces = {}, true, false, word == 'replace'
local target = replaces and other or envelope
if word == 'append' and partsof(envelope) > 0 and expired(tonumber(delivery(record)), envelope) then
leave(id, envelope)
return nil
end
local at, count
if word == 'append' then
at, count, added, full = append(id, envelope, other, most)
if not at then return false end
if added and not full then edits[1] = {at, 11, count} end
end
noted.changed = true
if full then
redis.call('HDEL', KEYS[8], keyof(envelope))
list(id, envelope)
keyless(edits, envelope, count)
due, said, latest = now, true, nil
end
local missing
if replaces then
missing = recount(id, envelope, acks)
noted.grown = noted.grown or missing
elseif countof(envelope) > 0 then
missing = acksleft(id)
end
if missing == 0 and fresh then due, said, latest = now, true, nil end
local movable = word ~= 'append' or fresh
if not movable then said, latest = false, nil end
local bound = instantat(envelope, LATEST)
if bound and bound > 1 and movable and (latest or not replaces) then
local since = latest and ended and bound - (latest - now) > ended
if fresh or bound > now or since then latest = bound end
end
local before, digits = scored(score), string.sub(envelope, 2, 17)
if not said then due = before end
if latest then due = math.max(math.min(due, latest), now) end
local moves = (said or due < before) and not (before <= now and due <= now)
local lane, width = laneof(envelope)
if moves then digits = us(due) end
if replaces and (lane or laneof(other)) then
relanes().relane(envelope, other, place, tag, id, before, moves and due or nil)
elseif moves and (lane or place == 'waiting') then
relanes().shift(lane, width, place, tag, id, before, due)
elseif moves then
noted.first = math.min(noted.first or due, due)
if place == 'ready' then redis.call('LREM', KEYS[2], 1, tag) end
if fresh then redis.call('ZADD', KEYS[1], digits, tag) else redis.call('ZADD', KEYS[4], digits, tag) end
end
if fresh and not moves and before <= now and word ~= 'append' then
stamp(edits, target, SINCE, now)
end
if latest and (replaces or moves and latest ~= bound) then stamp(edits, target, LATEST, latest) end
if replaces or moves and fresh then redueto(edits, target, digits) end
if replaces then
dropparts(id, (partsof(envelope)))
write(id, edited(other, edits))
if not fresh then
setfailure(id, delivery(record), '0 0', errors, ended)
end
elseif edits[1] then
write(id, edited(envelope, edits))
end
if not added then return nil end
return moves and due or before
end
local PART = 256
local function afford(size)
if noted.room and noted.spent + size > noted.room then return false end
noted.spent = noted.spent + size
return true
end
local function dueof(id)
local score = redis.call('ZSCORE', KEYS[1], id)
local tag = score or tagof(id, redis.call('HGET', KEYS[7], id))
score = score or redis.call('ZSCORE', KEYS[4], tag) or redis.call('ZSCORE', KEYS[16], tag)
return score and scored(score) or now
end
local function store(own, acks, word, delay, version, id, envelope, counted, due, key)
local other = envelope
if not due then
other, due = complete(tonumber(delay), version, envelope)
key = keyof(other)
end
if key ~= '' then
local holder, acked
if word == 'refuse' then holder, acked = holderof(key) end
if holder and not (acked and holder == own) then return named(holder, acked) end
redis.call('HSET', KEYS[8], key, id)
end
local lane, width = laneof(other)
noted.stored = noted.stored + redis.call('HSET', KEYS[6], id, other)
if lane then lanes().enter(lane, width, id, due) else redis.call('ZADD', KEYS[1], string.sub(other, 2, 17), id) end
if acks > 0 then
setcountdown(id, counted or 0, acks)
noted.grown = true
end
if not lane then noted.first = math.min(noted.first or due, due) end
noted.longest = math.max(noted.longest, #other)
return '+', due
end
local function send(own, acks, word, delay, version, id, envelope, wait, timed, room)
if word == 'refuse' then return store(own, acks, word, delay, version, id, envelope) end
local other, due = complete(tonumber(delay), version, envelope)
local key, answer, latest = keyof(other), nil, wait and wait ~= '0' and now + wait or nil
local holder, acked, size, counted
if key ~= '' then holder, acked, size = holderof(key) end
if acked and holder == own then holder, acked = nil, nil end
if acked and word ~= 'keep' then
return named(holder, acked)
elseif acked then
answer = '0'
elseif holder and word == 'keep' then
answer = us(dueof(holder))
elseif holder then
if not afford(size) then return nil end
local theirs = redis.call('HGET', KEYS[6], holder)
if keyof(theirs) == key then
if word == 'replace' and not afford(PART * partsof(theirs)) then return nil end
answer, counted = change(holder, theirs, other, due, word, timed == '1' or word == 'reschedule', latest, tonumber(room), acks)
if answer == false then return named(holder) end
answer = answer and us(answer)
end
end
if answer then return '~' .. answer .. ':' .. string.gsub(holder, '[^!-~]', '?') end
local edits = {}
if latest then
due = math.min(due, latest)
stamp(edits, other, LATEST, latest)
end
if acks > 0 and (counted or 0) >= acks then due = now end
redueto(edits, other, us(due))
return store(own, acks, word, nil, nil, id, edited(other, edits), counted, due, key)
end
local SMALL = 2048
local function noteall(big, total, groups, changes, overtakes)
if noted.stored > 0 and whole(total) then mark('in:stored', us(whole(total) + noted.stored)) end
if noted.longest > math.max(whole(big) or 0, SMALL) then mark('big', us(noted.longest)) end
if noted.grown and not groups then mark('parts', '1') end
if noted.changed and not changes then mark('changed', '1') end
if noted.overtaken and not overtakes then mark('overtaken', '1') end
end
local READ = 524288
local saved, armed, big, pause, total, scheduled, imported, groups, changes, overtakes, shards =
unpack(redis.call('HMGET', KEYS[10], field, 'armed', 'big', 'pause', 'in:stored', 'in:scheduled', 'in:imported', 'parts', 'changed',
'overtaken', 'shards'), 1, 11)
local begin = ARGV[3] == 'shards' and 5 or 3
if shards or begin == 5 then
local function shardsof(said)
local n = tonumber(string.match(said or '', '^[1-9]%d?$') or '')
return n and n <= 64 and n or nil
end
local function othershards(said, n)
local shards = shardsof(said) and said or '1'
return shards ~= n and {err = 'DQSHARDS ' .. shards} or nil
end
local other = othershards(shards, begin == 5 and ARGV[4] or '1')
if other then return other end
end
guard(redis.call('ZCARD', KEYS[1]), redis.call('LLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]),
redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]), redis.call('HLEN', KEYS[6]),
redis.call('HLEN', KEYS[7]), redis.call('HLEN', KEYS[8]), redis.call('ZCARD', KEYS[9]),
redis.call('HLEN', KEYS[11]), redis.call('ZCARD', KEYS[12]), redis.call('ZCARD', KEYS[13]))
if KEYS[15] then guard(redis.call('ZCARD', KEYS[15]), redis.call('ZCARD', KEYS[16])) end
local FIELDS = {sequence = 3, countdown = 1}
local grouped, i = groups, begin
while ARGV[i] do
grouped = grouped or ARGV[i] == 'append' or ARGV[i] == 'countdown'
i = i + 1 + (PUTS[ARGV[i]] or FIELDS[ARGV[i]])
end
if grouped then guard(redis.call('HLEN', KEYS[14])) end
local answer = again(saved)
if answer then return answer end
redis.call('ZADD', KEYS[1], 'XX', 0, '')
if not whole(total) then
local BOOKS = {'in:stored', 'in:found', 'kept', 'in:followed', 'in:scheduled', 'in:imported', 'out:acked', 'out:over', 'out:superseded',
'out:intercepted', 'out:canceled', 'out:deleted', 'out:aged', 'out:trimmed', 'out:lost'}
local function openbooks()
local here = redis.call('HLEN', KEYS[6])
redis.call('HDEL', KEYS[10], unpack(BOOKS))
redis.call('HSET', KEYS[10], 'in:stored', '0', 'told', '0 0', 'books', us(now))
if here > 0 then redis.call('HSET', KEYS[10], 'in:found', us(here)) end
end
openbooks()
total, scheduled, imported = '0', nil, nil
end
local sequences = {['schedule/'] = 0, ['import '] = 0}
local function put(name, number, after, acks, at)
local last = name and lastof(name)
if last and last >= number then return '#' .. last end
if name and after ~= '' and not (last and last >= after) then return '!' end
local before = noted.stored
local answer, due = send(nil, acks, unpack(ARGV, at, at + PUTS[ARGV[at]]))
local kind = name and string.match(name, '^%w+[/ ]')
if sequences[kind] then sequences[kind] = sequences[kind] + noted.stored - before end
if answer == '+' then answer = '+' .. us(due) end
if name and answer and string.sub(answer, 1, 1) ~= '=' then redis.call('HSET', KEYS[11], name, number) end
return answer
end
local answers, name, number, after, acks = {}, nil, nil, nil, 0
i = begin
while ARGV[i] do
if ARGV[i] == 'sequence' then
name, number, after = unpack(ARGV, i + 1, i + 3)
elseif ARGV[i] == 'countdown' then
acks = tonumber(ARGV[i + 1])
else
local answer = noted.looked < LOOKS and put(name, number, after, acks, i)
if not answer then break end
answers[#answers + 1] = answer
name, acks, noted.room = nil, 0, READ
end
i = i + 1 + (PUTS[ARGV[i]] or FIELDS[ARGV[i]])
end
answers = table.concat(answers, ' ')
if noted.first then
local first = gate(noted.first, pause)
if sooner(first, armed) then arm(first) end
end
noteall(big, total, groups, changes, overtakes)
if sequences['schedule/'] > 0 then mark('in:scheduled', us((whole(scheduled) or 0) + sequences['schedule/'])) end
if sequences['import '] > 0 then mark('in:imported', us((whole(imported) or 0) + sequences['import '])) end
remember(answers)
return {us(now), answers, noted.uneven or ''}
