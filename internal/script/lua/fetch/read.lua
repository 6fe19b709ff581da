-- The call and the state of the queue are read. The first write follows.
-- gives: MOVES, SWEEP, bytes, want, alone, jitter, FIELDS, big, cursor, grace, canceled, seen, state, swept, counted,
--        done, dropped, limits, parts, pause, droppedBefore, firstHold, groups, heard, heardAt, heardCall, told, repeated,
--        garbageAge, garbageMax, leaseUS, maxLosses, lastChance, byAge, byPages, score, leased, furthest, holdOver, overdue,
--        alarm, byAlarm, oldest, pended, ready, retried, pending, anyone, leaseEnd, dead, lost, overflow, replaced, size,
--        moved, fromReady, picked, name, listed
-- from time: now, us, whole, scored
-- from call: field, STALE, recall, guard, mark
-- from longest: longest
-- from record: failure
-- from message: SMALL
-- from history: KINDS

local MOVES, SWEEP = 500, 100 -- how many messages a call moves; how many entries it looks at to clean up
local want, bytes = tonumber(ARGV[3]), tonumber(ARGV[13])
local alone = ARGV[11] -- the one message on its last chance that is asked for
local seed = tonumber(ARGV[9])
local function jitter(width) -- in [0, width)
  seed = seed * 16807 % 2147483647 -- Park and Miller's minimal standard generator, exact in a double
  return math.floor(seed / 2147483647 * width)
end

local FIELDS = 20 -- of state, before those of KINDS
local state = redis.call('HMGET', KEYS.state, field, 'armed', 'seen', 'grace', 'big', 'swept', 'cursor', 'canceled',
  'pause', 'lease', 'dropped', 'counted', 'done', 'held', 'parts', 'limits', 'overtaken', 'aging', 'told', 'shards',
  unpack(KINDS))
local saved, armed, seen, grace, big, swept, cursor, canceled, pause, asked, droppedBefore, counted, done, firstHold,
  groups, limits, overtaken, aging, told =
  unpack(state, 1, FIELDS)
if state[FIELDS] or ARGV[16] then
  -- from queue: othershards
  local other = othershards(state[FIELDS], ARGV[16] or '1')
  if other then return other end
end
big = math.max(whole(big) or 0, SMALL)
local heardCall, heardAt = string.match(saved or '', '^(%d+) (%d+) ')
local heard = whole(heardAt) or now -- the last call of this consumer
local repeated = recall(saved) -- nil: the call is new; else what was remembered of the call before it
if repeated == false then return {err = STALE} end
if repeated then heardCall, heardAt = string.match(repeated, '^(%d+) (%d+)$') end
local name = ARGV[1] .. ':' .. ARGV[2] -- of the lease of what this call hands out
if (whole(pause) or 0) > now or bytes == 0 then want = 0 end

local leaseUS, agreed = longest(asked, tonumber(ARGV[4]))
local maxLosses, garbageAge, garbageMax = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local function lastChance(record) -- whether the message with this record is poison if it is lost once more
  local _, losses = failure(record)
  return losses > 0 and losses >= maxLosses - 1
end

-- Garbage, done messages, holds of keys, old history and old callers are deleted by age, if byAge says so.
--
-- A clock that is wrong for a moment must not delete what is kept for a week. The clock was perhaps stepped if more than an hour lies
-- between this call and the last call of this consumer, which calls every few seconds (for a new consumer: of any consumer). Then
-- nothing is deleted by age for a minute, and for an hour after that each call deletes at most a page. state.aging is the end of the
-- minute. A new consumer begins no second minute while state.aging is there. Else a queue that is drained now and then would never
-- delete anything.
local byAge, byPages -- something may be deleted by age; a page at most, and no call follows at once to delete more
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

-- The structures. An empty queue costs one command for each.
local function score(head) return scored(head[2]) end
local leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES')) -- the first end of a lease
local furthest = leased and score(redis.call('ZRANGE', KEYS.unack, -1, -1, 'WITHSCORES'))
local function isOver(first) return byAge and first and first ~= '0' and (whole(first) or 0) <= now end
local overdue, holdOver = isOver(done), isOver(firstHold) -- the time of a done message, or of the hold of a key, is over

-- A tick of an idle consumer goes by the alarm, and reads only unack: until the instant of the alarm nothing else is due. It reads
-- everything if the first lease is in its second half, because only then the alarm is set for the end of that lease, and in queues
-- with limits.
local alarm = whole(armed or '0')
local byAlarm = ARGV[8] == '2' and saved and repeated == nil and alarm and (alarm == 0 or alarm > now)
  and not (limits or ARGV[14] ~= '' or overdue or holdOver)
  and not (leased and (leased < now + leaseUS / 2 or furthest > now + leaseUS))
local oldest, pended, retried, ready = nil, nil, nil, {}
if not byAlarm then
  oldest = score(redis.call('ZRANGE', KEYS.garbage, 0, 0, 'WITHSCORES'))
  pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES'))
  retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES'))
  ready = redis.call('LRANGE', KEYS.ready, 0, want) -- one more than wanted: is there more?
  guard(redis.call('ZCARD', KEYS.wake), redis.call('HLEN', KEYS.msg), redis.call('HLEN', KEYS.fail))
  if groups then guard(redis.call('HLEN', KEYS.parts)) end
end
local limited = limits or ARGV[14] ~= '' -- perhaps
local listed -- the tags of the lease of this call, if it was carried out before and handed out anything
if repeated or limited or ready[1] or pended and pended <= now or retried and retried <= now or leased and leased <= now then
  listed = redis.call('HGET', KEYS.lease, name)
  if listed then repeated = repeated or '' end -- also if the record of the call is lost
end
if leased and leased <= now or overtaken and listed then
  guard(redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.held), redis.call('ZCARD', KEYS.lanes), redis.call('ZCARD', KEYS.waiting))
end
if limited or overtaken and (listed or leased and leased <= now) then guard(redis.call('ZCARD', KEYS.done)) end
if overdue then guard(redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result)) end
if holdOver then guard(redis.call('ZCARD', KEYS.held), redis.call('HLEN', KEYS.key)) end
if not state[FIELDS + 1] then guard(redis.call('HLEN', KEYS.msg)) end
local anyone = ARGV[12] ~= '' and redis.pcall('HRANDFIELD', KEYS.consumers, 1, 'WITHVALUES')

redis.call('ZREM', KEYS.unack, '') -- the first write
mark('seen', us(now))
mark('lease', agreed)
local leaseEnd -- of what is handed out
local lost, dropped, overflow, replaced, dead = 0, 0, 0, 0, {} -- as they are reported; replaced: superseded messages that ended
local size = 0 -- bytes of envelopes and parts read so far
local moved = 0 -- messages moved so far
local picked, fromReady, pending = {}, 0, {} -- tags from ready (the first fromReady), retry or a lost reply; ids from pending
local parts = {} -- of groups, as in the reply
