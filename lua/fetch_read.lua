-- Part of fetch: what is asked for, what is there, and what the steps have in common.
local MOVES, SWEEP = 500, 100 -- how many messages a call moves; how many entries it looks at where it cleans up
local want, bytes = tonumber(ARGV[3]), tonumber(ARGV[13])
local holdsLastChance = ARGV[11] == '1'
local seed = tonumber(ARGV[9])
local function jitter(width) -- in [0, width)
  seed = seed * 16807 % 2147483647 -- Park and Miller's minimal standard generator, exact in a double
  return math.floor(seed / 2147483647 * width)
end

local FIELDS = 18 -- of state, before those of KINDS
local state = redis.call('HMGET', KEYS.state, field, 'armed', 'seen', 'grace', 'big', 'swept', 'cursor', 'lent',
  'pause', 'settings', 'dropped', 'counted', 'done', 'held', 'parts', 'limits', 'overtaken', 'aging', unpack(KINDS))
local saved, armed, seen, grace, big, swept, cursor, lent, pause, settings, droppedBefore, counted, done, firstHold,
  groups, limits, overtaken, aging =
  unpack(state, 1, FIELDS)
big = math.max(whole(big) or 0, 2048) -- what is not longer than that is not noted (send)
local heard = saved and whole(string.match(saved, '^%d+ (%d+) ')) or now -- of this consumer, before
local repeated = recall(saved) -- nil: the call is new; else the lease end of what its lost reply held, '' if nothing
if repeated == false then return STALE end
if repeated and not whole(repeated) then repeated = '' end
if (whole(pause) or 0) > now or bytes == 0 then want = 0 end

local values, agreement = agreed(settings, {tonumber(ARGV[4]), tonumber(ARGV[5]),
  ARGV[6] == '0' and CENTURY or tonumber(ARGV[6]), ARGV[7] == '0' and CENTURY or tonumber(ARGV[7]),
  ARGV[14] == '0' and CENTURY or tonumber(ARGV[14])})
local leaseUS, maxLosses, garbageAge, garbageMax, doneMax = unpack(values)
local function lastChance(record) -- is that the record of a message that is poison if it is lost once more?
  local _, losses = failure(record)
  return losses > 0 and losses >= maxLosses - 1
end

-- include fetch_age

-- What is there. An empty queue costs one command for each structure.
local function score(head) return scored(head[2]) end
local leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES')) -- until then, the soonest
local furthest = leased and score(redis.call('ZRANGE', KEYS.unack, -1, -1, 'WITHSCORES'))
local function isOver(first) return byAge and first and first ~= '0' and (whole(first) or 0) <= now end
local overdue, holdOver = isOver(done), isOver(firstHold) -- something done, or a key, has been kept for as long as it is to be

-- A tick of a consumer that is idle goes by the alarm: until its instant nothing is due in what is not read here. It looks
-- at the first lease, for which the alarm is set in the second half of one only, and it does so in queues without limits.
local alarm = whole(armed or '0')
local byAlarm = ARGV[8] == '2' and saved and repeated == nil and alarm and (alarm == 0 or alarm > now)
  and not (limits or (ARGV[15] or '') ~= '' or overdue or holdOver)
  and not (leased and (leased < now + leaseUS / 2 or furthest > now + leaseUS + 2 * MOVES))
local oldest, pended, retried, ready = nil, nil, nil, {}
if not byAlarm then
  oldest = score(redis.call('ZRANGE', KEYS.garbage, 0, 0, 'WITHSCORES'))
  pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES'))
  retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES'))
  ready = redis.call('LRANGE', KEYS.ready, 0, want) -- one more than wanted: is there more?
  guard(redis.call('ZCARD', KEYS.wake), redis.call('HLEN', KEYS.msg), redis.call('HLEN', KEYS.fail))
  if groups then guard(redis.call('HLEN', KEYS.parts)) end
end
if leased and leased <= now then guard(redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.held)) end
if overtaken and (repeated or leased and leased <= now) then guard(redis.call('ZCARD', KEYS.done)) end
if overdue then guard(redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result)) end
if holdOver then guard(redis.call('ZCARD', KEYS.held), redis.call('HLEN', KEYS.key)) end
local anyone = ARGV[12] ~= '' and redis.pcall('HRANDFIELD', KEYS.consumers, 1, 'WITHVALUES')

redis.call('ZREM', KEYS.unack, '') -- the first write
mark('seen', us(now))
mark('settings', agreement)
local leaseEnd = '' -- of what is handed out
local lost, dropped, overflow, replaced, dead = 0, 0, 0, 0, {} -- as they are reported; replaced: what was superseded
local size = 0 -- bytes of envelopes and parts read so far
local moved = 0 -- messages so far
local picked, fromReady, pending = {}, 0, {} -- from ready (so many, the first), retry or a lost reply; ids from pending
local parts = {} -- of groups, as they are replied

-- weigh(id, limit) is what a message counts in the reply; more than limit if it is more than that.
local function weigh(id, limit)
  local length = redis.call('HSTRLEN', KEYS.msg, id)
  if not groups or length > limit then return length end
  return weight(redis.call('HGET', KEYS.msg, id) or '')
end

-- replace(id, n, failures, losses, errors) ends a message whose delivery n was superseded.
local keptUntil -- the first end of what is done since
local function replace(id, n, failures, losses, errors)
  local ends, bytesRead = finish(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
  replaced, size = replaced + 1, size + bytesRead
  if ends then keptUntil = math.min(keptUntil or ends, ends) end
end

-- addparts(nth, id, envelope) reads what a group has of parts, for the reply: '0' of them if any is missing. Where state says that
-- there are none, nobody has looked whether that key is another program's; it must not raise here, behind the first write.
local function addparts(nth, id, envelope)
  local n = partsof(envelope)
  if n < 2 then return end
  local values = redis.pcall('HMGET', KEYS.parts, unpack(partnames(id, n)))
  local there = not values.err
  for i = 1, #values do there = there and values[i] end
  local at = #parts
  parts[at + 1], parts[at + 2] = us(nth), there and us(#values) or '0'
  for i = 1, there and #values or 0 do parts[at + 2 + i] = values[i] end
end
