-- KEYS: pending, msg, key, wake, state, holds
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
redis.call('HSET', KEYS[5], field, saved)
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
redis.call('HSET', KEYS[5], field, ARGV[2] .. ' ' .. us(now) .. ' ' .. reply, unpack(marks))
end
local SMALL = 2048
local function redue(envelope, digits) return string.sub(envelope, 1, 1) .. digits .. string.sub(envelope, 18) end
local saved, armed, big, pause, total, shards =
unpack(redis.call('HMGET', KEYS[5], field, 'armed', 'big', 'pause', 'in:stored', 'shards'), 1, 6)
local keyed = ARGV[3] == (shards or '1') .. '+'
if not keyed and ARGV[3] ~= (shards or '1') then
local function shardsof(said)
local n = tonumber(string.match(said or '', '^[1-9]%d?$') or '')
return n and n <= 64 and n or nil
end
local function othershards(said, n)
local shards = shardsof(said) and said or '1'
return shards ~= n and {err = 'DQSHARDS ' .. shards} or nil
end
local n = string.match(ARGV[3], '%d+')
keyed = n ~= ARGV[3]
local other = othershards(shards, n)
if other then return other end
end
total = whole(total)
guard(redis.call('HLEN', KEYS[2]))
local answer = again(saved)
if answer then return answer end
local adds, claims, ARGV = {}, {}, ARGV
big = whole(big) or SMALL
local first, refused, longest = nil, '', big
local claim
if keyed then
local function keyof(envelope, head)
head = head or 17
local hi, lo = string.byte(envelope, head + 1, head + 2)
if not lo or hi * 256 + lo == 0 then return '' end
return string.sub(envelope, head + 3, head + 2 + hi * 256 + lo)
end
local function holdends(key)
local ends = math.floor(tonumber(redis.call('ZSCORE', KEYS[6], key) or 0) or 0)
if ends > now and ends <= now + 31536000000000 then return ends end
end
local function holderof(key)
local holder = redis.call('HGET', KEYS[3], key)
if not holder then return nil end
local size = redis.call('HSTRLEN', KEYS[2], holder)
if size > 0 then return holder, false, size end
if string.sub(holder, 1, 6) == 'acked:' and holdends(key) then return string.sub(holder, 7), true end
return false
end
local function named(holder, acked) return '=' .. (acked and 'acked:' or '') .. string.gsub(holder, '[^!-~]', '?') end
local function refusal(i, holder, acked) return us(i) .. named(holder, acked) .. ' ' end
local taken = {}
claim = function(i, id, envelope)
local key, acked = keyof(envelope), nil
if key == '' then return true end
local holder = taken[key]
if not holder then holder, acked = holderof(key) end
if holder then
refused = refused .. refusal(i, holder, acked)
return false
end
taken[key] = id
claims[#claims + 1] = key
claims[#claims + 1] = id
return true
end
end
local run, n, stored = 4, 0, 0
while ARGV[run] do
local delay, last = tonumber(ARGV[run]), run + 1 + 2 * ARGV[run + 1]
local due, text, head
if delay then
due = now + delay
text = us(due)
head = string.char(tonumber(ARGV[run + 2])) .. text
end
if delay and not claim and run == 4 and last > run + 1 then
adds = {text, unpack(ARGV, 7, last)}
for i = 8, last + 1, 2 do
local envelope = head .. ARGV[i]
if #envelope > longest then longest = #envelope end
adds[i - 7], ARGV[i] = text, envelope
end
stored, first = last - 5, due
else
for i = run + 3, last, 2 do
local id, envelope = ARGV[i], ARGV[i + 1]
n = n + 1
if delay then
envelope = head .. envelope
else
text = string.sub(envelope, 2, 17)
due = tonumber(text)
if due < now then
due, text = now, us(now)
envelope = redue(envelope, text)
end
end
if not claim or claim(n, id, envelope) then
if #envelope > longest then longest = #envelope end
if not first or due < first then first = due end
adds[stored + 1], adds[stored + 2] = text, id
ARGV[stored + 7], ARGV[stored + 8] = id, envelope
stored = stored + 2
end
end
end
run = last + 2
end
if first then
local function gate(due, paused) return math.max(due, whole(paused) or 0) end
local function sooner(due, before)
before = whole(before) or 0
return before == 0 or due < before
end
local function arm(due)
redis.call('ZADD', KEYS[4], us(due), 'w')
mark('armed', us(due))
end
first = gate(first, pause)
local wakes = sooner(first, armed)
if wakes then guard(redis.call('ZCARD', KEYS[4])) end
redis.call('ZADD', KEYS[1], unpack(adds))
if not total then
local BOOKS = {'in:stored', 'in:found', 'kept', 'in:followed', 'in:scheduled', 'in:imported', 'out:acked', 'out:over', 'out:superseded',
'out:intercepted', 'out:canceled', 'out:deleted', 'out:aged', 'out:trimmed', 'out:lost'}
local function openbooks()
local here = redis.call('HLEN', KEYS[2])
redis.call('HDEL', KEYS[5], unpack(BOOKS))
redis.call('HSET', KEYS[5], 'in:stored', '0', 'told', '0 0', 'books', us(now))
if here > 0 then redis.call('HSET', KEYS[5], 'in:found', us(here)) end
end
openbooks()
end
mark('in:stored', us((total or 0) + redis.call('HSET', KEYS[2], unpack(ARGV, 7, stored + 6))))
if claims[1] then redis.call('HSET', KEYS[3], unpack(claims)) end
if wakes then arm(first) end
end
if longest > big then mark('big', longest) end
remember(refused)
return {us(now), refused}
