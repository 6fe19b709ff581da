-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, key, wake, state, done, result, holds, parts, lanes, waiting
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
redis.call('HSET', KEYS[11], field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply, unpack(marks))
end
local function leftof(leases)
local names, settled, alive = {}, {}, true
for i = 1, leases do names[i] = ARGV[5 + i] .. '#' end
local left = leases > 0 and redis.call('HMGET', KEYS[4], unpack(names)) or {}
for i = 1, leases do
left[i], settled[i] = whole(left[i]) or false, 0
alive = alive and left[i]
end
return names, left, settled, alive
end
local function release(leases, names, left, settled)
local over, gone, fewer = {}, {}, {}
for i = 1, leases do
local rest = left[i] and left[i] - settled[i]
if rest and rest <= 0 then
over[#over + 1] = ARGV[5 + i]
gone[#gone + 1], gone[#gone + 2] = ARGV[5 + i], names[i]
elseif rest and settled[i] > 0 then
fewer[#fewer + 1], fewer[#fewer + 2] = names[i], us(rest)
end
end
if over[1] then
redis.call('ZREM', KEYS[3], unpack(over))
redis.call('HDEL', KEYS[4], unpack(gone))
end
if fewer[1] then redis.call('HSET', KEYS[4], unpack(fewer)) end
end
local plain, fetches, leases = tonumber(ARGV[3]), string.sub(ARGV[3], 1, 1) == '+', tonumber(ARGV[5])
local before = 5 + 2 * leases
local at = before + plain + 1
local state
if ARGV[at] then
state = redis.call('HMGET', KEYS[11], field, 'armed', 'limited', 'canceled', 'out:acked', 'holds', 'parts', 'changed', 'overtaken', 'failed',
'garbage', 'superseded', 'kept')
else
state = redis.call('HMGET', KEYS[11], field, 'armed', 'limited', 'canceled', 'out:acked')
end
local saved, armed, limited, canceled, ackedBefore = unpack(state, 1, 5)
local reply, called = recall(saved)
if reply then return {called, reply} end
if reply == false then return {err = STALE} end
guard(redis.call('ZCARD', KEYS[3]))
if limited then guard(redis.call('ZCARD', KEYS[10])) end
local names, left, settled, alive = leftof(leases)
local known, listed = (whole(canceled) or 0) == tonumber(ARGV[4]), nil
if not known then
local sets = {}
local function lists(lease, tag)
if not sets[lease] then
sets[lease] = {}
for each in string.gmatch(redis.call('HGET', KEYS[4], ARGV[5 + lease]) or '', '%S+') do sets[lease][each] = true end
end
return sets[lease][tag]
end
listed = lists
end
if plain == 0 or not (alive and known) then guard(redis.call('HLEN', KEYS[7])) end
if not (alive and known) then guard(redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[5])) end
local c
if ARGV[at] then
local function scan(at, state, left, settled, lists)
local fields = {ack = 4, done = 9, ready = 7, garbage = 9, retry = 8, throttle = 8, hold = 1, group = 1, counts = 1, countdown = 1, lane = 1}
guard(redis.call('HLEN', KEYS[8]), redis.call('HLEN', KEYS[9]), redis.call('ZCARD', KEYS[5]), redis.call('LLEN', KEYS[2]),
redis.call('ZCARD', KEYS[6]), redis.call('ZCARD', KEYS[10]))
local firstHold, groups, changed, overtaken = unpack(state, 6, 9)
local keeps, keyed, grown, sends, changes, counts = overtaken, firstHold, groups, nil, false, false
while ARGV[at] do
local word = ARGV[at]
if fields[word] then
keeps, keyed, counts = keeps or word == 'done', keyed or word == 'hold', counts or word == 'counts'
grown = grown or word == 'group' or word == 'countdown'
at = at + 1 + fields[word]
else
if not sends then
local PUTS = {refuse = 4, keep = 4, reschedule = 5, replace = 6, append = 7}
sends = PUTS
end
changes, grown = changes or word ~= 'refuse', grown or word == 'append'
local head = ARGV[at + 1] ~= '' and 0 or 17
keyed = keyed or string.sub(ARGV[at + 4], head + 1, head + 2) ~= '\0\0'
at = at + 1 + sends[word]
end
end
if sends or counts or KEYS[16] then guard(redis.call('ZCARD', KEYS[1])) end
if KEYS[16] then guard(redis.call('ZCARD', KEYS[16]), redis.call('ZCARD', KEYS[17])) end
if keeps or changes then guard(redis.call('ZCARD', KEYS[12]), redis.call('HLEN', KEYS[13])) end
if keyed then guard(redis.call('ZCARD', KEYS[14])) end
if grown or counts then guard(redis.call('HLEN', KEYS[15])) end
return {
fields = fields, sends = sends,
changes = changes, counts = counts, grown = grown,
left = left, settled = settled, lists = lists,
changed = changed, overtaken = overtaken, holds = (whole(firstHold) or 0) > 0,
nth = 0, acked = 0, void = '', ended = '',
}
end
c = scan(at, state, left, settled, listed)
end
local acked, void = plain, ''
if plain > 0 and alive and known then
acked = redis.call('HDEL', KEYS[7], unpack(ARGV, before + 1, before + plain))
for i = 1, acked == plain and leases or 0 do settled[i] = tonumber(ARGV[5 + leases + i]) end
elseif plain > 0 then
local function ackeach(plain, before, leases, left, settled, lists)
local acked, void = plain, ''
local lease, last = 0, 0
for i = 1, plain do
while i > last do
lease = lease + 1
last = last + tonumber(ARGV[5 + leases + lease])
end
local id = ARGV[before + i]
local there
if left[lease] then there = not lists or lists(lease, id) else there = redis.call('ZREM', KEYS[1], id) == 1 end
if there and redis.call('HDEL', KEYS[7], id) == 1 then
settled[lease] = settled[lease] + 1
else
acked, void = acked - 1, void .. us(i) .. ' '
end
end
return acked, void
end
acked, void = ackeach(plain, before, leases, left, settled, listed)
end
local overflow, doneOverflow, answers, ended, stopped = '0', '0', '', '', '0'
local first, more = nil, false
if c then
local function outcomes(c, i, state)
local function setfailure(id, n, counts, errors, ended)
local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. errors
redis.call('HSET', KEYS[8], id, record)
return record
end
local function holdends(key)
local ends = math.floor(tonumber(redis.call('ZSCORE', KEYS[14], key) or 0) or 0)
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
local function erase(id, key, holds, unlist)
freekey(id, key, holds, unlist)
redis.call('HDEL', KEYS[7], id)
redis.call('HDEL', KEYS[8], id)
end
local noted = {stored = 0, longest = 0, looked = 0, spent = 0}
local function begin(c, there, id)
c.nth = c.nth + 1
if not there then
c.void = c.void .. us(c.nth) .. ' '
return false
end
if not ((c.overtaken or noted.overtaken) and c.superseded(redis.call('HGET', KEYS[8], id))) then return true, false end
c.replaced, c.ended = (c.replaced or 0) + 1, c.ended .. us(c.nth) .. ' '
return true, true
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
local function isheld(id, n)
return redis.call('HEXISTS', KEYS[7], id) == 1 and tonumber(delivery(redis.call('HGET', KEYS[8], id))) <= n
end
local function stillheld(c, lease, tag, id)
local there = c.left[lease] and (not c.lists or c.lists(lease, tag)) and isheld(id, (split(tag)))
if there then c.settled[lease] = c.settled[lease] + 1 end
return there
end
local function failure(record)
local failures, losses, when, mark, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (\31?)(.*)$')
return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when), mark == '\31'
end
local function errorsOf(id, number)
local _, _, errors = failure(number ~= '2' and redis.call('HGET', KEYS[8], id))
return errors
end
local function ack(c, hold, parts, lane, word, lease, tag, id, key, number, counts, keep, result, room)
lease = tonumber(lease)
local there = stillheld(c, lease, tag, id)
local other = (parts or 0) > 0 or (c.changed or noted.changed) and key ~= ''
if not c.left[lease] and not other then
there = redis.call('ZREM', KEYS[1], tag) == 1 or redis.call('ZREM', KEYS[5], tag) == 1
there = there and redis.call('HEXISTS', KEYS[7], id) == 1
end
local valid, past = begin(c, there, id)
if not valid then return false end
if not past then c.acked = c.acked + 1 end
if hold and redis.call('HGET', KEYS[9], key) == id then
local ends, longer = now + hold, c.holds and holdends(key)
if longer and longer > ends then ends = longer end
redis.call('HSET', KEYS[9], key, 'acked:' .. id)
redis.call('ZADD', KEYS[14], us(ends), key)
if not c.holdEnds or ends < c.holdEnds then c.holdEnds = ends end
key = ''
end
if word == 'ack' then
if parts then c.dropparts(id, parts, 0) end
erase(id, key, c.holds, c.unlist)
if past then c.unkept = (c.unkept or 0) + 1 end
else
setfailure(id, number, counts, errorsOf(id, number))
c.doneRoom, c.kept = tonumber(room), (c.kept or 0) + 1
if not past then c.ackedKept = (c.ackedKept or 0) + 1 end
freekey(id, key, c.holds, c.unlist)
redis.call('ZADD', KEYS[12], us(now + tonumber(keep)), id)
if result ~= '' then redis.call('HSET', KEYS[13], id, result) end
end
if lane then c.leavelane(lane, id, tag) end
return true, past
end
local function fail(c, lane, word, lease, tag, id, number, counts, text, failing, last, room)
local valid, past = begin(c, stillheld(c, tonumber(lease), tag, id), id)
if not valid then return end
if failing == '1' then c.failed = (c.failed or 0) + 1 end
if word == 'throttle' then c.pause = math.max(c.pause or 0, tonumber(last)) end
local errors = text == '' and errorsOf(id, number) or '\30' .. us(now) .. ' ' .. text
if past then
if c.finish(id, number, counts, errors) then c.kept = (c.kept or 0) + 1 else c.unkept = (c.unkept or 0) + 1 end
return
end
setfailure(id, number, counts, errors)
if word == 'garbage' then
c.garbageRoom, c.dead = tonumber(room), (c.dead or 0) + 1
freekey(id, last, c.holds, c.unlist)
redis.call('ZADD', KEYS[6], us(now), id)
if lane then c.leavelane(lane, id, tag) end
elseif word == 'ready' then
redis.call('RPUSH', KEYS[2], number .. ':' .. id)
noted.first = math.min(noted.first or now, now)
elseif lane then
c.leavelane(lane, id, tag, number .. ':' .. id, now + tonumber(last))
else
local next = now + tonumber(last)
redis.call('ZADD', KEYS[5], us(next), number .. ':' .. id)
noted.first = math.min(noted.first or next, next)
end
end
local LOOKS = 1000
local function scored(score)
if not score then return nil end
local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
local function add(name, before, n)
if n then mark(name, us((whole(before) or 0) + n)) end
end
local function note(c, firstHold, groups, changed, overtaken, failed, garbage, superseded, kept)
if c.sends then
local SMALL = 2048
local function noteall(big, total, groups, changes, overtakes)
if noted.stored > 0 and whole(total) then mark('in:stored', us(whole(total) + noted.stored)) end
if noted.longest > math.max(whole(big) or 0, SMALL) then mark('big', us(noted.longest)) end
if noted.grown and not groups then mark('parts', '1') end
if noted.changed and not changes then mark('changed', '1') end
if noted.overtaken and not overtakes then mark('overtaken', '1') end
end
local big, total, before = unpack(redis.call('HMGET', KEYS[11], 'big', 'in:stored', 'in:followed'), 1, 3)
noteall(big, total, groups, changed, overtaken)
if whole(total) and noted.stored > 0 then mark('in:followed', us((whole(before) or 0) + noted.stored)) end
end
if (c.pause or 0) > 0 then
local function throttledUntil(text)
local said, till = string.match(text or '', '^(%d+) (%d+)$')
said, till = whole(said), whole(till)
if not till or said > now or till - said > 3600000000 or till <= now then return 0 end
return till
end
local function throttle(most)
local limits, throttled = unpack(redis.call('HMGET', KEYS[11], 'limits', 'throttled'), 1, 2)
local ends = now + math.min(most, 3600000000)
if ends > throttledUntil(throttled) then mark('throttled', us(now) .. ' ' .. us(ends)) end
if not limits then mark('limits', '') end
end
throttle(c.pause)
end
if c.holdEnds then
firstHold = whole(firstHold) or 0
if firstHold == 0 or c.holdEnds < firstHold then mark('holds', us(c.holdEnds)) end
end
add('failed', failed, c.failed)
add('garbage', garbage, c.dead)
add('superseded', superseded, c.replaced)
add('kept', kept, c.ackedKept)
if c.unkept then add('out:superseded', redis.call('HGET', KEYS[11], 'out:superseded'), c.unkept) end
if not (c.dead or c.kept) then return 0, 0 end
local function excess(there, room, most)
if room == 0 then return 0 end
return math.max(0, math.min(there - room, most))
end
local SPARED, LENGTHS = 5000000, 4
local function overdone(n)
local oldest, spared, going, from = {}, {}, {}, '-inf'
for _ = 1, LENGTHS do
local page = redis.call('ZRANGEBYSCORE', KEYS[12], from, '+inf', 'WITHSCORES', 'LIMIT', 0, n - #oldest)
local ids, upto = {}, nil
for i = 1, #page, 2 do ids[#ids + 1] = page[i] end
local records = ids[1] and redis.call('HMGET', KEYS[8], unpack(ids)) or {}
for i, id in ipairs(ids) do
local score = scored(page[2 * i])
if upto and score > upto then break end
local _, _, _, acked = failure(records[i])
if acked and acked <= now and acked > now - SPARED then
spared[#spared + 1] = {acked, id}
upto = upto or score + SPARED
else
oldest[#oldest + 1], going[id] = id, true
end
end
if not upto then break end
from = us(upto + 1)
end
if #oldest == n then return oldest end
table.sort(spared, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
local left = redis.call('ZRANGE', KEYS[12], 0, n - 1)
for i, id in ipairs(left) do left[i] = {0, id} end
for _, list in ipairs({spared, left}) do
for _, entry in ipairs(list) do
if #oldest < n and not going[entry[2]] then oldest[#oldest + 1], going[entry[2]] = entry[2], true end
end
end
return oldest
end
local function trim(dead, garbageRoom, kept, doneRoom, clear)
local overflow, doneOverflow, trimmed = 0, 0, 0
if dead > 0 then overflow = excess(redis.call('ZCARD', KEYS[6]), garbageRoom, 500) end
if overflow > 0 then
local oldest = redis.call('ZRANGE', KEYS[6], 0, overflow - 1)
if clear and not clear(oldest) then overflow = #oldest end
redis.call('ZREM', KEYS[6], unpack(oldest))
trimmed = redis.call('HDEL', KEYS[7], unpack(oldest))
redis.call('HDEL', KEYS[8], unpack(oldest))
end
if kept > 0 then doneOverflow = excess(redis.call('ZCARD', KEYS[12]), doneRoom, kept + 100) end
if doneOverflow > 0 then
local oldest = overdone(doneOverflow)
if clear and not clear(oldest) then doneOverflow = #oldest end
redis.call('ZREM', KEYS[12], unpack(oldest))
trimmed = trimmed + redis.call('HDEL', KEYS[7], unpack(oldest))
redis.call('HDEL', KEYS[8], unpack(oldest))
redis.call('HDEL', KEYS[13], unpack(oldest))
end
return overflow, doneOverflow, trimmed
end
local overflow, doneOverflow, trimmed = trim(c.dead or 0, c.garbageRoom, c.kept or 0, c.doneRoom or 0, c.clear)
if c.kept then mark('done', us(scored(redis.call('ZRANGE', KEYS[12], 0, 0, 'WITHSCORES')[2]))) end
if trimmed > 0 then add('out:trimmed', redis.call('HGET', KEYS[11], 'out:trimmed'), trimmed) end
return overflow, doneOverflow
end
redis.call('ZREM', KEYS[3], '')
if KEYS[16] or c.sends or c.counts or c.overtaken or c.grown then
local function equip(c)
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
local function leavelane(lane, id, tag, next, due)
if lane == '?' then return relanes().outof(redis.call('HGET', KEYS[7], id) or '', 'unack', tag, id) end
local width, name = tonumber(string.sub(lane, 1, 3)), string.sub(lane, 4)
relanes().vacate(name, width, id, tag)
if due then relanes().enter(name, width, next, due) end
end
c.leavelane = leavelane
if not (c.sends or c.counts or c.overtaken or c.grown) then return end
local function superseded(record) return record and string.find(record, '^%d+ %d+ %d+ %d+ \31') ~= nil end
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
if n >= (from or 2) then redis.pcall('HDEL', KEYS[15], unpack(partnames(id, n, from))) end
end
local function dropall(id, envelope) dropparts(id, (partsof(envelope)), fieldat(envelope, 134) and 0 or nil) end
local function finish(id, n, counts, errors)
local envelope = redis.call('HGET', KEYS[7], id) or ''
local i, size = fieldat(envelope, 133)
if KEYS[16] then relanes().outof(envelope, 'unack', '', id) end
if not i then
dropall(id, envelope)
redis.call('HDEL', KEYS[7], id)
redis.call('HDEL', KEYS[8], id)
return nil, #envelope
end
local ends = now
for j = 0, math.min(size, 7) - 1 do ends = ends + string.byte(envelope, i + j) % 128 * 128 ^ j end
setfailure(id, n, counts, '\31' .. errors)
redis.call('ZADD', KEYS[12], us(ends), id)
return ends, #envelope
end
local LEFT = 100
local function left(key)
local list, ids = redis.pcall('HGET', KEYS[15], ':' .. key), {}
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
redis.pcall('HSET', KEYS[15], ':' .. key, table.concat(ids, ' '))
else
redis.pcall('HDEL', KEYS[15], ':' .. key)
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
local gone = redis.call('HDEL', KEYS[15], unpack(partnames(ids[i], from + size - 1, from)))
parts, from, size = parts + gone, from + size, 2 * size
until gone == 0 or from > PARTS
end
return true
end
c.superseded, c.finish = superseded, finish
if c.grown then c.unlist, c.clear, c.dropparts = setleft, clear, dropparts end
if c.sends or c.counts then
local function keyof(envelope, head)
head = head or 17
local hi, lo = string.byte(envelope, head + 1, head + 2)
if not lo or hi * 256 + lo == 0 then return '' end
return string.sub(envelope, head + 3, head + 2 + hi * 256 + lo)
end
local function countdownof(id)
local value = redis.pcall('HGET', KEYS[15], id .. ':0')
local counted, n = string.match(type(value) ~= 'table' and value or '', '^(%d+) (%d+)$')
return whole(counted), whole(n)
end
local function acksleft(id)
local counted, n = countdownof(id)
return n and math.max(n - counted, 0)
end
local READ, MOST = 524288, 4194304
local function fits(c, i)
local size, reads, new = 0, 0, {}
local counting
while ARGV[i] do
local word = ARGV[i]
if word == 'counts' then
counting = ARGV[i + 1]
elseif not c.fields[word] then
local envelope = ARGV[i + 4]
local key = keyof(envelope, ARGV[i + 1] ~= '' and 0 or nil)
local id = key ~= '' and redis.call('HGET', KEYS[9], key)
local length = new[key] or id and redis.call('HSTRLEN', KEYS[7], id) or 0
if length == 0 and key ~= '' then
new[key] = #envelope
elseif c.sends[word] > 4 then
size, reads = size + length, reads + 1
end
elseif word ~= 'countdown' then
break
end
i = i + 1 + (c.fields[word] or c.sends[word])
end
local never = size > MOST and reads > 1
local id = counting and redis.call('HGET', KEYS[9], counting)
if id and acksleft(id) == 1 then size = size + redis.call('HSTRLEN', KEYS[7], id) end
return noted.spent == 0 or noted.spent + size <= READ, never
end
local function redue(envelope, digits) return string.sub(envelope, 1, 1) .. digits .. string.sub(envelope, 18) end
local function setcountdown(id, counted, n) redis.call('HSET', KEYS[15], id .. ':0', us(counted) .. ' ' .. us(n)) end
local function count(key)
local id = redis.call('HGET', KEYS[9], key)
local counted, n = countdownof(id or '')
if not n then return end
setcountdown(id, counted + 1, n)
if counted + 1 ~= n then return end
local place, due = 'pending', redis.call('ZSCORE', KEYS[1], id)
if not due then place, due = 'waiting', redis.call('ZSCORE', KEYS[17], id) end
local envelope = due and scored(due) > now and redis.call('HGET', KEYS[7], id)
if not envelope then return end
local lane, width = laneof(envelope)
if lane or place == 'waiting' then
relanes().shift(lane, width, place, id, id, scored(due), now)
else
redis.call('ZADD', KEYS[1], us(now), id)
noted.first = math.min(noted.first or now, now)
end
redis.call('HSET', KEYS[7], id, redue(envelope, us(now)))
noted.spent = noted.spent + #envelope
end
c.fits, c.count = fits, count
if c.sends then
local function complete(delay, version, envelope)
if delay then
return string.char(tonumber(version)) .. us(now + delay) .. envelope, now + delay
end
local due = tonumber(string.sub(envelope, 2, 17))
if due >= now then return envelope, due end
return redue(envelope, us(now)), now
end
local function holderof(key)
local holder = redis.call('HGET', KEYS[9], key)
if not holder then return nil end
local size = redis.call('HSTRLEN', KEYS[7], holder)
if size > 0 then return holder, false, size end
if string.sub(holder, 1, 6) == 'acked:' and holdends(key) then return string.sub(holder, 7), true end
return false
end
local function named(holder, acked) return '=' .. (acked and 'acked:' or '') .. string.gsub(holder, '[^!-~]', '?') end
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
redis.call('HSET', KEYS[9], key, id)
end
local lane, width = laneof(other)
noted.stored = noted.stored + redis.call('HSET', KEYS[7], id, other)
if lane then lanes().enter(lane, width, id, due) else redis.call('ZADD', KEYS[1], string.sub(other, 2, 17), id) end
if acks > 0 then
setcountdown(id, counted or 0, acks)
noted.grown = true
end
if not lane then noted.first = math.min(noted.first or due, due) end
noted.longest = math.max(noted.longest, #other)
return '+', due
end
c.act = store
if c.changes then
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
redis.call('HSET', KEYS[7], id, envelope)
noted.longest = math.max(noted.longest, weight(envelope))
end
local function keyless(edits, envelope, count)
local key, i, size = keyof(envelope), fieldat(envelope, 129)
local length, before = 11 + #key, size < 128 and 1 or 2
local long = length < 128 and string.char(length) or string.char(length % 128 + 128, math.floor(length / 128))
edits[#edits + 1] = {18, 2 + #key, '\0\0'}
edits[#edits + 1] = {i - before, before + size, long .. count .. key}
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
redis.call('HSET', KEYS[15], id .. ':' .. n + 1, string.sub(other, i, i + size - 1))
noted.grown = true
return at, string.format('%04d%07d', n + 1, bytes + size), true, n + 1 >= most or size == left
end
local function countof(envelope)
local i, size = fieldat(envelope, 134)
return size == 10 and whole(string.sub(envelope, i, i + 9)) or 0
end
local function recount(id, envelope, n)
if n > 0 then
local counted = countdownof(id) or 0
setcountdown(id, counted, n)
return math.max(n - counted, 0)
end
if countof(envelope) > 0 then redis.pcall('HDEL', KEYS[15], id .. ':0') end
end
local function tagof(id, record)
local n = delivery(record)
return n == '1' and id or n .. ':' .. id
end
local function scorein(place, tag, id)
if place == 'pending' then return redis.call('ZSCORE', KEYS[1], tag) or nil end
if place == 'ready' then return redis.call('LPOS', KEYS[2], tag) and '0' or nil end
if place == 'retry' then return redis.call('ZSCORE', KEYS[5], tag) or nil end
if place == 'waiting' then return redis.call('ZSCORE', KEYS[17], tag) or nil end
if place == 'garbage' then return redis.call('ZSCORE', KEYS[6], id) or nil end
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
local function change(id, envelope, other, due, word, said, latest, most, acks)
local record = redis.call('HGET', KEYS[8], id)
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
redis.call('HDEL', KEYS[9], keyof(envelope))
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
if fresh then redis.call('ZADD', KEYS[1], digits, tag) else redis.call('ZADD', KEYS[5], digits, tag) end
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
local tag = score or tagof(id, redis.call('HGET', KEYS[8], id))
score = score or redis.call('ZSCORE', KEYS[5], tag) or redis.call('ZSCORE', KEYS[17], tag)
return score and scored(score) or now
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
local theirs = redis.call('HGET', KEYS[7], holder)
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
c.act = send
end
end
end
end
equip(c)
end
local answers, stopped, sends, acks = '', '0', 0, 0
local own, counted = nil, false
local hold, parts, lane
while ARGV[i] do
local word = ARGV[i]
local behind = i + 1 + (c.fields[word] or c.sends[word])
if word == 'hold' then
hold = tonumber(ARGV[i + 1])
elseif word == 'group' then
parts = tonumber(ARGV[i + 1])
elseif word == 'lane' then
lane = ARGV[i + 1]
elseif word == 'countdown' then
acks = tonumber(ARGV[i + 1])
elseif word == 'counts' then
if counted then c.count(ARGV[i + 1]) end
elseif not c.fields[word] then
local answer = own and c.act(own, acks, unpack(ARGV, i, behind - 1)) or '+'
sends, acks = sends + 1, 0
if answer ~= '+' then answers = answers .. us(sends) .. answer .. ' ' end
elseif noted.looked >= LOOKS then
stopped = us(c.nth + 1)
break
else
if word == 'ack' or word == 'done' then
local fitting, never = true, false
if c.changes or noted.spent > 0 then fitting, never = c.fits(c, behind) end
if never or not fitting then
stopped = us(c.nth + 1) .. (never and '!' or '')
break
end
local valid, past = ack(c, hold, parts, lane, word, unpack(ARGV, i + 1, behind - 1))
own, counted = valid and ARGV[i + 3], valid and not past
else
fail(c, lane, word, unpack(ARGV, i + 1, behind - 1))
end
hold, parts, lane = nil, nil, nil
end
i = behind
end
local overflow, doneOverflow = note(c, unpack(state, 6, 13))
return answers, stopped, us(overflow), us(doneOverflow), noted.first, noted.given
end
c.nth, c.acked, c.void = plain, acked, void
answers, stopped, overflow, doneOverflow, first, more = outcomes(c, at, state)
acked, void, ended = c.acked, c.void, c.ended
more = fetches and (limited or '') == '' and more
end
release(leases, names, left, settled)
if acked > 0 then mark('out:acked', us((whole(ackedBefore) or 0) + acked)) end
if first then
local function sooner(due, before)
before = whole(before) or 0
return before == 0 or due < before
end
local function arm(due)
redis.call('ZADD', KEYS[10], us(due), 'w')
mark('armed', us(due))
end
if sooner(first, armed) then
if more then redis.call('ZREM', KEYS[10], 'w') mark('armed', us(first)) else arm(first) end
armed = us(first)
end
end
if limited then
local function freed(limited, armed, fetches)
local since, open = string.match(limited, '^(%d+) %d+ (%d+) %d+ 1$')
if not since then return nil, false end
if fetches and (whole(open) or 0) <= now then return nil, true end
local wakes = us(math.max(now, whole(open)))
redis.call('ZADD', KEYS[10], wakes, 'w')
return since .. ' ' .. us(whole(armed) or 0) .. ' ' .. open .. ' ' .. wakes .. ' 0'
end
local putOff, goes = freed(limited, armed, fetches)
if putOff then mark('limited', putOff) end
more = more or goes
end
reply = overflow .. ';' .. doneOverflow .. ';' .. void .. ';' .. ended .. ';' .. stopped .. ';' .. (more and '1' or '0') .. ';' .. answers
remember(reply)
return {us(now), reply}
