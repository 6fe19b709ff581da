-- The books: totals in state of what came into msg and what left it, since the books were opened. Each script that
-- stores or deletes a message counts it with its other fields of state, by what HSET or HDEL says of msg. Always
--
--     in:stored + in:found = out:acked - kept + the other fields that begin with 'out:' + HLEN msg
--
-- in:stored has all that were stored, in:followed, in:scheduled and in:imported some of them. out:acked has all acks,
-- and kept those of messages that were kept as done.
-- from time: now, us, whole

local BOOKS = {'in:stored', 'in:found', 'kept', 'in:followed', 'in:scheduled', 'in:imported', 'out:acked', 'out:over', 'out:superseded',
  'out:intercepted', 'out:canceled', 'out:deleted', 'out:aged', 'out:trimmed', 'out:lost'}

-- openbooks() opens the books of a queue without totals, at what is there. It comes before anything is stored or
-- deleted, and behind the first write of a script.
local function openbooks()
  local here = redis.call('HLEN', KEYS.msg)
  redis.call('HDEL', KEYS.state, unpack(BOOKS))
  redis.call('HSET', KEYS.state, 'in:stored', '0', 'told', '0 0', 'books', us(now))
  if here > 0 then redis.call('HSET', KEYS.state, 'in:found', us(here)) end
end

-- difference(values, here) is how many messages are missing, by the values of BOOKS and HLEN msg; less than 0: how many
-- are too many; nil if the books are not open.
local function difference(values, here)
  if not whole(values[1]) then return nil end
  local sum = -here
  for i = 1, #BOOKS do -- the first three come in, from the seventh on they go out
    local n = values[i] and whole(values[i]) or 0
    if i <= 3 then sum = sum + n elseif i > 6 then sum = sum - n end
  end
  return sum
end

-- acceptbooks() makes the books balance, whatever is there, and returns the difference that was. Like openbooks it
-- comes behind the first write.
local function acceptbooks()
  local values = redis.call('HMGET', KEYS.state, unpack(BOOKS))
  local missing, rubbish = difference(values, redis.call('HLEN', KEYS.msg)), false
  for i = 1, #BOOKS do rubbish = rubbish or (whole(values[i] or '0') or 1e15) >= 1e15 end
  if not missing or rubbish then openbooks() end
  if rubbish or not missing or missing == 0 then return missing or 0 end
  local i = missing > 0 and #BOOKS or 2
  redis.call('HSET', KEYS.state, BOOKS[i], us((whole(values[i]) or 0) + math.abs(missing)))
  return missing
end
