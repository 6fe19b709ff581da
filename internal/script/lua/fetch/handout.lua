-- The chosen deliveries are handed out.
-- takes: limit, addparts, picked, fromReady, repeated, lastChance, holdsLastChance, dropped, later, pending
-- gives: given, out, late, latest, started, spared, NUMBERS, give, begin, fails
-- from time: now, whole
-- from record: split

local out, given = {}, {} -- out: the reply, its NUMBERS first, then tag and envelope of each delivery; given: the tags
local started, late, latest = 0, 0, 0 -- messages handed out for the first time; how late they were, us: together, and the latest
local spared = 0 -- how many of the given do not count for a rate
local NUMBERS = 17
for i = 1, NUMBERS do out[i] = 0 end
local function give(tag, envelope)
  local n = #given + 1
  given[n] = tag
  out[NUMBERS + 2 * n - 1], out[NUMBERS + 2 * n] = tag, envelope
  if limit and limit.spare((split(tag)), envelope) then spared = spared + 1 end
  if string.byte(envelope, 1) == 2 then
    local _, id = split(tag)
    addparts(n, id, envelope)
  end
end

-- begin(envelope, n) notes how late a message is that is handed out for the first time. It stands for n such messages.
local function begin(envelope, n)
  local lateness = math.max(now - (whole(string.sub(envelope, 2, 17)) or now), 0)
  late, latest = late + lateness * n, math.max(latest, lateness)
end

local fails = {}
if picked[1] then
  local ids, numbered, j = {}, {}, 0
  for i = 1, #picked do
    local n, id = split(picked[i])
    ids[i] = id
    if n > 1 then numbered[#numbered + 1] = id end
  end
  local envelopes = redis.call('HMGET', KEYS.msg, unpack(ids))
  local records = numbered[1] and redis.call('HMGET', KEYS.fail, unpack(numbered)) or {}
  if fromReady > 0 then redis.call('LTRIM', KEYS.ready, fromReady, -1) end
  if not repeated and #picked > fromReady then redis.call('ZREM', KEYS.retry, unpack(picked, fromReady + 1)) end
  for i = 1, #picked do
    local tag, record, deferred = picked[i], nil, false
    if ids[i] ~= tag then
      j = j + 1
      record = records[j] or ''
    end
    if not repeated and lastChance(record) then
      deferred = holdsLastChance
      holdsLastChance = true
    end
    if not envelopes[i] then -- another program deleted the envelope: what is left of the message is dropped
      dropped = dropped + 1
      redis.call('HDEL', KEYS.fail, ids[i])
      if repeated then redis.call('ZREM', KEYS.unack, tag) end
    elseif deferred then
      redis.call('ZADD', KEYS.retry, later(), tag)
    else
      give(tag, envelopes[i])
      fails[#fails + 1] = record or ''
    end
  end
end
if pending[1] then
  local envelopes = redis.call('HMGET', KEYS.msg, unpack(pending))
  redis.call('ZREM', KEYS.pending, unpack(pending))
  local step = math.ceil(#pending / 16) -- in order of their instants: of many, one in so many says how late those after it are
  for i = 1, #pending do
    if envelopes[i] then
      give(pending[i], envelopes[i])
      started = started + 1
      if (i - 1) % step == 0 then begin(envelopes[i], math.min(step, #pending - i + 1)) end
    else
      dropped = dropped + 1
      redis.call('HDEL', KEYS.fail, pending[i])
    end
  end
end
