-- Garbage and done messages are trimmed when they come in, the oldest first.
-- from time: now, us

-- excess(there, room, most) is how many are too many, at most so many; a room of 0 is for any number.
local function excess(there, room, most)
  if room == 0 then return 0 end
  return math.max(0, math.min(there - room, most))
end

-- overdone(n) are n done messages that go: those whose time is over soonest. But those that have a minute or less go
-- last, because the result of a Call is kept for so long, and whoever waits for it may not have looked yet.
local function overdone(n)
  local CALL = 60000000 -- us
  local ids = redis.call('ZRANGEBYSCORE', KEYS.done, '(' .. us(now + CALL), '+inf', 'LIMIT', 0, n)
  local first = #ids < n and redis.call('ZRANGE', KEYS.done, 0, n - #ids - 1) or {}
  for _, id in ipairs(first) do ids[#ids + 1] = id end
  return ids
end

-- trim(dead, garbageRoom, kept, doneRoom, clear) deletes what is too much, after so many came in, and returns how much
-- garbage, how many done messages, and how many of both had an envelope. clear, if there are groups, is that of
-- lib/group.lua.
local function trim(dead, garbageRoom, kept, doneRoom, clear)
  local overflow, doneOverflow, trimmed = 0, 0, 0
  if dead > 0 then overflow = excess(redis.call('ZCARD', KEYS.garbage), garbageRoom, 500) end
  if overflow > 0 then
    local oldest = redis.call('ZRANGE', KEYS.garbage, 0, overflow - 1)
    if clear and not clear(oldest) then overflow = #oldest end
    redis.call('ZREM', KEYS.garbage, unpack(oldest))
    trimmed = redis.call('HDEL', KEYS.msg, unpack(oldest))
    redis.call('HDEL', KEYS.fail, unpack(oldest))
  end
  if kept > 0 then doneOverflow = excess(redis.call('ZCARD', KEYS.done), doneRoom, kept + 100) end -- each may have 1 MB
  if doneOverflow > 0 then
    local oldest = overdone(doneOverflow)
    if clear and not clear(oldest) then doneOverflow = #oldest end
    redis.call('ZREM', KEYS.done, unpack(oldest))
    trimmed = trimmed + redis.call('HDEL', KEYS.msg, unpack(oldest))
    redis.call('HDEL', KEYS.fail, unpack(oldest))
    redis.call('HDEL', KEYS.result, unpack(oldest))
  end
  return overflow, doneOverflow, trimmed
end
