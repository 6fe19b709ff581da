-- fetch is the whole tick of a consumer: it takes back what dead consumers held, ages out
-- garbage, hands out up to `want` deliveries, and sets the alarm for the next instant.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 msg, 7 fail, 8 key, 9 wake, 10 state, 11 consumers, 12 history
-- ARGV: 3 want (0 to 500), 4 lease us, 5 losses in a row that make a message poison,
--       6 age us at which garbage is deleted (0: never), 7 how many garbage may hold (0: any number),
--       8 '1': set the alarm in any case, for the marker was taken by one who cannot serve it,
--       9 a random number from 1 to 2^31-2, 10 poison text,
--       11 '1': this consumer holds a message on its last chance,
--       12 what this consumer says of itself, for a Monitor; '-': it leaves; '': nothing new
-- Returns {now, next, lost, dropped, trimmed, first, n, f, d, n times tag and envelope, f fail records, d dead}
--       next: '0' or the instant of the next work, which is not after now if more is due;
--       lost: leases that ran out; dropped: tags without an envelope; trimmed: garbage deleted for want of room;
--       first: 1 if no consumer has called since state was there;
--       fail records: that of the first f tags, '' for none; the other tags come from pending and have none;
--       dead: id, envelope and fail record of each message that became poison
-- Cost: 12 commands when there is nothing to do, 2 more when the consumer says something; O(log n) for each message, at most 500 of them.
-- Keeps: invariants 1 to 7. Reads first, then a ZREM as the first write: a full server lets
--       the rest pass.
local MOVES, SWEEP, REPLY, HISTORY = 500, 100, 4194304, 720
local field = 'call:' .. ARGV[1]
local want, lease = tonumber(ARGV[3]), tonumber(ARGV[4])
local maxlosses, age, room = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
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
local function islast(record) -- is that the record of a message on its last chance?
  local losses = record and tonumber(string.match(record, '^%d+ %d+ (%d+) ')) or 0
  return losses > 0 and losses >= maxlosses - 1
end
local holds = ARGV[11] == '1'
local back = math.max(math.floor(lease / 2), 2000000) -- in which all consumers find back after an outage
local later = now + 50000 -- when one that could not have its last chance now is looked at again

local state = redis.call('HMGET', KEYS[10], field, 'armed', 'seen', 'grace', 'big', 'swept', 'cursor', 'lent',
  'pause')
local armed, seen = tonumber(state[2]) or 0, tonumber(state[3]) or 0
local grace, big = tonumber(state[4]) or 0, tonumber(state[5])
if seen > now then seen = 0 end -- the clock was stepped back
if grace > now + back then grace = 0 end
local heard = state[1] and tonumber(string.match(state[1], '^%d+ (%d+) ')) or now -- of this consumer, before
local handed = recall(state[1]) -- lease end of what a lost reply held
if handed == false then return stale end
local pause = tonumber(state[9]) or 0
if pause > now then want = 0 end

