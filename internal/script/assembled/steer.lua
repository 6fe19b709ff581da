-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, done, result, holds, parts, lanes, waiting
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
local function guard() end
local marks = {}
local function mark(name, value)
marks[#marks + 1] = name
marks[#marks + 1] = value
end
local function remember(reply)
redis.call('HSET', KEYS[10], field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply, unpack(marks))
end
local NOQUEUE = {err = 'DQNOQUEUE the queue has no key'}
local function missing(armed)
if armed or redis.call('HLEN', KEYS[10]) > 0 or redis.call('HLEN', KEYS[6]) > 0 then return nil end
return NOQUEUE
end
local function unknown(layout)
if not layout or layout == '1' then return nil end
return {err = 'DQLAYOUT ' .. string.sub(string.gsub(layout, '[^!-~]', '?'), 1, 20)}
end
local takenOut = 0
local noted = {stored = 0, longest = 0, looked = 0, spent = 0}
local LOOKS = 1000
local function holdends(key)
local ends = math.floor(tonumber(redis.call('ZSCORE', KEYS[13], key) or 0) or 0)
if ends > now and ends <= now + 31536000000000 then return ends end
end
local function release(key)
if not holdends(key) then return '!gone' end
redis.call('ZREM', KEYS[13], key)
if string.sub(redis.call('HGET', KEYS[8], key) or '', 1, 6) == 'acked:' then redis.call('HDEL', KEYS[8], key) end
return 'done'
end
local function scored(score)
if not score then return nil end
local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
local function keyof(envelope, head)
head = head or 17
local hi, lo = string.byte(envelope, head + 1, head + 2)
if not lo or hi * 256 + lo == 0 then return '' end
return string.sub(envelope, head + 3, head + 2 + hi * 256 + lo)
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
if place == 'done' then return redis.call('ZSCORE', KEYS[11], id) or nil end
end
local function locate(tag, id)
for _, place in ipairs({'pending', 'retry', 'garbage', 'done', 'waiting', tag ~= id and 'ready' or nil}) do
local score = scorein(place, tag, id)
if score and place == 'done' and scored(score) <= now then return nil end
if score then return place, score end
end
return 'unack', ''
end
local function remove(place, tag, id)
if place == 'pending' then
redis.call('ZREM', KEYS[1], tag)
elseif place == 'ready' then
redis.call('LREM', KEYS[2], 1, tag)
elseif place == 'unack' then
takenOut = takenOut + 1
elseif place == 'retry' then
redis.call('ZREM', KEYS[4], tag)
elseif place == 'garbage' then
redis.call('ZREM', KEYS[5], id)
elseif place == 'done' then
redis.call('HDEL', KEYS[12], id)
redis.call('ZREM', KEYS[11], id)
end
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
local function freekey(id, key, holds, unlist)
if key == '' then return end
if redis.call('HGET', KEYS[8], key) ~= id then
if unlist then unlist(key, id) end
return
end
if holds and holdends(key) then
redis.call('HSET', KEYS[8], key, 'acked:' .. id)
else
redis.call('HDEL', KEYS[8], key)
end
end
local function erase(id, key, holds, unlist)
freekey(id, key, holds, unlist)
redis.call('HDEL', KEYS[6], id)
redis.call('HDEL', KEYS[7], id)
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
local DEADLINE = 130
local function steer(c, i)
local id, tag, listed = ARGV[i], ARGV[i], ARGV[i + 1]
if c.bykey then
id = redis.call('HGET', KEYS[8], ARGV[i]) or ''
if keyof(redis.call('HGET', KEYS[6], id) or '') ~= ARGV[i] then id = '' end
tag = id
end
local place, record, score = c.only, nil
if c.only ~= '' and c.only ~= 'garbage' and c.only ~= 'done' then
local _
_, id = split(tag)
end
if c.only == '' or c.only == 'unack' then
record = redis.call('HGET', KEYS[7], id) or ''
local current = tagof(id, record)
place, score = locate(current, id)
if c.only ~= '' and (place ~= c.only or tag ~= current) then place = nil end
tag = current
else
score = scorein(c.only, tag, id)
if not score or c.only == 'done' and scored(score) <= now then place = nil end
end
local envelope = place and redis.call('HGET', KEYS[6], id)
local same = place == 'unack' or listed == '' or listed == score
if not envelope or not same and listed ~= score .. ' ' .. redis.sha1hex(envelope) then place = nil end
local at = place == 'ready' and now or scored(score)
local due = place == 'ready' or (place == 'pending' or place == 'retry') and at <= now
local where = not place and 'gone' or due and 'ready' or place
local allowed = place and (place ~= 'unack' or c.what == 'cancel')
if not c.deletes then allowed = allowed and (place == 'garbage') == (c.what == 'requeue') and place ~= 'done' end
local key = allowed and keyof(envelope) or ''
local holder, acked
if c.what == 'requeue' and key ~= '' then holder, acked = holderof(key) end
if not allowed then
where = '!' .. where
elseif holder and holder ~= id then
where = named(holder, acked)
elseif c.deletes then
c.deleted = c.deleted + 1
remove(place, tag, id)
if c.laned then relanes().outof(envelope, place, tag, id, score) end
if c.drop then c.drop(id, envelope) end
erase(id, key ~= '' and key or c.nameof and c.nameof(envelope) or '', c.holds, c.unlist)
else
local next = c.arg + c.nth * c.step
if c.what == 'by' then next = at + c.arg end
next = math.min(next, 7258118400000000)
local stays = next <= now and (due or place == 'waiting' and at <= now)
next = math.max(next, now)
local edits, fresh = {}, tag == id and place ~= 'garbage'
if fresh and not stays then redueto(edits, envelope, us(next)) end
if expired(fresh and 1 or 2, edited(envelope, edits), next) then
if not c.anew then return '-' .. where end
stays, edits = false, {}
if fresh then redueto(edits, envelope, us(next)) end
stamp(edits, envelope, DEADLINE, 0)
end
c.nth = c.nth + 1
if stays then
where = '~' .. where
else
local lane, width = laneof(envelope)
if lane and place ~= 'garbage' or place == 'waiting' then
relanes().shift(lane, width, place, tag, id, at, next)
elseif place == 'pending' then
redis.call('ZADD', KEYS[1], us(next), tag)
else
if place == 'ready' or place == 'garbage' then remove(place, tag, id) end
if place == 'garbage' then
record = record or redis.call('HGET', KEYS[7], id)
local _, _, errors = failure(record)
local n = delivery(record)
if n == '1' then n = '2' end
tag = n .. ':' .. id
setfailure(id, n, '0 0', errors)
if key ~= '' then redis.call('HSET', KEYS[8], key, id) end
local name = c.nameof and c.nameof(envelope) or ''
if name ~= '' then c.unlist(name, id, true) end
end
if lane then lanes().enter(lane, width, tag, next) else redis.call('ZADD', KEYS[4], us(next), tag) end
end
if edits[1] then redis.call('HSET', KEYS[6], id, edited(envelope, edits)) end
if not lane then noted.first = math.min(noted.first or next, next) end
end
end
return where
end
local function redue(envelope, digits) return string.sub(envelope, 1, 1) .. digits .. string.sub(envelope, 18) end
local FOUR = '^(' .. string.rep('\30[^\30]*', 4) .. ')\30'
local function witherror(errors, n, text)
if errors ~= '' and string.sub(errors, 1, 1) ~= '\30' then errors = '\30' .. '0 0 ' .. errors end
return '\30' .. us(now) .. ' ' .. us(n) .. ' ' .. text .. (string.match(errors, FOUR) or errors)
end
local function skip(c, i)
local id = ARGV[i]
local envelope, record = redis.call('HGET', KEYS[6], id), redis.call('HGET', KEYS[7], id)
if not envelope then return '!gone' end
local lane, width = laneof(envelope)
local tag = tagof(id, record)
local place, score = locate(tag, id)
local at = place == 'ready' and now or scored(score)
local waits = place == 'pending' or place == 'retry' or place == 'ready'
local where = waits and at <= now and 'ready' or place or 'gone'
if not lane or not waits then return '!' .. where end
if c.what == 'garbage' then
c.dead = c.dead + 1
local failures, losses, errors = failure(record)
setfailure(id, delivery(record), us(failures) .. ' ' .. us(losses), witherror(errors, 0, ARGV[i + 1]))
local key = keyof(envelope)
freekey(id, key ~= '' and key or c.nameof and c.nameof(envelope) or '', c.holds, c.unlist)
remove(place, tag, id)
redis.call('ZADD', KEYS[5], us(now), id)
relanes().vacate(lane, width, id, tag)
else
local last = redis.call('ZREVRANGEBYLEX', KEYS[15], '(' .. lane .. '\0' .. us(now + 1), '[' .. lane .. '\0', 'LIMIT', 0, 1)[1]
local due = last and whole(string.sub(last, #lane + 2, #lane + 17))
if not due then return '~' .. where end
due = math.max(due + 1, at)
remove(place, tag, id)
relanes().vacate(lane, width, id, tag)
lanes().enter(lane, width, tag, due)
if tag == id then redis.call('HSET', KEYS[6], id, redue(envelope, us(due))) end
end
return where
end
local what, bykey = ARGV[3], ARGV[6] == 'key'
local only = bykey and '' or ARGV[6]
local out = what == 'cancel' and 'out:canceled' or 'out:deleted'
local saved, armed, pause, layout, groups, limited, firstHold, canceled, garbage, outBefore =
unpack(redis.call('HMGET', KEYS[10], field, 'armed', 'pause', 'layout', 'parts', 'limited', 'holds', 'canceled', 'garbage', out), 1, 10)
local reply, at = recall(saved)
if reply then return {at, reply} elseif reply == false then return {err = STALE} end
local refusal = missing(armed) or only ~= '' and unknown(layout)
if refusal then return refusal end
guard(redis.call('ZCARD', KEYS[1]), redis.call('LLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]),
redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5]), redis.call('HLEN', KEYS[6]),
redis.call('HLEN', KEYS[7]), redis.call('HLEN', KEYS[8]), redis.call('ZCARD', KEYS[9]),
redis.call('ZCARD', KEYS[11]), redis.call('HLEN', KEYS[12]), redis.call('ZCARD', KEYS[13]))
local laned = redis.call('ZCARD', KEYS[15]) + redis.call('ZCARD', KEYS[16]) > 0
local c = {
what = what, arg = tonumber(ARGV[4]), step = tonumber(ARGV[5]), only = only, bykey = bykey, anew = ARGV[7] == '1',
deletes = what == 'delete' or what == 'cancel',
laned = laned, holds = (whole(firstHold) or 0) > 0,
nth = 0, deleted = 0, dead = 0,
}
if groups then
guard(redis.call('HLEN', KEYS[14]))
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
local function dropparts(id, n, from)
if n >= (from or 2) then redis.pcall('HDEL', KEYS[14], unpack(partnames(id, n, from))) end
end
local function dropall(id, envelope) dropparts(id, (partsof(envelope)), fieldat(envelope, 134) and 0 or nil) end
local function leftkey(envelope)
local i, size = fieldat(envelope, 129)
return i and size > 11 and string.sub(envelope, i + 11, i + size - 1) or ''
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
c.drop, c.nameof, c.unlist = dropall, leftkey, setleft
end
redis.call('ZREM', KEYS[3], '')
local change = (what == 'garbage' or what == 'last') and skip or steer
local words = {}
for i = 8, #ARGV, 2 do
if noted.looked >= LOOKS then break end
words[#words + 1] = what == 'release' and release(ARGV[i]) or change(c, i)
end
local said = table.concat(words, ' ')
if noted.first then
local function gate(due, paused) return math.max(due, whole(paused) or 0) end
local function sooner(due, before)
before = whole(before) or 0
return before == 0 or due < before
end
local function arm(due)
redis.call('ZADD', KEYS[9], us(due), 'w')
mark('armed', us(due))
end
local first = gate(noted.first, pause)
if sooner(first, armed) then
arm(first)
armed = us(first)
end
end
if c.dead > 0 then mark('garbage', us((whole(garbage) or 0) + c.dead)) end
if c.deleted > 0 then mark(out, us((whole(outBefore) or 0) + c.deleted)) end
if takenOut > 0 then
mark('canceled', us(math.max(now, (whole(canceled) or 0) + 1)))
local function freed(limited, armed, fetches)
local since, open = string.match(limited, '^(%d+) %d+ (%d+) %d+ 1$')
if not since then return nil, false end
if fetches and (whole(open) or 0) <= now then return nil, true end
local wakes = us(math.max(now, whole(open)))
redis.call('ZADD', KEYS[9], wakes, 'w')
return since .. ' ' .. us(whole(armed) or 0) .. ' ' .. open .. ' ' .. wakes .. ' 0'
end
local putOff = limited and freed(limited, armed)
if putOff then mark('limited', putOff) end
end
remember(said)
return {us(now), said}
