-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, wake, state, consumers, done, parts, waiting
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
local marks = {}
local function mark(name, value)
marks[#marks + 1] = name
marks[#marks + 1] = value
end
local field = 'call:' .. ARGV[1]
local function remember(reply)
redis.call('HSET', KEYS[10], field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply, unpack(marks))
end
local function lend(name, ends, tags)
local list = table.concat(tags, ' ')
redis.call('ZADD', KEYS[3], ends, name)
redis.call('HSET', KEYS[4], name, list, name .. '#', #tags)
return list
end
local function graceof(text, leaseUS)
local begun, upto, before = string.match(text or '', '^(%d+) (%d+) (%d+)$')
begun, upto, before = whole(begun) or 0, whole(upto) or 0, whole(before) or 0
if begun > now then begun, upto, before = 0, 0, 0 end
return begun, upto, before, math.min(upto + math.floor(leaseUS * 3 / 4), begun + 2 * leaseUS)
end
local function newgrace(text, leaseUS, due)
local begun, upto, before, ends = graceof(text, leaseUS)
if begun == 0 then text = '' end
if not due then return text end
local back = now + math.min(math.max(math.floor(leaseUS / 2), 2000000), leaseUS)
if ends <= now then
before = upto
begun, upto = now, 0
end
if back > begun + leaseUS * 3 / 2 then return text end
return us(begun) .. ' ' .. us(math.max(upto, back)) .. ' ' .. us(before)
end
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
local CENTURY = 3155760000000000
local function longest(text, asked)
local lease, at = string.match(text or '', '^(%d+) (%d+)$')
lease, at = whole(lease), whole(at)
if lease and at and lease > asked and lease <= CENTURY and math.abs(now - at) <= lease then return lease, text end
return asked, us(asked) .. ' ' .. us(now)
end
local SMALL = 2048
local function scored(score)
if not score then return nil end
local n = tonumber(score) or (string.sub(score, 1, 1) == '-' and 0 or 7258118400000000)
return math.min(math.max(math.floor(n), 0), 7258118400000000)
end
local function score(head) return scored(head[2]) end
local function read()
local state = redis.call('HMGET', KEYS[10], field, 'armed', 'seen', 'grace', 'big', 'canceled', 'pause', 'lease', 'parts', 'limits', 'ticked',
'shards', 'in:stored', 'out:acked', 'delivered', 'started', 'late', 'latest', 'dropped', 'failed', 'told', 'done')
local saved, armed, seen, grace, big, canceled, pause, asked, groups, limits, ticked, shards = unpack(state, 1, 12)
if shards or ARGV[13] then
local function shardsof(said)
local n = tonumber(string.match(said or '', '^[1-9]%d?$') or '')
return n and n <= 64 and n or nil
end
local function othershards(said, n)
local shards = shardsof(said) and said or '1'
return shards ~= n and {err = 'DQSHARDS ' .. shards} or nil
end
local other = othershards(shards, ARGV[13] or '1')
if other then return nil, other end
end
local repeated, at, number = recall(saved)
if repeated == false then return nil, {err = STALE} end
local known = repeated or number and number .. ' ' .. at or '0 0'
local leaseUS, agreed = longest(asked, tonumber(ARGV[5]))
local limited = limits or ARGV[11] ~= ''
local leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'))
local alarm = whole(armed or '0')
local byAlarm = ARGV[7] == '2' and saved and repeated == nil and alarm and (alarm == 0 or alarm > now) and not limited
if byAlarm and leased then
byAlarm = leased >= now + leaseUS / 2 and score(redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')) <= now + leaseUS
end
local want = tonumber(ARGV[4])
if ARGV[10] == '0' or (whole(pause) or 0) > now then want = 0 end
local pended, retried, ready, listed = nil, nil, {}, nil
if not byAlarm then
pended = score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))
retried = score(redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES'))
ready = redis.call('LRANGE', KEYS[2], 0, want)
guard(redis.call('ZCARD', KEYS[9]), redis.call('HLEN', KEYS[7]), redis.call('HLEN', KEYS[8]))
if groups then guard(redis.call('HLEN', KEYS[13])) end
end
if limited then guard(redis.call('ZCARD', KEYS[6]), redis.call('ZCARD', KEYS[12]), redis.call('ZCARD', KEYS[14])) end
if repeated or limited or ready[1] or pended and pended <= now or retried and retried <= now or leased and leased <= now
or #ARGV[8] > 1 then
listed = redis.call('HGET', KEYS[4], ARGV[1] .. ':' .. ARGV[2])
if listed then repeated = repeated or '' end
end
local anyone = ARGV[9] ~= '' and redis.pcall('HRANDFIELD', KEYS[11], 1, 'WITHVALUES')
redis.call('ZREM', KEYS[3], '')
mark('seen', us(now))
mark('lease', agreed)
return {
state = state, known = known, repeated = repeated, heard = whole(at) or now, seen = seen, grace = grace, canceled = canceled, pause = pause,
groups = groups, limits = limits, ticked = ticked, big = math.max(whole(big) or 0, SMALL), leaseUS = leaseUS, leased = leased,
alarm = alarm, byAlarm = byAlarm, want = want, bytes = tonumber(ARGV[10]), pended = pended, retried = retried, ready = ready,
listed = listed, anyone = anyone,
size = 0,
list = '', parts = {}, missing = {},
}
end
local MOVES = 500
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
local function weight(envelope)
local n, bytes = partsof(envelope)
if n < 2 then return #envelope end
return #envelope + bytes + 256 * n
end
local function weigh(c, id, room)
local length = redis.call('HSTRLEN', KEYS[7], id)
if not c.groups or length > room then return length end
return weight(redis.call('HGET', KEYS[7], id) or '')
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
local function split(tag)
local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
if n and n ~= '1' and #n < 10 then return tonumber(n), id end
return 1, tag
end
local function failure(record)
local failures, losses, when, mark, errors = string.match(record or '', '^%d+ (%d+) (%d+) (%d+) (\31?)(.*)$')
return whole(failures) or 0, whole(losses) or 0, errors or '', whole(when), mark == '\31'
end
local LARGE = 65536
local function again(c)
local function setfailure(id, n, counts, errors, ended)
local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. errors
redis.call('HSET', KEYS[8], id, record)
return record
end
local function superseded(record) return record and string.find(record, '^%d+ %d+ %d+ %d+ \31') ~= nil end
local tags, past, name = {}, {}, ARGV[1] .. ':' .. ARGV[2]
for tag in string.gmatch(c.listed, '%S+') do
local n, id = split(tag)
if #tags < MOVES and isheld(id, n) then tags[#tags + 1] = tag end
end
redis.call('ZREM', KEYS[3], name)
redis.call('HDEL', KEYS[4], name, name .. '#')
local _, first = split(tags[1] or '')
if c.bytes == 0 and #tags == 1 and redis.call('HSTRLEN', KEYS[7], first) > LARGE then
lend(name .. '!', us(now), tags)
tags, c.lost = {}, 1
elseif #tags * c.big > c.bytes then
local fit, rest, total = {}, {}, 0
for i = 1, #tags do
local _, id = split(tags[i])
local length = weigh(c, id, c.bytes)
if total + length <= c.bytes then
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
past[#past + 1] = rest[i]
else
setfailure(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
redis.call('RPUSH', KEYS[2], us(n + 1) .. ':' .. id)
c.givenBack = true
end
end
tags = fit
end
if past[1] then lendrest(name, us(now), past) end
if tags[1] then
c.leaseEnd = now + c.leaseUS
c.list = lend(name, us(c.leaseEnd), tags)
end
c.leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'))
return tags
end
local function limits(c)
local function throttledUntil(text)
local said, till = string.match(text or '', '^(%d+) (%d+)$')
said, till = whole(said), whole(till)
if not till or said > now or till - said > 3600000000 or till <= now then return 0 end
return till
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
local function howmanyheld()
if redis.call('HLEN', KEYS[4]) == 0 then return 0 end
local held = redis.call('HLEN', KEYS[7]) - redis.call('ZCARD', KEYS[1]) - redis.call('LLEN', KEYS[2])
- redis.call('ZCARD', KEYS[5]) - redis.call('ZCARD', KEYS[6]) - redis.call('ZCARD', KEYS[12])
- redis.call('ZCARD', KEYS[14])
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
local tat, throttled, before, override =
unpack(redis.call('HMGET', KEYS[10], 'tat', 'throttled', 'limited', 'override'), 1, 4)
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
local mine, theirs, set = numbers(ARGV[11]), numbers(c.limits), numbers(override)
mine[5], mine[6] = now, now
local rate, crowd = mine, mine
if rated(theirs) and math.abs(now - theirs[5]) <= c.leaseUS and (not rated(mine) or slower(theirs, mine)) then rate = theirs end
if theirs[4] > 0 and math.abs(now - theirs[6]) <= c.leaseUS and (mine[4] == 0 or theirs[4] < mine[4]) then crowd = theirs end
local asked = {us(rate[1]), us(rate[2]), us(rate[3]), us(crowd[4]), us(rate[5]), us(crowd[6])}
local overridden = rated(set) or set[4] > 0
if rated(set) then rate = set end
if set[4] > 0 then crowd = set end
local till = throttledUntil(throttled)
local limit, marker = {before = '', open = till, free = nil, take = function() end, spare = nil}, c.alarm or 0
local since, first, stood = string.match(before or '', '^(%d+) (%d+) %d+ (%d+) [01]$')
if since then
limit.since, limit.before = whole(since), before
if whole(first) == marker then marker = whole(stood) end
end
limit.text = table.concat({us(rate[1]), us(rate[2]), us(rate[3]), us(crowd[4]), overridden and '1' or '0'}, ' ')
limit.idle = not rated(rate) and crowd[4] == 0 and till == 0
if limit.idle then
redis.call('HDEL', KEYS[10], 'limits', 'override', 'tat', 'throttled', 'limited')
else
mark('limits', table.concat(asked, ' '))
end
limit.spare = expired
if till > 0 then c.want = 0 end
if crowd[4] > 0 then
local held = howmanylent(crowd[4])
if held >= crowd[4] and now - (whole(c.canceled) or 0) <= 2 * c.leaseUS then held = math.min(held, howmanyheld()) end
limit.free = crowd[4] - held
c.want = math.max(math.min(c.want, limit.free), 0)
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
local function marktat() mark('tat', string.format('%.0f', tat)) end
local read = math.max(tonumber(string.match(tat or '', '^%d+$') or '') or 0, now)
tat = math.min(read, now + math.ceil(burst * per / n))
if tat < read then marktat() end
function room() return math.floor((burst * per - (tat - now) * n) / per) end
c.want = math.max(math.min(c.want, room()), 0)
function limit.take(k)
if k > 0 then
tat = tat + math.ceil(k * per / n)
marktat()
end
if room() < 1 then
limit.open = math.min(math.max(limit.open, tat - math.floor((burst - 1) * per / n), now + 1), 7258118400000000)
end
end
end
return limit, marker
end
local function askedfor(c, limit)
local tag, instant = string.match(ARGV[8], '^(.*) (%d+)$')
if not tag or scored(redis.call('ZSCORE', KEYS[5], tag)) ~= whole(instant) then return nil end
if c.want > 0 then return tag end
if limit then
limit.take(0)
if limit.open > now and limit.open <= now + c.leaseUS then c.reserved = ARGV[8] end
end
end
local seed = tonumber(ARGV[3])
local function jitter(width)
seed = seed * 16807 % 2147483647
return math.floor(seed / 2147483647 * width)
end
local function truncate(c, tags, room, least)
for i = 1, #tags do
local _, id = split(tags[i])
local length = weigh(c, id, room)
if c.size + length > room and i > least then
for j = #tags, i, -1 do tags[j] = nil end
break
end
c.size = c.size + length
end
end
local function choose(c)
local picked, pending, fromReady, rest = {}, {}, 0, math.min(c.want, MOVES)
if rest > 0 then
local ready, retry = c.ready, {}
fromReady = math.min(#ready, rest)
for i = 1, fromReady do picked[i] = ready[i] end
rest = rest - fromReady
if rest > 0 and c.pended and c.pended <= now then
pending = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', us(now), 'LIMIT', 0, rest)
end
if rest > 0 and c.retried and c.retried <= now then
retry = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', us(now), 'LIMIT', 0, rest)
end
local fromRetry = math.min(#retry, math.max(rest - #pending, math.floor((rest + jitter(2)) / 2)))
for i = 1, fromRetry do picked[fromReady + i] = retry[i] end
for i = #pending, rest - fromRetry + 1, -1 do pending[i] = nil end
end
local size, bytes = c.size, c.bytes
if (#picked + #pending) * c.big + size > bytes then
local half = (size + bytes) / 2
if pending[1] and (not picked[1] or jitter(2) == 0) then
truncate(c, pending, picked[1] and half or bytes, 1)
truncate(c, picked, bytes, 0)
else
truncate(c, picked, pending[1] and half or bytes, 1)
truncate(c, pending, bytes, 0)
end
fromReady, c.weighed = math.min(fromReady, #picked), true
end
return picked, pending, fromReady
end
local function later()
local spread = math.min(redis.call('ZCARD', KEYS[5]) * 500, 60000000)
return us((math.floor((now + jitter(spread)) / 50000) + 2) * 50000)
end
local function lastChance(record)
local _, losses = failure(record)
return losses > 0 and losses >= tonumber(ARGV[6]) - 1
end
local function partnames(id, n, from)
local names = {}
for i = from or 2, n do names[#names + 1] = id .. ':' .. i end
return names
end
local function countof(envelope)
local i, size = fieldat(envelope, 134)
return size == 10 and whole(string.sub(envelope, i, i + 9)) or 0
end
local function countdownof(id)
local value = redis.pcall('HGET', KEYS[13], id .. ':0')
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
local values = redis.pcall('HMGET', KEYS[13], unpack(partnames(id, n)))
local there = not values.err
for i = 1, #values do there = there and values[i] end
local at = #parts
parts[at + 1], parts[at + 2] = us(nth), there and us(#values) or '0'
for i = 1, there and #values or 0 do parts[at + 2 + i] = values[i] end
end
local function give(c, limit, tag, envelope)
local n = #c.given + 1
c.given[n], c.out[n] = tag, envelope
if limit and limit.spare((split(tag)), envelope) then c.spared = c.spared + 1 end
if string.byte(envelope, 1) == 2 then
local _, id = split(tag)
addparts(c, n, id, envelope)
end
end
local function handpicked(c, limit, picked, fromReady)
local ids, numbered, j = {}, {}, 0
for i = 1, #picked do
local n, id = split(picked[i])
ids[i] = id
if n > 1 then numbered[#numbered + 1] = id end
end
local envelopes = redis.call('HMGET', KEYS[7], unpack(ids))
local records = numbered[1] and redis.call('HMGET', KEYS[8], unpack(numbered)) or {}
if fromReady > 0 then redis.call('LTRIM', KEYS[2], fromReady, -1) end
if c.asked then
redis.call('ZREM', KEYS[5], picked[1])
elseif not c.repeated and #picked > fromReady then
redis.call('ZREMRANGEBYRANK', KEYS[5], 0, #picked - fromReady - 1)
end
for i = 1, #picked do
local tag, record = picked[i], nil
if ids[i] ~= tag then
j = j + 1
record = records[j] or ''
end
if not envelopes[i] then
c.dropped = c.dropped + 1
redis.call('HDEL', KEYS[8], ids[i])
elseif not c.repeated and not c.asked and lastChance(record) then
local reserves = c.reserved == '' and ARGV[8] == ''
local deferred = reserves and us(now + 2 * c.leaseUS) or later()
redis.call('ZADD', KEYS[5], deferred, tag)
if reserves then c.reserved = tag .. ' ' .. deferred end
else
give(c, limit, tag, envelopes[i])
c.fails[#c.fails + 1] = record or ''
end
end
end
local function begin(c, envelope, n)
local lateness = math.max(now - (whole(string.sub(envelope, 2, 17)) or now), 0)
c.late, c.latest = c.late + lateness * n, math.max(c.latest, lateness)
end
local function handfirst(c, limit, pending)
local n = #pending
local step = math.ceil(n / 16)
local apart = tonumber(ARGV[12])
if apart > 0 and n >= apart and not (limit or c.groups or c.given[1]) then
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, n - 1)
local sample = {}
for i = 1, n, step do sample[#sample + 1] = pending[i] end
local envelopes = redis.call('HMGET', KEYS[7], unpack(sample))
for i = 1, #sample do
if envelopes[i] then begin(c, envelopes[i], math.min(step, n - (i - 1) * step)) end
end
c.given, c.started = pending, n
return
end
local envelopes = redis.call('HMGET', KEYS[7], unpack(pending))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, n - 1)
local byte, plain = string.byte, not limit and not c.given[1]
for i = 1, n do plain = plain and envelopes[i] and byte(envelopes[i], 1) ~= 2 end
if plain then c.given, c.out, c.started = pending, envelopes, n end
for i = 1, n, plain and step or 1 do
if not envelopes[i] then
c.dropped = c.dropped + 1
redis.call('HDEL', KEYS[8], pending[i])
else
if not plain then
give(c, limit, pending[i], envelopes[i])
c.started = c.started + 1
end
if (i - 1) % step == 0 then begin(c, envelopes[i], math.min(step, n - i + 1)) end
end
end
end
local function handspare(c, limit)
local function sweep(head, remove)
local page, rest = 16, MOVES - #c.given
while rest > 0 do
local tags, ids, out = head(math.min(page, rest)), {}, {}
if #tags * c.big + c.size > c.bytes then
truncate(c, tags, c.bytes, 0)
else
c.size = c.size + #tags * c.big
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
give(c, limit, out[i], envelopes[i])
if ids[i] == out[i] then
c.started = c.started + 1
begin(c, envelopes[i], 1)
else
for j = #c.fails + 1, #c.given - 1 do c.fails[j] = '' end
c.fails[#c.given] = records[i] or ''
end
end
rest = rest - #out
if #out < page then break end
page = page * 2
end
end
if not c.weighed then c.size = c.size + #c.given * c.big end
sweep(function(n) return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', us(now), 'LIMIT', 0, n) end,
function(last) redis.call('ZREMRANGEBYRANK', KEYS[1], 0, last) end)
sweep(function(n) return redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', us(now), 'LIMIT', 0, n) end,
function(last) redis.call('ZREMRANGEBYRANK', KEYS[5], 0, last) end)
end
local function gate(due, paused) return math.max(due, whole(paused) or 0) end
local function arm(due)
redis.call('ZADD', KEYS[9], us(due), 'w')
mark('armed', us(due))
end
local function overat(c)
local leased = c.leased
if not leased or (c.grace or '') == '' then return leased end
local _, upto, before, ends = graceof(c.grace, c.leaseUS)
if ends <= now or leased > upto or leased <= before then return leased end
local next = score(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. us(upto), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
return math.min(next or ends, ends)
end
local function setalarm(c, limit, marker)
local next, given = 0, #c.given
local function soonest(at) if at and (next == 0 or at < next) then next = math.max(at, 1) end end
if (c.ready[1] or c.givenBack) and redis.call('LLEN', KEYS[2]) > 0 then soonest(now) end
if c.fromPending then c.pended = score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')) end
if c.fromRetry then c.retried = score(redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')) end
soonest(c.pended)
soonest(c.retried)
if next ~= 0 then next = gate(next, c.pause) end
if c.byAlarm then next = c.alarm end
local putOff, full
if limit then
local taken = c.repeated and 0 or given
limit.take(c.repeated and 0 or taken - c.spared)
if next ~= 0 and next <= now and limit.free and limit.free <= taken then
putOff, next, full = next, 0, true
elseif next ~= 0 and limit.open > math.max(next, now) then
putOff, next = next, limit.open
end
end
local over = overat(c)
c.over = over and over <= now
if c.over then over = now + 1000000 end
if full then soonest(over or c.leaseEnd or now + c.leaseUS) end
if over and (c.over or over < now + c.leaseUS / 2) then soonest(over) end
if next == 0 then
if marker ~= 0 then
redis.call('ZREM', KEYS[9], 'w')
mark('armed', '0')
end
elseif next ~= marker or next <= now or ARGV[7] == '1' then
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
return next, full
end
local c, answer = read()
if not c then return answer end
local stored, acked, delivered, started, late, latest, dropped, failed, told, done = unpack(c.state, 13, 22)
local books = (stored or '0') .. ' ' .. (acked or '0')
local live = c.pended or c.retried or c.ready[1] or c.leased
local counted = (told or '0 0') ~= books or (delivered or '0') ~= '0' or (failed or '0') ~= '0'
local busy = live or counted or done and done ~= '0' and (whole(done) or 0) <= now
local seen = whole(c.seen) or 0
if seen > now then seen = 0 end
local cut = now - c.heard > c.leaseUS / 2 or c.leased and c.leased <= now and now - seen > c.leaseUS * 2 / 3
local grace = c.grace or ''
if cut or grace ~= '' then
c.grace = newgrace(grace, c.leaseUS, cut)
if c.grace ~= grace then mark('grace', c.grace) end
end
local picked, pending, fromReady = {}, {}, 0
if c.listed then picked = again(c) end
local limit, marker = nil, c.alarm or 0
if c.limits or ARGV[11] ~= '' then limit, marker = limits(c) end
c.given, c.out, c.fails, c.reserved = {}, {}, {}, ''
c.started, c.late, c.latest = 0, 0, 0
c.spared, c.dropped = 0, 0
if ARGV[8] ~= '' and ARGV[8] ~= '-' then
if not c.repeated then picked[1], c.asked = askedfor(c, limit), true end
elseif c.want > 0 and not c.repeated and not c.byAlarm then
picked, pending, fromReady = choose(c)
end
if picked[1] then handpicked(c, limit, picked, fromReady) end
if pending[1] then handfirst(c, limit, pending) end
if c.spared > 0 and not c.repeated and not limit.idle then handspare(c, limit) end
local given = #c.given
if given > 0 and not c.repeated then
c.leaseEnd = now + c.leaseUS
c.list = lend(ARGV[1] .. ':' .. ARGV[2], us(c.leaseEnd), c.given)
end
c.fromPending, c.fromRetry = pending[1] or c.spared > 0, picked[1] or c.spared > 0
local next, full = setalarm(c, limit, marker)
local function add(name, before, n) if n > 0 then mark(name, us((whole(before) or 0) + n)) end end
if not c.repeated and given > 0 then add('delivered', delivered, given) end
if c.started > 0 then
local function ms(n) return math.floor(n / 1000 + 0.5) end
add('started', started, c.started)
add('late', late, ms(c.late))
if ms(c.latest) > (whole(latest) or 0) then mark('latest', us(ms(c.latest))) end
end
if c.dropped > 0 then add('dropped', dropped, c.dropped) end
local anyone = c.anyone
if anyone and not anyone.err then
local at, lease = string.match(anyone[2] or '', '^(%d+) (%d+) ')
at, lease = whole(at), whole(lease)
if anyone[1] and (not at or not lease or math.abs(now - at) > 2 * lease + 5000000) then redis.call('HDEL', KEYS[11], anyone[1]) end
if ARGV[9] == '-' then
redis.call('HDEL', KEYS[11], ARGV[1])
else
redis.call('HSET', KEYS[11], ARGV[1], us(now) .. ' ' .. ARGV[5] .. ' ' .. ARGV[9])
redis.pcall('EXPIRE', KEYS[11], 2678400)
end
end
remember(c.known)
if #books > 40 then books = '' end
local ticked = whole(c.ticked) or 0
local tick = c.over or not c.byAlarm and (ticked > now or now - ticked >= (busy and 1000000 or 20000000))
local out, fails, missing, parts = c.out, c.fails, c.missing, c.parts
local envelopes = #out
local numbers = {
c.list, us(now), us(next), tick and 1 or 0, c.lost or 0, c.dropped, c.seen and 0 or 1, us(c.leaseUS),
limit and not limit.idle and limit.text .. ' ' .. (full and '-1' or us(limit.left(c.repeated and 0 or given))) or '',
#fails, us(whole(c.canceled) or 0), c.known .. ' ' .. books, #missing / 2, c.reserved, us(c.big),
}
for _, list in ipairs({numbers, fails, missing, parts}) do
for i = 1, #list do out[#out + 1] = list[i] end
end
out[#out + 1] = envelopes
return out
