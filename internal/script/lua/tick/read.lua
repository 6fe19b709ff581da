-- The state of the queue is read.
-- from time: now, us, whole, scored
-- from call: guard, mark
-- from longest: longest
-- from history: KINDS
-- from books: openbooks

local SWEEP = 100 -- how many entries a call looks at to clean up
local KNOWN = 14 -- how many fields of state are read before those of KINDS

-- score(head) is the first score of a structure, by what ZRANGE says of it.
local function score(head) return scored(head[2]) end

-- agingat(aging, ticked) is the new state.aging. Garbage, done messages, holds of keys, old history and old callers are
-- deleted by age only after that instant.
--
-- A clock that is wrong for a moment must not delete what is kept for a week. The clock was perhaps stepped if more
-- than an hour lies between this tick and the last one. Then nothing is deleted by age for a minute, and for an hour
-- after that each call deletes at most a page. A consumer's first tick begins no second minute while state.aging is
-- there. Else a queue that is drained now and then would never delete anything.
local function agingat(aging, ticked)
  local HOUR, MINUTE = 3600000000, 60000000
  local stepped = math.abs(now - ticked) > HOUR and (aging == 0 or ARGV[2] == '1')
  if stepped or aging > now + MINUTE then return now + MINUTE end
  return aging ~= 0 and now - aging > HOUR and 0 or aging
end

-- isover(first) says whether an instant in a field of state is over; also if another program has written the field,
-- which is then set again.
local function isover(first) return first and first ~= '0' and (whole(first) or 0) <= now end

-- read() reads all that the call may touch, up to the first write, and returns the table of the call.
local function read()
  local state = redis.call('HMGET', KEYS.state, 'ticked', 'lease', 'grace', 'aging', 'done', 'holds', 'parts', 'swept', 'cursor', 'armed', 'pause',
    'limited', 'told', 'seen', unpack(KINDS))
  local ticked, asked, grace, aging, done, firstHold, groups, swept, cursor, armed, pause, limited, told, seen = unpack(state, 1, KNOWN)
  local before = whole(aging) or 0
  local agingAt = agingat(before, whole(ticked) or now)
  local leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES'))
  local furthest = leased and score(redis.call('ZRANGE', KEYS.unack, -1, -1, 'WITHSCORES'))
  local oldest = score(redis.call('ZRANGE', KEYS.garbage, 0, 0, 'WITHSCORES'))
  guard(redis.call('HLEN', KEYS.lease), redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('HLEN', KEYS.result),
    redis.call('ZCARD', KEYS.pending), redis.call('ZCARD', KEYS.retry), redis.call('ZCARD', KEYS.wake), redis.call('ZCARD', KEYS.holds),
    redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.msg))
  local laned = redis.call('ZCARD', KEYS.lanes) + redis.call('ZCARD', KEYS.waiting) > 0
  if groups then guard(redis.call('HLEN', KEYS.parts)) end

  redis.call('ZREM', KEYS.unack, '') -- the first write
  if agingAt ~= before then mark('aging', us(agingAt)) end
  if not state[KNOWN + 1] then -- the queue has no totals
    openbooks()
    state[KNOWN + 1], state[KNOWN + 3], told = '0', '0', '0 0'
  end
  seen = whole(seen) or 0 -- the last fetch of any consumer
  if seen > now then seen = 0 end
  return {
    state = state, seen = seen, grace = grace, done = whole(done) or 0, holds = (whole(firstHold) or 0) > 0, groups = groups,
    swept = swept, cursor = cursor, armed = armed,
    pause = pause, limited = limited, told = told, leased = leased, furthest = furthest, oldest = oldest, laned = laned,
    leaseUS = longest(asked, tonumber(ARGV[4])), bytes = tonumber(ARGV[9]),
    doneOver = agingAt <= now and isover(done), holdsOver = agingAt <= now and isover(firstHold),
    byAge = agingAt <= now, byPages = agingAt ~= 0, -- something may be deleted by age; a page at most, and no call follows at once
    moved = 0, size = 0, -- messages that were taken back; bytes of envelopes and parts read so far
    lost = 0, overflow = 0, replaced = 0, dead = {}, missing = {}, parts = {}, -- as they are reported
    outs = {}, -- by fields of the books: how many messages were deleted
  }
end
