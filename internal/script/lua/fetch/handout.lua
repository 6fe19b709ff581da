-- The chosen deliveries are handed out.
-- takes: reserved, groups, limit, addparts, picked, fromReady, repeated, lastChance, alone, dropped, later, pending, leaseUS
-- gives: given, out, late, latest, started, spared, give, begin, fails
-- from time: now, us, whole
-- from record: split

local out, given = {}, {} -- out: the reply, which begins with the envelopes of what is given; given: the tags
local started, late, latest = 0, 0, 0 -- messages handed out for the first time; how late they were, us: together, and the latest
local spared = 0 -- how many of the given do not count for a rate
local function look(n, tag, envelope) -- at the nth of the given
  if limit and limit.spare((split(tag)), envelope) then spared = spared + 1 end
  if string.byte(envelope, 1) == 2 then
    local _, id = split(tag)
    addparts(n, id, envelope)
  end
end
local function give(tag, envelope)
  local n = #given + 1
  given[n], out[n] = tag, envelope
  look(n, tag, envelope)
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
  if picked.asked then
    redis.call('ZREM', KEYS.retry, picked[1])
  elseif not repeated and #picked > fromReady then
    redis.call('ZREMRANGEBYRANK', KEYS.retry, 0, #picked - fromReady - 1)
  end
  for i = 1, #picked do
    local tag, record = picked[i], nil
    if ids[i] ~= tag then
      j = j + 1
      record = records[j] or ''
    end
    if not envelopes[i] then -- another program deleted the envelope: what is left of the message is dropped
      dropped = dropped + 1
      redis.call('HDEL', KEYS.fail, ids[i])
    elseif not repeated and not picked.asked and lastChance(record) then
      local reserves = reserved == '' and alone == ''
      local deferred = reserves and us(now + 2 * leaseUS) or later()
      redis.call('ZADD', KEYS.retry, deferred, tag)
      if reserves then reserved = tag .. ' ' .. deferred end
    else
      give(tag, envelopes[i])
      fails[#fails + 1] = record or ''
    end
  end
end
local n = #pending
local step = math.ceil(n / 16) -- in order of their instants: of many, one in so many says how late those after it are
local apart = tonumber(ARGV[15])
if apart > 0 and n >= apart and not (limit or groups or given[1]) then
  -- An envelope costs less if it does not go through Lua.
  redis.call('ZREMRANGEBYRANK', KEYS.pending, 0, n - 1)
  local sample = {}
  for i = 1, n, step do sample[#sample + 1] = pending[i] end
  local envelopes = redis.call('HMGET', KEYS.msg, unpack(sample))
  for i = 1, #sample do
    if envelopes[i] then begin(envelopes[i], math.min(step, n - (i - 1) * step)) end
  end
  given, started = pending, n
elseif n > 0 then
  local envelopes = redis.call('HMGET', KEYS.msg, unpack(pending))
  redis.call('ZREMRANGEBYRANK', KEYS.pending, 0, n - 1)
  local byte, plain = string.byte, not limit and not given[1]
  for i = 1, n do plain = plain and envelopes[i] and byte(envelopes[i], 1) ~= 2 end
  if plain then -- nothing is to be looked at
    given, out, started = pending, envelopes, n
  end
  for i = 1, n, plain and step or 1 do
    if not envelopes[i] then
      dropped = dropped + 1
      redis.call('HDEL', KEYS.fail, pending[i])
    else
      if not plain then
        give(pending[i], envelopes[i])
        started = started + 1
      end
      if (i - 1) % step == 0 then begin(envelopes[i], math.min(step, n - i + 1)) end
    end
  end
end
