-- fetch is the whole tick of a consumer: it takes back what dead consumers held, ages out
-- garbage, hands out up to `want` deliveries, and sets the alarm for the next instant.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, consumers, history
-- ARGV: 3 want (0 to 500), 4 lease us, 5 losses in a row that make a message poison,
--       6 age us at which garbage is deleted (0: never), 7 how many garbage may hold (0: any number);
--       4 to 7: the most that any consumer asks for holds for all,
--       8 '1': set the alarm in any case, for the marker was taken by one who cannot serve it,
--       9 a random number from 1 to 2^31-2, 10 poison text,
--       11 '1': this consumer holds a message on its last chance,
--       12 what this consumer says of itself, for a Monitor; '-': it leaves; '': nothing new,
--       13 bytes of envelopes that the reply may hold, but for a delivery that is alone in it; '0': hand out nothing,
--       and, of the deliveries of a lost reply, say only what they are
-- Returns {now, next, lost, dropped, trimmed, first, lease, losses, age, room, n, f, d, h,
--       n times tag and envelope, f fail records, d dead, h held}
--       next: '0' or the instant of the next work, which is not after now if more is due;
--       lost: leases that ran out; dropped: tags without an envelope; trimmed: garbage deleted for want of room;
--       first: 1 if no consumer has called since state was there; lease to room: ARGV 4 to 7 as they hold for all;
--       fail records: that of the first f tags, '' for none; the other tags come from pending and have none;
--       dead: id, envelope ('' if there is no room for it) and fail record of each message that became poison;
--       held: tag, bytes of the envelope, fail record, and, where one more loss makes it poison, its key or ''
-- Cost: 13 commands when there is nothing to do, 3 more when the consumer says something, and, at most once a second,
--       2 when anything was counted (5 once an hour); O(log n) for each message, at most 500 of them.
-- Keeps: invariants 1 to 7. Reads first, then a ZREM as the first write: a full server lets
--       the rest pass. A repeat whose reply may hold less than the call's gives back what does not fit.
-- Parts: this one reads what is there; leases, garbage, choose, give, alarm and sweep follow (fetch_*.lua).
local MOVES, SWEEP = 500, 100
local field = 'call:' .. ARGV[1]
local want, bytes = tonumber(ARGV[3]), tonumber(ARGV[13])
local seed = tonumber(ARGV[9])
local function jitter(width) -- in [0, width)
  seed = seed * 16807 % 2147483647 -- Park and Miller's minimal standard generator, exact in a double
  return math.floor(seed / 2147483647 * width)
end
local function split(tag) -- delivery number, id; as splitTag in Go
  local n, id = string.match(tag, '^([1-9]%d*):(.+)$')
  if n and n ~= '1' and #n < 10 then return tonumber(n), id end
  return 1, tag
end
local function parse(record) -- failures, losses and text of a fail record, and 0, 0 and '' of anything else
  local failures, losses, text = string.match(record or '', '^%d+ (%d+) (%d+) %d+ (.*)$')
  return whole(failures) or 0, whole(losses) or 0, text or ''
end

local state = redis.call('HMGET', KEYS.state, field, 'armed', 'seen', 'grace', 'big', 'swept', 'cursor', 'lent',
  'pause', 'settings', 'dropped', 'counted', unpack(KINDS))
local armed, seen = whole(state[2]) or 0, whole(state[3]) or 0
local big = math.max(whole(state[5]) or 0, 2048) -- what is not longer than that is not noted (send)
local heard = state[1] and whole(string.match(state[1], '^%d+ (%d+) ')) or now -- of this consumer, before
local handed = recall(state[1]) -- lease end of what a lost reply held
if handed == false then return stale end
if handed and not whole(handed) then handed = '' end
local pause = whole(state[9]) or 0
if pause > now or bytes == 0 then want = 0 end

local function most(n) return n == 0 and CENTURY or n end -- 0: no bound
local settings, asked = agreed(state[10],
  {tonumber(ARGV[4]), tonumber(ARGV[5]), most(tonumber(ARGV[6])), most(tonumber(ARGV[7]))})
local lease, maxlosses, age, room = unpack(settings)
local function islast(record) -- is that the record of a message on its last chance?
  local _, losses = parse(record)
  return losses > 0 and losses >= maxlosses - 1
end

-- What is there. An empty queue costs one command for each structure, and one for the last lease.
local function score(head) return scored(head[2]) end
local leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES'))
local furthest = score(redis.call('ZRANGE', KEYS.unack, -1, -1, 'WITHSCORES'))
local oldest = score(redis.call('ZRANGE', KEYS.garbage, 0, 0, 'WITHSCORES'))
local pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES'))
local retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES'))
local ready = redis.call('LRANGE', KEYS.ready, 0, want) -- one more than wanted: is there more?
redis.call('ZCARD', KEYS.wake)

redis.call('HLEN', KEYS.msg)
redis.call('HLEN', KEYS.fail)
local anyone = ARGV[12] ~= '' and redis.pcall('HRANDFIELD', KEYS.consumers, 1, 'WITHVALUES')
if leased and leased <= now then redis.call('HLEN', KEYS.key) end

redis.call('ZREM', KEYS.unack, '') -- the first write
local marks = {'seen', us(now), 'settings', asked}
local function mark(name, value)
  marks[#marks + 1] = name
  marks[#marks + 1] = value
end
local lost, dropped, dead, size = 0, 0, {}, 0 -- size: bytes of envelopes read so far
local moved = 0 -- messages so far
