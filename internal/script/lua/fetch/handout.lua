-- The chosen deliveries are handed out.
-- from time: now, us, whole
-- from jitter: jitter
-- from record: split, failure
-- from parts: addparts

-- Poison dies alone: a message on its last chance is handed out alone, to a process that handles nothing else. A fetch
-- that meets such messages defers the first by two leases, and names it, with that instant. Its consumer asks for it by
-- both once its process handles nothing, and gets it unless somebody has moved it since. It asks again if the rate lets
-- the message go within a lease. The fetch defers the others, and all if its consumer has one already, until later():
-- in a moment, or later if many wait in retry. The instants are spread, so that there is always a message for a
-- consumer that can take it, and no fetch looks at all of them. They are whole twentieths of a second, because each
-- instant costs a fetch.
local function later()
  local spread = math.min(redis.call('ZCARD', KEYS.retry) * 500, 60000000)
  return us((math.floor((now + jitter(spread)) / 50000) + 2) * 50000)
end

-- lastChance(record) says whether the message with this record is poison if it is lost once more.
local function lastChance(record)
  local _, losses = failure(record)
  return losses > 0 and losses >= tonumber(ARGV[6]) - 1
end

-- give(c, limit, tag, envelope) hands out a delivery. Expired ones come to no handler, and count for no rate.
local function give(c, limit, tag, envelope)
  local n = #c.given + 1
  c.given[n], c.out[n] = tag, envelope
  if limit and limit.spare((split(tag)), envelope) then c.spared = c.spared + 1 end
  if string.byte(envelope, 1) == 2 then
    local _, id = split(tag)
    addparts(c, n, id, envelope)
  end
end

-- begin(c, envelope, n) notes how late a message is that is handed out for the first time. It stands for n such
-- messages.
local function begin(c, envelope, n)
  local lateness = math.max(now - (whole(string.sub(envelope, 2, 17)) or now), 0)
  c.late, c.latest = c.late + lateness * n, math.max(c.latest, lateness)
end

-- handpicked(c, limit, picked, fromReady) hands out deliveries from ready and retry, or again.
local function handpicked(c, limit, picked, fromReady)
  local ids, numbered, j = {}, {}, 0
  for i = 1, #picked do
    local n, id = split(picked[i])
    ids[i] = id
    if n > 1 then numbered[#numbered + 1] = id end
  end
  local envelopes = redis.call('HMGET', KEYS.msg, unpack(ids))
  local records = numbered[1] and redis.call('HMGET', KEYS.fail, unpack(numbered)) or {}
  if fromReady > 0 then redis.call('LTRIM', KEYS.ready, fromReady, -1) end
  if c.asked then
    redis.call('ZREM', KEYS.retry, picked[1])
  elseif not c.repeated and #picked > fromReady then
    redis.call('ZREMRANGEBYRANK', KEYS.retry, 0, #picked - fromReady - 1)
  end
  for i = 1, #picked do
    local tag, record = picked[i], nil
    if ids[i] ~= tag then
      j = j + 1
      record = records[j] or ''
    end
    if not envelopes[i] then -- another program deleted the envelope: what is left of the message is dropped
      c.dropped = c.dropped + 1
      redis.call('HDEL', KEYS.fail, ids[i])
    elseif not c.repeated and not c.asked and lastChance(record) then
      local reserves = c.reserved == '' and ARGV[8] == ''
      local deferred = reserves and us(now + 2 * c.leaseUS) or later()
      redis.call('ZADD', KEYS.retry, deferred, tag)
      if reserves then c.reserved = tag .. ' ' .. deferred end
    else
      give(c, limit, tag, envelopes[i])
      c.fails[#c.fails + 1] = record or ''
    end
  end
end

-- handfirst(c, limit, pending) hands out first deliveries from pending.
local function handfirst(c, limit, pending)
  local n = #pending
  local step = math.ceil(n / 16) -- in order of their instants: of many, one in so many says how late those after it are
  local apart = tonumber(ARGV[12])
  if apart > 0 and n >= apart and not (limit or c.groups or c.given[1]) then
    -- An envelope costs less if it does not go through Lua.
    redis.call('ZREMRANGEBYRANK', KEYS.pending, 0, n - 1)
    local sample = {}
    for i = 1, n, step do sample[#sample + 1] = pending[i] end
    local envelopes = redis.call('HMGET', KEYS.msg, unpack(sample))
    for i = 1, #sample do
      if envelopes[i] then begin(c, envelopes[i], math.min(step, n - (i - 1) * step)) end
    end
    c.given, c.started = pending, n
    return
  end
  local envelopes = redis.call('HMGET', KEYS.msg, unpack(pending))
  redis.call('ZREMRANGEBYRANK', KEYS.pending, 0, n - 1)
  local byte, plain = string.byte, not limit and not c.given[1]
  for i = 1, n do plain = plain and envelopes[i] and byte(envelopes[i], 1) ~= 2 end
  if plain then c.given, c.out, c.started = pending, envelopes, n end -- nothing is to be looked at
  for i = 1, n, plain and step or 1 do
    if not envelopes[i] then
      c.dropped = c.dropped + 1
      redis.call('HDEL', KEYS.fail, pending[i])
    else
      if not plain then
        give(c, limit, pending[i], envelopes[i])
        c.started = c.started + 1
      end
      if (i - 1) % step == 0 then begin(c, envelopes[i], math.min(step, n - i + 1)) end
    end
  end
end
