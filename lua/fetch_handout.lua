-- Part of fetch: the deliveries go out.
local out, given = {}, {} -- out: the reply, its NUMBERS first, then tag and envelope of each delivery; given: the tags
local started, late, latest = 0, 0, 0 -- messages for the first time; how long after their instants, us: together, and the latest
local spared = 0 -- of these, how many do not count for a rate
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
    if not envelopes[i] then -- somebody else deleted it: drop what is left of the message
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
  local step = math.ceil(#pending / 16) -- they are in order of their instants: of many, every few say how late those after them are
  for i = 1, #pending do
    if envelopes[i] then
      give(pending[i], envelopes[i])
      started = started + 1
      if (i - 1) % step == 0 then
        local lateness = math.max(now - (whole(string.sub(envelopes[i], 2, 17)) or now), 0)
        late, latest = late + lateness * math.min(step, #pending - i + 1), math.max(latest, lateness)
      end
    else
      dropped = dropped + 1
      redis.call('HDEL', KEYS.fail, pending[i])
    end
  end
end