-- What is there. An empty queue costs one command for each structure.
local function score(head) return tonumber(head[2]) end
local leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'))
local oldest = score(redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES'))
local pended = score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))
local retried = score(redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES'))
local ready = redis.call('LRANGE', KEYS[2], 0, want) -- one more than wanted: is there more?
redis.call('ZCARD', KEYS[9])

redis.call('HLEN', KEYS[6])
redis.call('HLEN', KEYS[7])
local anyone = ARGV[12] ~= '' and redis.pcall('HRANDFIELD', KEYS[11], 1, 'WITHVALUES')
if leased and leased <= now then redis.call('HLEN', KEYS[8]) end

redis.call('ZREM', KEYS[3], '') -- the first write
local marks = {'seen', us(now)}
local function mark(name, value)
  marks[#marks + 1] = name
  marks[#marks + 1] = value
end

-- A fetch gives its deliveries a lease end that no other lease has, so that a repeat finds
-- them by it: odd, whereas a renewal is even, not in use, and not that of the fetch before,
-- whose deliveries may all have been intercepted.
local function lend(tags)
  local ends = now + lease
  ends = ends - ends % 2 + 1
  while us(ends) == state[8] or redis.call('ZCOUNT', KEYS[3], us(ends), us(ends)) > 0 do ends = ends + 2 end
  ends = us(ends)
  mark('lent', ends)
  local leases = {}
  for i = 1, #tags do
    leases[2 * i - 1] = ends
    leases[2 * i] = tags[i]
  end
  redis.call('ZADD', KEYS[3], unpack(leases))
  return ends
end

local tags, reply = {}, ''
if handed and handed ~= '' then
  tags = redis.call('ZRANGEBYSCORE', KEYS[3], handed, handed)
  if tags[1] then
    reply = lend(tags)
    leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'))
  end
end

-- 1. Leases that ran out. After two thirds of one without any consumer's call (an outage, a step
-- of the clock) those that ran out meanwhile are renewed once: their holders may live. And where this
-- consumer was cut off for half of one, others were too, who find back later than this one.
if now - heard > lease / 2 then
  grace = now + back
  mark('grace', us(grace))
elseif now - seen > lease * 2 / 3 then
  grace = now
  mark('grace', us(grace))
end
local expired = {}
if leased and leased <= now then
  expired = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', us(now), 'WITHSCORES', 'LIMIT', 0, SWEEP)
end
local lost, dropped, dead, size = 0, 0, {}, 0
for i = 1, #expired, 2 do
  if size > REPLY / 4 then break end
  local tag = expired[i]
  local n, id = split(tag)
  if redis.call('HEXISTS', KEYS[6], id) == 0 then
    dropped = dropped + redis.call('ZREM', KEYS[3], tag)
    redis.call('HDEL', KEYS[7], id)
  elseif tonumber(expired[i + 1]) <= grace then
    local renewed = now + lease
    redis.call('ZADD', KEYS[3], us(renewed - renewed % 2), tag)
  else
    lost = lost + 1
    local record = redis.call('HGET', KEYS[7], id) or ''
    local failures, losses, text = string.match(record, '^%d+ (%d+) (%d+) %d+ (.*)$')
    losses = (tonumber(losses) or 0) + 1
    if losses >= maxlosses then text = ARGV[10] end
    record = (n + 1) .. ' ' .. (failures or '0') .. ' ' .. losses .. ' ' .. us(now) .. ' ' .. (text or '')
    redis.call('ZREM', KEYS[3], tag)
    redis.call('HSET', KEYS[7], id, record)
    if losses >= maxlosses then
      local envelope = redis.call('HGET', KEYS[6], id)
      local key = keyof(envelope, 18)
      if key ~= '' and redis.call('HGET', KEYS[8], key) == id then redis.call('HDEL', KEYS[8], key) end
      redis.call('ZADD', KEYS[5], us(now), id)
      dead[#dead + 1] = id
      dead[#dead + 1] = envelope
      dead[#dead + 1] = record
      size = size + #envelope
    else
      -- Apart from those that it was lost with.
      local next = now + jitter(500000 * losses)
      if not retried or next < retried then retried = next end
      redis.call('ZADD', KEYS[4], us(next), (n + 1) .. ':' .. id)
    end
  end
end
if expired[1] then leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')) end

-- 2. Garbage that is too old or too much.
local gone, crowd = {}, 0
if oldest and age > 0 and oldest <= now - age then
  gone = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', us(now - age), 'LIMIT', 0, SWEEP)
end
if oldest and room > 0 then
  local aged = #gone
  crowd = math.max(0, math.min(redis.call('ZCARD', KEYS[5]) - aged - room, SWEEP - aged))
  if crowd > 0 then
    for i, id in ipairs(redis.call('ZRANGE', KEYS[5], aged, aged + crowd - 1)) do gone[aged + i] = id end
  end
end
if gone[1] then
  redis.call('ZREM', KEYS[5], unpack(gone))
  redis.call('HDEL', KEYS[6], unpack(gone))
  redis.call('HDEL', KEYS[7], unpack(gone))
end

-- 3. Deliveries: first what is ready, then pending and retry, half and half when both have
-- more than that, so that neither starves the other. `some` may be beyond their first
-- delivery: they come from ready (the first of them) and retry, or from the lost reply.
local some, fromready, pending, aside = tags, 0, {}, {}
if not handed then
  if holds and want > 0 and retried and retried <= now then
    -- Others on their last chance go aside, a page at a time and not one with each call.
    local page, names = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', us(now), 'LIMIT', 0, SWEEP), {}
    for i = 1, #page do
      local _, id = split(page[i])
      names[i] = id
    end
    local records = redis.call('HMGET', KEYS[7], unpack(names))
    for i = 1, #page do
      if islast(records[i]) then
        aside[#aside + 1] = us(later)
        aside[#aside + 1] = page[i]
      end
    end
    if aside[1] then
      redis.call('ZADD', KEYS[4], unpack(aside))
      retried = score(redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES'))
    end
  end
  local rest = math.max(0, math.min(want, MOVES - (#expired + #aside) / 2 - #gone))
  fromready = math.min(#ready, rest)
  for i = 1, fromready do some[i] = ready[i] end
  rest = rest - fromready
  if rest > 0 and pended and pended <= now then
    pending = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', us(now), 'LIMIT', 0, rest)
  end
  local retry = {}
  if rest > 0 and retried and retried <= now then
    retry = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', us(now), 'LIMIT', 0, rest)
  end
  local r = math.min(#retry, math.max(rest - #pending, math.floor((rest + jitter(2)) / 2)))
  for i = 1, r do some[fromready + i] = retry[i] end
  for i = #pending, rest - r + 1, -1 do pending[i] = nil end
end
local ids, numbered = {}, {}
for i = 1, #some do
  local n, id = split(some[i])
  ids[i] = id
  if n > 1 then numbered[#numbered + 1] = id end
end

-- Sizes are known before values are read: by the longest envelope ever stored, or one by one.
local keep, keeppending = #some, #pending
if not handed and (not big or (keep + keeppending) * big + size > REPLY) then
  local function fitting(ids, limit, least)
    for i = 1, #ids do
      local length = redis.call('HSTRLEN', KEYS[6], ids[i])
      if size + length > limit and i > least then return i - 1 end
      size = size + length
    end
    return #ids
  end
  local half = (size + REPLY) / 2 -- of what room there is, for whoever is looked at first
  if pending[1] and (not some[1] or jitter(2) == 0) then
    keeppending = fitting(pending, some[1] and half or REPLY, 1)
    keep = fitting(ids, REPLY, 0)
  else
    keep = fitting(ids, pending[1] and half or REPLY, 1)
    keeppending = fitting(pending, REPLY, 0)
  end
  for i = #pending, keeppending + 1, -1 do pending[i] = nil end
end

local HEAD = 9
local out, fails, n = {0, 0, 0, 0, 0, 0, 0, 0, 0}, {}, 0 -- the reply; deliveries in it
tags = {}
local function give(tag, envelope)
  n = n + 1
  tags[n] = tag
  out[HEAD + 2 * n - 1], out[HEAD + 2 * n] = tag, envelope
end
if keep > 0 then
  local found = redis.call('HMGET', KEYS[6], unpack(ids, 1, keep))
  local records = numbered[1] and redis.call('HMGET', KEYS[7], unpack(numbered)) or {}
  if fromready > 0 then redis.call('LTRIM', KEYS[2], math.min(fromready, keep), -1) end
  if not handed and keep > fromready then redis.call('ZREM', KEYS[4], unpack(some, fromready + 1, keep)) end
  local j = 0
  for i = 1, keep do
    local tag, record = some[i], nil
    if split(tag) > 1 then
      j = j + 1
      record = records[j] or ''
    end
    local wait, lastchance = false, not handed and islast(record)
    if lastchance then
      -- A consumer has one message on its last chance at a time: the one that kills its
      -- consumers does so alone, and none of those lost with it dies of it.
      wait = holds
      holds = true
    end
    if not found[i] then -- somebody else deleted it: drop what is left of the message
      dropped = dropped + 1
      redis.call('HDEL', KEYS[7], ids[i])
      if handed then redis.call('ZREM', KEYS[3], tag) end
    elseif wait then
      redis.call('ZADD', KEYS[4], us(later), tag)
    else
      give(tag, found[i])
      fails[n] = record or ''
    end
  end
end
if pending[1] then
  local found = redis.call('HMGET', KEYS[6], unpack(pending))
  redis.call('ZREM', KEYS[1], unpack(pending))
  for i = 1, #pending do
    if found[i] then
      give(pending[i], found[i])
    else
      dropped = dropped + 1
      redis.call('HDEL', KEYS[7], pending[i])
    end
  end
end
if tags[1] and not handed then reply = lend(tags) end

-- 4. The alarm: the same instant is set once, not once for each tick, for it wakes whoever
-- takes it; while more is due, it is set again and again, for it may have been taken.
local next = 0
local function soonest(t) if t and (next == 0 or t < next) then next = t end end
if ready[1] and redis.call('LLEN', KEYS[2]) > 0 then soonest(now) end
if pending[1] then pended = score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')) end
if some[1] then retried = score(redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')) end
soonest(pended)
soonest(retried)
if next ~= 0 and next < pause then next = pause end
if leased and leased < now + lease / 2 then soonest(leased) end -- its holder should have renewed it
if next == 0 then
  if armed ~= 0 then
    redis.call('ZREM', KEYS[9], 'w')
    mark('armed', '0')
  end
elseif next ~= armed or next <= now or ARGV[8] == '1' then
  redis.call('ZADD', KEYS[9], us(next), 'w')
  mark('armed', us(next))
end

-- 5. Callers that were last heard of a day ago are forgotten, some at a time.
local swept, cursor = tonumber(state[6]) or 0, state[7] or '0'
if cursor ~= '0' or now - swept > 600000000 then
  local page = redis.call('HSCAN', KEYS[10], cursor, 'MATCH', 'call:*', 'COUNT', SWEEP)
  for i = 1, #page[2], 2 do
    local heard = string.match(page[2][i + 1], '^%d+ (%d+) ')
    if page[2][i] ~= field and (not heard or now - heard > 86400000000) then
      redis.call('HDEL', KEYS[10], page[2][i])
    end
  end
  if redis.call('HLEN', KEYS[6]) == 0 then redis.call('HDEL', KEYS[10], 'big') end
  local kept = redis.pcall('HLEN', KEYS[12])
  if type(kept) == 'number' and kept > HISTORY then -- older than those of 30 days
    local fields, old = redis.call('HKEYS', KEYS[12]), {}
    for _, name in ipairs(fields) do
      local at = tonumber(string.match(name, '^(%d+):'))
      if #old < SWEEP and (not at or at * 3600000000 < now - 2592000000000) then old[#old + 1] = name end
    end
    if old[1] then redis.call('HDEL', KEYS[12], unpack(old)) end
  end
  mark('swept', us(now))
  mark('cursor', page[1])
end

-- 6. For those who look: what was counted, and who consumes. An entry of a consumer that has been silent
-- for long goes when somebody comes upon it.
local function add(kind, n) if n > 0 then redis.pcall('HINCRBY', KEYS[12], counter(kind), n) end end
if not handed then add('delivered', n) end
add('lost', lost)
add('dead', #dead / 3)
if anyone and not anyone.err then
  local heard, lease = string.match(anyone[2] or '', '^(%d+) (%d+) ')
  if anyone[1] and (not heard or now - heard > 2 * lease + 5000000) then redis.call('HDEL', KEYS[11], anyone[1]) end
  if ARGV[12] == '-' then
    redis.call('HDEL', KEYS[11], ARGV[1])
  else
    redis.call('HSET', KEYS[11], ARGV[1], us(now) .. ' ' .. ARGV[4] .. ' ' .. ARGV[12])
  end
end
if dropped > 0 then redis.call('HINCRBY', KEYS[10], 'dropped', dropped) end
mark(field, record(reply))
redis.call('HSET', KEYS[10], unpack(marks))
local f, d = #fails, #dead
for i, value in ipairs({us(now), us(next), lost, dropped, crowd, state[3] and 0 or 1, n, f, d / 3}) do out[i] = value end
for i = 1, f do out[HEAD + 2 * n + i] = fails[i] end
for i = 1, d do out[HEAD + 2 * n + f + i] = dead[i] end
return out
