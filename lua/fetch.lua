-- fetch is the whole tick of a consumer: it takes back what dead consumers held, ages out
-- garbage, hands out up to `want` deliveries, and sets the alarm for the next instant.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 msg, 7 fail, 8 key, 9 wake, 10 state
-- ARGV: 3 want (0 to 500), 4 lease us, 5 losses in a row that make a message poison,
--       6 age us at which garbage is deleted (0: never), 7 how many garbage may hold (0: any number),
--       8 '1': set the alarm in any case, for the marker was taken by one who cannot serve it,
--       9 a random number from 1 to 2^31-2, 10 poison text
-- Returns {now, next, tags, envelopes, fails, dead, lost, dropped, trimmed}
--       next: '0' or the instant of the next work, which is not after now if more is due;
--       envelopes: one for each tag; fails: fail record or '' for each tag '<n>:<id>', in order;
--       dead: id, envelope, fail record of each message that became poison;
--       lost: leases that ran out; dropped: tags without an envelope; trimmed: garbage deleted for want of room
-- Cost: 11 commands when there is nothing to do; O(log n) for each message, at most 500 of them.
-- Keeps: invariants 1 to 7. Reads first, then a ZREM as the first write: a full server lets
--       the rest pass.
local MOVES, SWEEP, REPLY = 500, 100, 4194304
local field = 'call:' .. ARGV[1]
local want, lease = tonumber(ARGV[3]), tonumber(ARGV[4])
local maxlosses, age, room = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local seed = tonumber(ARGV[9])
local function jitter(width) -- in [0, width)
  seed = seed * 16807 % 2147483647 -- Park and Miller's minimal standard generator, exact in a double
  return math.floor(seed / 2147483647 * width)
end
local function split(tag) -- delivery number, id
  local n, id = string.match(tag, '^(%d+):(.+)$')
  if n then return tonumber(n), id end
  return 1, tag
end

local state = redis.call('HMGET', KEYS[10], field, 'armed', 'seen', 'grace', 'lane', 'big', 'swept', 'cursor')
local armed, seen = tonumber(state[2]) or 0, tonumber(state[3]) or 0
local grace, lane, big = tonumber(state[4]) or 0, tonumber(state[5]) or 0, tonumber(state[6])
local handed = recall(state[1]) -- lease end of what a lost reply held
if handed == false then return stale end

