-- The deliveries of a lost reply are leased anew, and described or handed out again. Those without room in this reply go back to
-- ready, and nothing is counted.
-- takes: leaseUS, lent, leaseEnd, groups, replaced, size, parts, repeated, MOVES, overtaken, bytes, maxLosses, big, leased,
--        score, picked
-- gives: lease, weigh, keptUntil, replace, addparts, givenBack, described
-- from time: now, us
-- from call: mark
-- from record: split, failure, finish
-- from group: partsof, partnames, weight

-- lease(tags) gives deliveries a lease end that no other lease has, so that a repeat finds them by it. The end is odd, whereas that of a
-- renewal is even. It is not in use, and not that of the fetch before, whose deliveries may all have been intercepted.
local function lease(tags)
  local ends = now + leaseUS
  ends = ends - ends % 2 + 1
  while us(ends) == lent or redis.call('ZCOUNT', KEYS.unack, us(ends), us(ends)) > 0 do ends = ends + 2 end
  leaseEnd = us(ends)
  mark('lent', leaseEnd)
  local leases = {}
  for i = 1, #tags do
    leases[2 * i - 1] = leaseEnd
    leases[2 * i] = tags[i]
  end
  redis.call('ZADD', KEYS.unack, unpack(leases))
end

-- weigh(id, room) is what a message counts in the reply; if it is more than room, any number above that.
local function weigh(id, room)
  local length = redis.call('HSTRLEN', KEYS.msg, id)
  if not groups or length > room then return length end
  return weight(redis.call('HGET', KEYS.msg, id) or '')
end

-- replace(id, n, failures, losses, errors) ends a message whose delivery n was superseded.
local keptUntil -- the first end of messages that are done since
local function replace(id, n, failures, losses, errors)
  local ends, bytesRead = finish(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
  replaced, size = replaced + 1, size + bytesRead
  if ends then keptUntil = math.min(keptUntil or ends, ends) end
end

-- addparts(nth, id, envelope) reads the parts of a group for the reply: none if any is missing. It must not raise, because it comes
-- after the first write, and the key parts was not read before if state says that there are no groups.
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

local described, givenBack = {}, false
if repeated and repeated ~= '' then
  -- from record: setfailure, superseded
  local function giveBack(tag)
    local n, id = split(tag)
    local failures, losses, errors = failure(redis.call('HGET', KEYS.fail, id))
    redis.call('ZREM', KEYS.unack, tag)
    setfailure(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
    redis.call('RPUSH', KEYS.ready, us(n + 1) .. ':' .. id)
    givenBack = true
  end
  local tags = redis.call('ZRANGEBYSCORE', KEYS.unack, repeated, repeated, 'LIMIT', 0, MOVES)
  local ids = {}
  for i = 1, #tags do
    local _, id = split(tags[i])
    ids[i] = id
  end
  local records = overtaken and ids[1] and redis.call('HMGET', KEYS.fail, unpack(ids)) or {}
  for i = #tags, 1, -1 do
    if superseded(records[i]) then -- and no consumer has it
      redis.call('ZREM', KEYS.unack, tags[i])
      replace(ids[i], (split(tags[i])), failure(records[i]))
      table.remove(tags, i)
    end
  end
  if bytes == 0 then
    -- from message: keyof
    -- from group: leftkey
    for i = 1, #tags do
      local _, id = split(tags[i])
      local record, key = redis.call('HGET', KEYS.fail, id) or '', ''
      local _, losses = failure(record)
      if losses >= maxLosses - 1 then
        local envelope = redis.call('HGET', KEYS.msg, id) or ''
        key = keyof(envelope)
        if key == '' and groups then key = leftkey(envelope) end
      end
      for _, part in ipairs({tags[i], redis.call('HSTRLEN', KEYS.msg, id), record, key}) do described[#described + 1] = part end
    end
  elseif #tags * big > bytes then
    local fit, rest, total = {}, {}, 0
    for i = 1, #tags do
      local _, id = split(tags[i])
      local length = weigh(id, bytes)
      if total + length <= bytes then
        total = total + length
        fit[#fit + 1] = tags[i]
      else
        rest[#rest + 1] = tags[i]
      end
    end
    if not fit[1] then fit[1] = table.remove(rest, 1) end
    for i = 1, #rest do giveBack(rest[i]) end
    tags = fit
  end
  if tags[1] then
    lease(tags)
    leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES'))
  end
  if bytes > 0 then picked = tags end
end
