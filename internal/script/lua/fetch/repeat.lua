-- The deliveries of a lost reply are leased anew, and handed out again. Those without room in this reply go back to ready, and nothing
-- is counted. A large message that does not come through alone is lost: its lease ends.
-- takes: leaseUS, name, listed, leaseEnd, groups, replaced, size, parts, MOVES, bytes, big, leased,
--        score, picked, leaves
-- gives: lease, list, weigh, keptUntil, replace, addparts, missing, givenBack
-- from time: now, us
-- from lease: lend, isheld
-- from record: split, failure
-- from group: partsof, partnames, weight

-- lease(tags) leases deliveries under the name of this call.
local list = '' -- of the tags of that lease
local function lease(tags)
  leaseEnd = now + leaseUS
  list = lend(name, us(leaseEnd), tags)
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
  -- from record: finish
  local ends, bytesRead = finish(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
  replaced, size = replaced + 1, size + bytesRead
  if ends then keptUntil = math.min(keptUntil or ends, ends) else leaves('out:superseded', 1) end
end

-- addparts(nth, id, envelope) reads the parts of a group for the reply: none if any is missing. It also reads what is left of a countdown.
-- It must not raise, because it comes after the first write, and the key parts was not read before if state says that there are no groups.
local missing, acksleftof = {}, nil -- of countdowns, as in the reply; missingof, if there may be some
if groups then
  -- from countdown: missingof
  acksleftof = missingof
end
local function addparts(nth, id, envelope)
  local acks = acksleftof and acksleftof(id, envelope)
  if acks then missing[#missing + 1], missing[#missing + 2] = us(nth), us(acks) end
  local n = partsof(envelope)
  if n < 2 then return end
  local values = redis.pcall('HMGET', KEYS.parts, unpack(partnames(id, n)))
  local there = not values.err
  for i = 1, #values do there = there and values[i] end
  local at = #parts
  parts[at + 1], parts[at + 2] = us(nth), there and us(#values) or '0'
  for i = 1, there and #values or 0 do parts[at + 2 + i] = values[i] end
end

local givenBack = false
if listed then
  local LARGE = 65536 -- bytes: a smaller message comes through wherever a reply does
  -- from record: setfailure, superseded
  local tags = {}
  for tag in string.gmatch(listed, '%S+') do
    local n, id = split(tag)
    if #tags < MOVES and isheld(id, n) then tags[#tags + 1] = tag end -- else it was canceled, or this repeat is late
  end
  local over = false
  if bytes == 0 and #tags == 1 then
    local _, id = split(tags[1])
    over = redis.call('HSTRLEN', KEYS.msg, id) > LARGE
  end
  if over then
    lend(name, us(now), tags)
    tags = {}
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
    for i = 1, #rest do
      local n, id = split(rest[i])
      local record = redis.call('HGET', KEYS.fail, id)
      local failures, losses, errors = failure(record)
      if superseded(record) then
        replace(id, n, failures, losses, errors)
      else
        setfailure(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
        redis.call('RPUSH', KEYS.ready, us(n + 1) .. ':' .. id)
        givenBack = true
      end
    end
    tags = fit
  end
  if tags[1] then
    lease(tags)
  elseif not over then
    redis.call('ZREM', KEYS.unack, name)
    redis.call('HDEL', KEYS.lease, name, name .. '#')
  end
  leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES'))
  picked = tags
end