-- What is there. An empty queue costs one command for each structure.
local function score(head) return tonumber(head[2]) end
local leased = score(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES'))
local oldest = score(redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES'))
local pended = score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))
local retried = score(redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES'))
local ready = redis.call('LRANGE', KEYS[2], 0, want) -- one more than wanted: is there more?
redis.call('ZCARD', KEYS[9])

redis.call('HLEN', KEYS[6])
if leased and leased <= now or oldest then
  redis.call('HLEN', KEYS[7])
  redis.call('HLEN', KEYS[8])
end

redis.call('ZREM', KEYS[3], '') -- the first write
local marks = {'seen', us(now)}
local function mark(name, value)
  marks[#marks + 1] = name
  marks[#marks + 1] = value
end

-- A fetch gives its deliveries a lease end that no other lease has, so that a repeat finds
-- them by it: odd, whereas a renewal is even, and not in use.
local function lend(tags)
  local ends = now + lease
  ends = ends - ends % 2 + 1
  while redis.call('ZCOUNT', KEYS[3], us(ends), us(ends)) > 0 do ends = ends + 2 end
  ends = us(ends)
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

-- 1. Leases that ran out. After two thirds of one without any consumer's call (an outage,
-- a step of the clock), those that ran out meanwhile are renewed once: their holders may live.
if now - seen > lease * 2 / 3 then
  grace = now
  mark('grace', us(now))
end
local expired = {}
if leased and leased <= now then
  expired = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', us(now), 'WITHSCORES', 'LIMIT', 0, SWEEP)
end
local lost, dropped, dead, deadsize = 0, 0, {}, 0
for i = 1, #expired, 2 do
  if deadsize > REPLY then break end
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
    local failures, losses = 0, 0
    local record = redis.call('HGET', KEYS[7], id)
    if record then
      local f, l = string.match(record, '^%d+ (%d+) (%d+) ')
      failures, losses = tonumber(f) or 0, tonumber(l) or 0
    end
    losses = losses + 1
    local text = record and string.match(record, '^%d+ %d+ %d+ %d+ (.*)$') or ''
    if losses >= maxlosses then text = ARGV[10] end
    record = string.format('%d %d %d %.0f %s', n + 1, failures, losses, now, text)
    redis.call('ZREM', KEYS[3], tag)
    redis.call('HSET', KEYS[7], id, record)
    if losses >= maxlosses then
      local envelope = redis.call('HGET', KEYS[6], id)
      local key = keyof(string.sub(envelope, 18))
      if key ~= '' and redis.call('HGET', KEYS[8], key) == id then redis.call('HDEL', KEYS[8], key) end
      redis.call('ZADD', KEYS[5], us(now), id)
      dead[#dead + 1] = id
      dead[#dead + 1] = envelope
      dead[#dead + 1] = record
      deadsize = deadsize + #envelope
    else
      -- Apart from those that it was lost with. The last chance is a slot of its own, half
      -- a lease behind that of the message before, so that the one which kills its
      -- consumers is handed out alone.
      local next
      if losses < maxlosses - 1 then
        next = now + jitter(500000 * losses)
      elseif lane < now + 60000000 then
        next = math.max(now, lane)
        lane = next + math.max(lease / 2, 500000)
        mark('lane', us(lane))
      else
        next = now + jitter(60000000)
      end
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
-- more than that, so that neither starves the other.
local ids, numbered = {}, {}
local function number(i, tag)
  local n, id = split(tag)
  ids[i] = id
  if n > 1 then numbered[#numbered + 1] = id end
end
local fromready, pending, retry = 0, {}, {}
if handed then
  for i = 1, #tags do number(i, tags[i]) end
else
  local rest = math.min(want, MOVES - #expired / 2 - #gone)
  fromready = math.min(#ready, rest)
  rest = rest - fromready
  if rest > 0 and pended and pended <= now then
    pending = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', us(now), 'LIMIT', 0, rest)
  end
  if rest > 0 and retried and retried <= now then
    retry = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', us(now), 'LIMIT', 0, rest)
  end
  local turn = ARGV[2] % 2 -- who gets the odd one
  local r = math.min(#retry, math.max(rest - #pending, math.floor((rest + turn) / 2)))
  local p = math.min(#pending, rest - r)
  for i = #pending, p + 1, -1 do pending[i] = nil end
  for i = #retry, r + 1, -1 do retry[i] = nil end
  for i = 1, fromready do
    tags[i] = ready[i]
    number(i, ready[i])
  end
  for i = 1, p do
    tags[fromready + i] = pending[i]
    ids[fromready + i] = pending[i]
  end
  for i = 1, r do
    tags[fromready + p + i] = retry[i]
    number(fromready + p + i, retry[i])
  end
end
local function isnumbered(i)
  return (i <= fromready or i > fromready + #pending) and split(tags[i]) > 1
end

-- Sizes are known before values are read: by the longest envelope ever stored, or one by one.
if tags[1] and (not big or #tags * big > REPLY) and not handed then
  local size, keep = 0, 0
  for i = 1, #ids do
    size = size + redis.call('HSTRLEN', KEYS[6], ids[i])
    if size > REPLY and keep > 0 then break end
    keep = i
  end
  if keep < #tags then
    for i = #tags, keep + 1, -1 do tags[i], ids[i] = nil, nil end
    fromready = math.min(fromready, keep)
    for i = #pending, math.max(keep - fromready, 0) + 1, -1 do pending[i] = nil end
    for i = #retry, math.max(keep - fromready - #pending, 0) + 1, -1 do retry[i] = nil end
    numbered = {}
    for i = 1, keep do
      if isnumbered(i) then numbered[#numbered + 1] = ids[i] end
    end
  end
end

local envelopes, fails = {}, {}
if tags[1] then
  envelopes = redis.call('HMGET', KEYS[6], unpack(ids))
  if numbered[1] then fails = redis.call('HMGET', KEYS[7], unpack(numbered)) end
  for i = 1, #fails do fails[i] = fails[i] or '' end
end
if not handed then
  if fromready > 0 then redis.call('LTRIM', KEYS[2], fromready, -1) end
  if pending[1] then redis.call('ZREM', KEYS[1], unpack(pending)) end
  if retry[1] then redis.call('ZREM', KEYS[4], unpack(retry)) end
end
local whole = true
for i = 1, #tags do
  if not envelopes[i] then whole = false break end
end
if not whole then -- somebody else deleted envelopes: drop what is left of those messages
  local t, e, f, j = {}, {}, {}, 0
  for i = 1, #tags do
    local n = isnumbered(i)
    if n then j = j + 1 end
    if envelopes[i] then
      t[#t + 1] = tags[i]
      e[#e + 1] = envelopes[i]
      if n then f[#f + 1] = fails[j] end
    else
      dropped = dropped + 1
      redis.call('HDEL', KEYS[7], ids[i])
      redis.call('ZREM', KEYS[3], tags[i])
    end
  end
  tags, envelopes, fails = t, e, f
end

if tags[1] and not handed then reply = lend(tags) end

-- 4. The alarm: the same instant is set once, not once for each tick, for it wakes whoever
-- takes it; while more is due, it is set again and again, for it may have been taken.
local next = 0
local function soonest(t) if t and (next == 0 or t < next) then next = t end end
if fromready < #ready and redis.call('LLEN', KEYS[2]) > 0 then soonest(now) end
if pending[1] or handed then pended = score(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')) end
if retry[1] or handed then retried = score(redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')) end
soonest(pended)
soonest(retried)
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
local swept, cursor = tonumber(state[7]) or 0, state[8] or '0'
if cursor ~= '0' or now - swept > 600000000 then
  local page = redis.call('HSCAN', KEYS[10], cursor, 'MATCH', 'call:*', 'COUNT', SWEEP)
  for i = 1, #page[2], 2 do
    local heard = string.match(page[2][i + 1], '^%d+ (%d+) ')
    if page[2][i] ~= field and (not heard or now - heard > 86400000000) then
      redis.call('HDEL', KEYS[10], page[2][i])
    end
  end
  if redis.call('HLEN', KEYS[6]) == 0 then redis.call('HDEL', KEYS[10], 'big') end
  mark('swept', us(now))
  mark('cursor', page[1])
end
if dropped > 0 then redis.call('HINCRBY', KEYS[10], 'dropped', dropped) end
mark(field, record(reply))
redis.call('HSET', KEYS[10], unpack(marks))
return {us(now), us(next), tags, envelopes, fails, dead, lost, dropped, crowd}
