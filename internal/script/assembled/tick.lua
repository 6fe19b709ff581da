-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, wake, state, history, done, result, holds, parts, lanes, waiting
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local written, digits
local function us(n)
if n ~= written then written, digits = n, string.format('%d', n) end
return digits
end
local marks = {}
local function mark(name, value)
marks[#marks + 1] = name
marks[#marks + 1] = value
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
local function arm(due)
redis.call('ZADD', KEYS[10], us(due), 'w')
mark('armed', us(due))
end
local function freed(limited, armed, fetches)
local since, open = string.match(limited, '^(%d+) %d+ (%d+) %d+ 1$')
if not since then return nil, false end
if fetches and (whole(open) or 0) <= now then return nil, true end
local wakes = us(math.max(now, whole(open)))
redis.call('ZADD', KEYS[10], wakes, 'w')
return since .. ' ' .. us(whole(armed) or 0) .. ' ' .. open .. ' ' .. wakes .. ' 0'
end
local noted = {stored = 0, longest = 0, looked = 0, spent = 0}
local function guard() end
local CENTURY = 3155760000000000
local function longest(text, asked)
local lease, at = string.match(text or '', '^(%d+) (%d+)$')
lease, at = whole(lease), whole(at)
if lease and at and lease > asked and lease <= CENTURY and math.abs(now - at) <= lease then return lease, text end
return asked, us(asked) .. ' ' .. us(now)
end
local KINDS = {'in:stored', 'delivered', 'out:acked', 'failed', 'lost', 'garbage', 'superseded', 'started', 'late', 'latest'}
local BOOKS = {'in:stored', 'in:found', 'kept', 'in:followed', 'in:scheduled', 'in:imported', 'out:acked', 'out:over', 'out:superseded',
'out:intercepted', 'out:canceled', 'out:deleted', 'out:aged', 'out:trimmed', 'out:lost'}
local function openbooks()
local here = redis.call('HLEN', KEYS[7])
redis.call('HDEL', KEYS[11], unpack(BOOKS))
redis.call('HSET', KEYS[11], 'in:stored', '0', 'told', '0 0', 'books', us(now))
if here > 0 then redis.call('HSET', KEYS[11], 'in:found', us(here)) end
end
local KNOWN = 14
local function scored(score)
if not score then return nil end
local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
local function score(head) return scored(head[2]) end
local function agingat(aging, ticked)
local HOUR, MINUTE = 3600000000, 60000000
local stepped = math.abs(now - ticked) > HOUR and (aging == 0 or ARGV[2] == '1')
if stepped or aging > now + MINUTE then return now + MINUTE end
return aging ~= 0 and now - aging > HOUR and 0 or aging
end
local function isover(first) return first and first ~= '0' and (whole(first) or 0) <= now end
local function read()
local state = redis.call('HMGET', KEYS[11], 'ticked', 'lease', 'grace', 'aging', 'done', 'holds', 'parts', 'swept', 'cursor', 'armed', 'pause',
'limited', 'told', 'seen', unpack(KINDS))
local ticked, asked, grace, aging, done, firstHold, groups, swept, cursor, armed, pause, limited, told, seen = unpack(state, 1, KNOWN)
local before = whole(aging) or 0
local agingAt = agingat(before, whole(ticked) or now)
local leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'))
local furthest = leased and score(redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES'))
local oldest = score(redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES'))
guard(redis.call('HLEN', KEYS[4]), redis.call('HLEN', KEYS[8]), redis.call('HLEN', KEYS[9]), redis.call('HLEN', KEYS[14]),
redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[5]), redis.call('ZCARD', KEYS[10]), redis.call('ZCARD', KEYS[15]),
redis.call('ZCARD', KEYS[13]), redis.call('HLEN', KEYS[7]))
local laned = redis.call('ZCARD', KEYS[17]) + redis.call('ZCARD', KEYS[18]) > 0
if groups then guard(redis.call('HLEN', KEYS[16])) end
redis.call('ZREM', KEYS[3], '')
if agingAt ~= before then mark('aging', us(agingAt)) end
if not state[KNOWN + 1] then
openbooks()
state[KNOWN + 1], state[KNOWN + 3], told = '0', '0', '0 0'
end
seen = whole(seen) or 0
if seen > now then seen = 0 end
return {
state = state, seen = seen, grace = grace, done = whole(done) or 0, holds = (whole(firstHold) or 0) > 0, groups = groups,
swept = swept, cursor = cursor, armed = armed,
pause = pause, limited = limited, told = told, leased = leased, furthest = furthest, oldest = oldest, laned = laned,
leaseUS = longest(asked, tonumber(ARGV[4])), bytes = tonumber(ARGV[9]),
doneOver = agingAt <= now and isover(done), holdsOver = agingAt <= now and isover(firstHold),
byAge = agingAt <= now, byPages = agingAt ~= 0,
moved = 0, size = 0,
lost = 0, overflow = 0, replaced = 0, dead = {}, missing = {}, parts = {},
outs = {},
}
end
local function split(tag)
local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
if n and n ~= '1' and #n < 10 then return tonumber(n), id end
return 1, tag
end
local function lend(name, ends, tags)
local list = table.concat(tags, ' ')
redis.call('ZADD', KEYS[3], ends, name)
redis.call('HSET', KEYS[4], name, list, name .. '#', #tags)
return list
end
local function lendrest(name, ends, tags)
name = string.gsub(name, '~+$', '')
repeat name = name .. '~' until redis.call('HEXISTS', KEYS[4], name) == 0
lend(name, ends, tags)
end
local function delivery(record)
local n = string.match(record or '', '^([1-9]%d*) ')
return n and #n < 10 and n or '1'
end
local function isheld(id, n)
return redis.call('HEXISTS', KEYS[7], id) == 1 and tonumber(delivery(redis.call('HGET', KEYS[8], id))) <= n
end
local SWEEP = 100
local MOVES = 500
local LOST = 'its lease ran out: its consumer died or was cut off'
local UNRECEIVED = 'it did not come through: the line is too slow for it, or a limit of the server cuts it off'
local function shorten(c)
local latest = us(now + c.leaseUS)
local far, leases = redis.call('ZREVRANGEBYSCORE', KEYS[3], '+inf', '(' .. latest, 'LIMIT', 0, SWEEP), {}
for i = 1, #far do leases[2 * i - 1], leases[2 * i] = latest, far[i] end
if leases[1] then redis.call('ZADD', KEYS[3], unpack(leases)) end
end
local seed = tonumber(ARGV[3])
local function jitter(width)
seed = seed * 16807 % 2147483647
return math.floor(seed / 2147483647 * width)
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
local FOUR = '^(' .. string.rep('\30[^\30]*', 4) .. ')\30'
local function witherror(errors, n, text)
if errors ~= '' and string.sub(errors, 1, 1) ~= '\30' then errors = '\30' .. '0 0 ' .. errors end
return '\30' .. us(now) .. ' ' .. us(n) .. ' ' .. text .. (string.match(errors, FOUR) or errors)
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
local function dropparts(id, n, from)
if n >= (from or 2) then redis.pcall('HDEL', KEYS[16], unpack(partnames(id, n, from))) end
end
local function dropall(id, envelope) dropparts(id, (partsof(envelope)), fieldat(envelope, 134) and 0 or nil) end
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
local found = redis.call('ZRANGEBYLEX', KEYS[17], all, to, 'LIMIT', 0, 2)
local first, second = readlane(lane, found[1]), readlane(lane, found[2])
if not first or not first.turn then return 0, WIDTH, first end
if not second or not second.turn then return 1, first.width, second end
found = redis.call('ZRANGEBYLEX', KEYS[17], waits, to, 'LIMIT', 0, 1)
return redis.call('ZLEXCOUNT', KEYS[17], all, '(' .. lane .. '\0\1'), first.width, readlane(lane, found[1])
end
local function turnsof(lane, most)
local turns = redis.call('ZRANGEBYLEX', KEYS[17], '[' .. lane .. '\0', '(' .. lane .. '\0\1', 'LIMIT', 0, most or 2 * WIDTH)
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
redis.call('ZREM', KEYS[17], turn.member)
redis.call('ZADD', KEYS[17], 0, waits(lane, turn.due, turn.tag, turn.width))
redis.call('ZADD', KEYS[18], us(turn.due), turn.tag)
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
redis.call('ZREM', KEYS[17], next.member)
if redis.call('ZREM', KEYS[18], next.tag) == 1 and there then
redis.call('ZADD', KEYS[17], 0, hasturn(lane, next.tag, next.width))
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
redis.call('ZADD', KEYS[17], 0, hasturn(lane, tag, width))
noted.given = noted.given or due <= now
return moveto(tag, math.max(due, now))
end
redis.call('ZADD', KEYS[17], 0, waits(lane, due, tag, width))
redis.call('ZADD', KEYS[18], us(due), tag)
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
local ended = redis.call('ZREM', KEYS[17], l.hasturn(lane, id, width)) == 1
or tag ~= id and tag ~= '' and redis.call('ZREM', KEYS[17], l.hasturn(lane, tag, width)) == 1
local turns = ended and {} or l.turnsof(lane)
noted.looked = noted.looked + #turns
for _, turn in ipairs(turns) do
local _, holder = split(turn.tag)
if holder == id then ended = redis.call('ZREM', KEYS[17], turn.member) == 1 end
end
if ended then l.fill(lane) end
end
local function leavewaiting(lane, width, tag, due)
redis.call('ZREM', KEYS[18], tag)
redis.call('ZREM', KEYS[17], l.waits(lane, due, tag, width))
local n, least, next = l.inlane(lane)
if next and n < math.min(least, next.width) then l.fill(lane) end
end
local function shift(lane, width, place, tag, id, before, due)
if not lane then
redis.call('ZREM', KEYS[18], tag)
return l.moveto(tag, due)
elseif place == 'waiting' then
leavewaiting(lane, width, tag, before)
return l.enter(lane, width, tag, due)
end
if place == 'ready' then redis.call('LREM', KEYS[2], 1, tag) else l.moveout(tag) end
if due <= before and not redis.call('ZSCORE', KEYS[17], l.hasturn(lane, tag, width)) then return l.moveto(tag, due) end
vacate(lane, width, id, tag)
l.enter(lane, width, tag, due)
end
local function outof(envelope, place, tag, id, score)
local lane, width = laneof(envelope)
if not lane and place == 'waiting' then redis.call('ZREM', KEYS[18], tag) end
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
local function finish(id, n, counts, errors)
local envelope = redis.call('HGET', KEYS[7], id) or ''
local i, size = fieldat(envelope, 133)
if KEYS[17] then relanes().outof(envelope, 'unack', '', id) end
if not i then
dropall(id, envelope)
redis.call('HDEL', KEYS[7], id)
redis.call('HDEL', KEYS[8], id)
return nil, #envelope
end
local ends = now
for j = 0, math.min(size, 7) - 1 do ends = ends + string.byte(envelope, i + j) % 128 * 128 ^ j end
setfailure(id, n, counts, '\31' .. errors)
redis.call('ZADD', KEYS[13], us(ends), id)
return ends, #envelope
end
local function keyof(envelope, head)
head = head or 17
local hi, lo = string.byte(envelope, head + 1, head + 2)
if not lo or hi * 256 + lo == 0 then return '' end
return string.sub(envelope, head + 3, head + 2 + hi * 256 + lo)
end
local function weight(envelope)
local n, bytes = partsof(envelope)
if n < 2 then return #envelope end
return #envelope + bytes + 256 * n
end
local function leftkey(envelope)
local i, size = fieldat(envelope, 129)
return i and size > 11 and string.sub(envelope, i + 11, i + size - 1) or ''
end
local LEFT = 100
local function left(key)
local list, ids = redis.pcall('HGET', KEYS[16], ':' .. key), {}
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
redis.pcall('HSET', KEYS[16], ':' .. key, table.concat(ids, ' '))
else
redis.pcall('HDEL', KEYS[16], ':' .. key)
end
end
local function holdends(key)
local ends = math.floor(tonumber(redis.call('ZSCORE', KEYS[15], key) or 0) or 0)
if ends > now and ends <= now + 31536000000000 then return ends end
end
local function freekey(id, key, holds, unlist)
if key == '' then return end
if redis.call('HGET', KEYS[9], key) ~= id then
if unlist then unlist(key, id) end
return
end
if holds and holdends(key) then
redis.call('HSET', KEYS[9], key, 'acked:' .. id)
else
redis.call('HDEL', KEYS[9], key)
end
end
local function countof(envelope)
local i, size = fieldat(envelope, 134)
return size == 10 and whole(string.sub(envelope, i, i + 9)) or 0
end
local function countdownof(id)
local value = redis.pcall('HGET', KEYS[16], id .. ':0')
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
local function addparts(c, nth, id, envelope)
local missing, parts = c.missing, c.parts
local acks = c.groups and missingof(id, envelope)
if acks then missing[#missing + 1], missing[#missing + 2] = us(nth), us(acks) end
local n = partsof(envelope)
if n < 2 then return end
local values = redis.pcall('HMGET', KEYS[16], unpack(partnames(id, n)))
local there = not values.err
for i = 1, #values do there = there and values[i] end
local at = #parts
parts[at + 1], parts[at + 2] = us(nth), there and us(#values) or '0'
for i = 1, there and #values or 0 do parts[at + 2 + i] = values[i] end
end
local function lose(c, id, n, why)
c.lost = c.lost + 1
local before = redis.call('HGET', KEYS[8], id)
local failures, losses, errors = failure(before)
losses = losses + 1
local poison = losses >= tonumber(ARGV[5]) and not superseded(before)
errors = witherror(errors, n, poison and ARGV[8] or why)
local counts = us(failures) .. ' ' .. us(losses)
if superseded(before) then
local ends, size = finish(id, us(n + 1), counts, errors)
c.replaced, c.size = c.replaced + 1, c.size + size
if not ends then
c.outs['out:superseded'] = (c.outs['out:superseded'] or 0) + 1
elseif c.done == 0 or ends < c.done then
c.done, c.kept = ends, true
end
return
end
local record = setfailure(id, us(n + 1), counts, errors)
if poison then
local dead, envelope = c.dead, redis.call('HGET', KEYS[7], id)
local key, unlist = keyof(envelope), c.groups and setleft
freekey(id, key ~= '' and key or unlist and leftkey(envelope) or '', c.holds, unlist)
redis.call('ZADD', KEYS[6], us(now), id)
relanes().outof(envelope, 'unack', '', id)
c.size = c.size + weight(envelope)
dead[#dead + 1] = id
dead[#dead + 1] = c.size <= c.bytes and envelope or ''
dead[#dead + 1] = record
if c.size <= c.bytes then addparts(c, -#dead / 3, id, envelope) end
else
local next = now + jitter(500000 * math.min(losses, 20))
if not c.first or next < c.first then c.first = next end
redis.call('ZADD', KEYS[5], us(next), us(n + 1) .. ':' .. id)
end
end
local function graceof(text, leaseUS)
local begun, upto, before = string.match(text or '', '^(%d+) (%d+) (%d+)$')
begun, upto, before = whole(begun) or 0, whole(upto) or 0, whole(before) or 0
if begun > now then begun, upto, before = 0, 0, 0 end
return begun, upto, before, math.min(upto + math.floor(leaseUS * 3 / 4), begun + 2 * leaseUS)
end
local function leasesover(c)
local _, upto, before, ends = graceof(c.grace, c.leaseUS)
if ends <= now then return redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', us(now), 'LIMIT', 0, SWEEP) end
local over = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', us(math.min(before, now)), 'LIMIT', 0, SWEEP)
if upto < now then
local rest = redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. us(upto), us(now), 'LIMIT', 0, SWEEP - #over)
for i = 1, #rest do over[#over + 1] = rest[i] end
end
return over
end
local function reclaim(c)
if c.furthest and c.furthest > now + c.leaseUS then shorten(c) end
if not c.leased or c.leased > now then return end
if now - c.seen > c.leaseUS * 2 / 3 then return end
local looked = 0
local function full() return c.moved >= SWEEP or looked >= MOVES or c.size > c.bytes / 4 end
local over = leasesover(c)
c.ended = over[1] ~= nil
c.more = #over == SWEEP
for _, lease in ipairs(over) do
if full() then
c.more = true
break
end
local rest, why = {}, string.sub(lease, -1) == '!' and UNRECEIVED or LOST
for tag in string.gmatch(redis.call('HGET', KEYS[4], lease) or '', '%S+') do
if full() then
rest[#rest + 1] = tag
else
looked = looked + 1
local n, id = split(tag)
if isheld(id, n) then
if n > 1 or not redis.call('ZSCORE', KEYS[1], id) then
c.moved = c.moved + 1
lose(c, id, n, why)
end
elseif redis.call('HEXISTS', KEYS[7], id) == 0 then
redis.call('HDEL', KEYS[8], id)
end
end
end
local ends = rest[1] and redis.call('ZSCORE', KEYS[3], lease)
redis.call('ZREM', KEYS[3], lease)
redis.call('HDEL', KEYS[4], lease, lease .. '#')
if rest[1] then
lendrest(lease, ends, rest)
c.more = true
end
end
end
local function clear(ids)
local parts = 0
for i = 1, #ids do
if parts > PARTS / 2 then
for j = #ids, i, -1 do ids[j] = nil end
return false
end
local from, size = 0, 6
repeat
local gone = redis.call('HDEL', KEYS[16], unpack(partnames(ids[i], from + size - 1, from)))
parts, from, size = parts + gone, from + size, 2 * size
until gone == 0 or from > PARTS
end
return true
end
local function gone(c, out, n) c.outs[out] = (c.outs[out] or 0) + n end
local function trimgarbage(c)
local age, most, ids, all = tonumber(ARGV[6]), tonumber(ARGV[7]), {}, true
if c.byAge and age > 0 and c.oldest <= now - age then
ids = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', us(now - age), 'LIMIT', 0, SWEEP)
end
local aged = #ids
if most > 0 then
local over = math.max(0, math.min(redis.call('ZCARD', KEYS[6]) - aged - most, SWEEP - aged))
if over > 0 then
for i, id in ipairs(redis.call('ZRANGE', KEYS[6], aged, aged + over - 1)) do ids[aged + i] = id end
end
end
if not ids[1] then return ids end
if c.groups then all = clear(ids) end
redis.call('ZREM', KEYS[6], unpack(ids))
aged = math.min(aged, #ids)
c.overflow = #ids - aged
if aged > 0 then gone(c, 'out:aged', redis.call('HDEL', KEYS[7], unpack(ids, 1, aged))) end
if c.overflow > 0 then gone(c, 'out:trimmed', redis.call('HDEL', KEYS[7], unpack(ids, aged + 1))) end
redis.call('HDEL', KEYS[8], unpack(ids))
return ids, not all
end
local function trim(c)
local ids, rest = {}, false
if c.oldest then ids, rest = trimgarbage(c) end
local n = #ids
if c.doneOver and n < SWEEP then
local over = redis.call('ZRANGEBYSCORE', KEYS[13], '-inf', us(now), 'LIMIT', 0, SWEEP - n)
if over[1] then
if c.groups then rest = not clear(over) or rest end
redis.call('ZREM', KEYS[13], unpack(over))
redis.call('HDEL', KEYS[14], unpack(over))
gone(c, 'out:over', redis.call('HDEL', KEYS[7], unpack(over)))
redis.call('HDEL', KEYS[8], unpack(over))
n = n + #over
end
c.done, c.kept = score(redis.call('ZRANGE', KEYS[13], 0, 0, 'WITHSCORES')) or 0, true
end
if c.kept then mark('done', us(c.done)) end
if (rest or n >= SWEEP) and (c.overflow > 0 or not c.byPages) then c.more = true end
end
local function freeholds(c)
local MOST = 500
if not c.holdsOver then return end
local over, free = redis.call('ZRANGEBYSCORE', KEYS[15], '-inf', us(now), 'LIMIT', 0, MOST), {}
if over[1] then
local holders = redis.call('HMGET', KEYS[9], unpack(over))
for i = 1, #over do
if holders[i] and string.sub(holders[i], 1, 6) == 'acked:' then free[#free + 1] = over[i] end
end
redis.call('ZREM', KEYS[15], unpack(over))
if free[1] then redis.call('HDEL', KEYS[9], unpack(free)) end
end
if #over == MOST and not c.byPages then c.more = true end
mark('holds', us(score(redis.call('ZRANGE', KEYS[15], 0, 0, 'WITHSCORES')) or 0))
end
local function rescore(n)
for _, range in ipairs({{'-inf', '(0'}, {'(0', '+inf'}}) do
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[17], range[1], range[2], 'LIMIT', 0, n)) do
redis.call('ZADD', KEYS[17], 0, member)
end
end
end
local function tagof(id, record)
local n = delivery(record)
return n == '1' and id or n .. ':' .. id
end
local function isended(turn)
local _, id = split(turn.tag)
return redis.call('HEXISTS', KEYS[7], id) == 0 or redis.call('ZSCORE', KEYS[6], id) or redis.call('ZSCORE', KEYS[13], id)
or redis.call('ZSCORE', KEYS[18], tagof(id, redis.call('HGET', KEYS[8], id)))
end
local function sweeplanes(lane, n)
local l = lanes()
rescore(n)
while n > 0 do
local member = redis.call('ZRANGEBYLEX', KEYS[17], lane == '' and '-' or '(' .. lane .. '\1', '+', 'LIMIT', 0, 1)[1]
if not member then return '' end
local before, ends = lane, string.find(member, '\0', 1, true) or 0
n = n - 1
if ends < 2 or ends > NAME + 1 then
redis.call('ZREM', KEYS[17], member)
else
lane = string.sub(member, 1, ends - 1)
local turns, looked = l.turnsof(lane), noted.looked
for i = 1, #turns do
if isended(turns[i]) then redis.call('ZREM', KEYS[17], turns[i].member) end
end
if not l.fill(lane) then return before == '' and '\0' or before end
n = n - #turns - (noted.looked - looked)
end
end
return lane
end
local field = 'call:' .. ARGV[1]
local function forgotten(name, record)
if string.sub(name, 1, 5) ~= 'call:' then return false end
local called = whole(string.match(record, '^%d+ (%d+) '))
return not called or math.abs(now - called) > 3600000000
end
local function sweepcallers(page)
local found = redis.call('HSCAN', KEYS[11], page, 'MATCH', 'call:*', 'COUNT', SWEEP)
for i = 1, #found[2], 2 do
if found[2][i] ~= field and forgotten(found[2][i], found[2][i + 1]) then redis.call('HDEL', KEYS[11], found[2][i]) end
end
return found[1]
end
local function sweep(c)
local page, lane = string.match(c.cursor or '', '^(%d+) ?(.*)$')
local swept = whole(c.swept) or 0
if swept > now then swept = 0 end
if not page or #page > 19 then page, lane = '0', '' end
local callers = page ~= '0' or lane == '' and now - swept > 600000000
if not c.byAge or not (callers or lane ~= '') then return end
if callers then page = sweepcallers(page) end
if redis.call('HLEN', KEYS[7]) == 0 then redis.call('HDEL', KEYS[11], 'big', 'parts', 'changed', 'overtaken') end
lane = c.laned and sweeplanes(lane, SWEEP) or ''
mark('swept', us(now))
c.sweeping = page ~= '0' or lane ~= ''
mark('cursor', lane == '' and page or page .. ' ' .. lane)
end
local function merged(i, a, b) return i == #KINDS and math.max(a, b) or a + b end
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
local function forgethistory()
local fields, old = redis.pcall('HRANDFIELD', KEYS[12], SWEEP), {}
for i = 1, #fields do
if not kept(fields[i]) then old[#old + 1] = fields[i] end
end
if old[1] then redis.pcall('HDEL', KEYS[12], unpack(old)) end
end
local function addhistory(c)
local stored, acked = c.state[KNOWN + 1], c.state[KNOWN + 3] or '0'
local totals, counts, any = stored .. ' ' .. acked, {0, 0, 0, 0, c.lost, #c.dead / 3, c.replaced, 0, 0, 0}, false
if #totals > 40 then totals = '' end
for i = 1, #KINDS do
if i ~= 1 and i ~= 3 then
counts[i] = merged(i, counts[i], whole(c.state[KNOWN + i]) or 0)
any = any or counts[i] > 0
end
end
if any or c.told ~= totals then
local spans = {us(hour), 'd' .. us(day)}
local sums = redis.pcall('HMGET', KEYS[12], unpack(spans))
if not sums.err then
counts[1], counts[3] = whole(stored) or 0, whole(acked) or 0
untold(counts, c.told)
redis.pcall('HSET', KEYS[12], spans[1], tally(sums[1], counts), spans[2], tally(sums[2], counts))
if c.byAge and not sums[1] then forgethistory() end
for i = 1, #KINDS do counts[i] = 0 end
mark('told', totals)
end
end
for i = 1, #KINDS do
if i ~= 1 and i ~= 3 and us(counts[i]) ~= (c.state[KNOWN + i] or '0') then mark(KINDS[i], us(counts[i])) end
end
for out, n in pairs(c.outs) do
if n > 0 then mark(out, us((whole(redis.call('HGET', KEYS[11], out)) or 0) + n)) end
end
end
local c = read()
reclaim(c)
trim(c)
freeholds(c)
sweep(c)
addhistory(c)
local first = c.first
if noted.first and (not first or noted.first < first) then first = noted.first end
if first then
first = gate(first, c.pause)
if sooner(first, c.armed) then
arm(first)
c.armed = us(first)
end
end
if c.limited and c.ended then
local putOff = freed(c.limited, c.armed)
if putOff then mark('limited', putOff) end
end
mark('ticked', us((c.more or c.sweeping) and now - 20000000 or now))
redis.call('HSET', KEYS[11], unpack(marks))
local out = {us(now), c.more and 1 or 0, c.lost, c.overflow, c.replaced, #c.dead / 3, #c.missing / 2}
for _, list in ipairs({c.dead, c.missing, c.parts}) do
for i = 1, #list do out[#out + 1] = list[i] end
end
return out
