-- Garbage and done messages are trimmed when they come in, the oldest first.
-- from time: now, us, scored
-- from record: failure

-- excess(there, room, most) is how many are too many, at most so many; a room of 0 is for any number.
local function excess(there, room, most)
  if room == 0 then return 0 end
  return math.max(0, math.min(there - room, most))
end

-- overdone(n) are n done messages that go: those whose time is over soonest, but none that was acked within the last 5
-- s, because a caller that waits for its result may not have looked yet (Await, Call). After a spared message, all
-- messages that are kept equally long have their ends within 5 s, so the search goes on behind these, a few times. If
-- that finds too few, those go that were acked first, and then those whose time is over soonest.
local SPARED, LENGTHS = 5000000, 4 -- us; how many times
local function overdone(n)
  local oldest, spared, going, from = {}, {}, {}, '-inf'
  for _ = 1, LENGTHS do
    local page = redis.call('ZRANGEBYSCORE', KEYS.done, from, '+inf', 'WITHSCORES', 'LIMIT', 0, n - #oldest)
    local ids, upto = {}, nil -- upto: the last end of messages that are kept as long as a spared one
    for i = 1, #page, 2 do ids[#ids + 1] = page[i] end
    local records = ids[1] and redis.call('HMGET', KEYS.fail, unpack(ids)) or {}
    for i, id in ipairs(ids) do
      local score = scored(page[2 * i])
      if upto and score > upto then break end
      local _, _, _, acked = failure(records[i])
      if acked and acked <= now and acked > now - SPARED then
        spared[#spared + 1] = {acked, id}
        upto = upto or score + SPARED
      else
        oldest[#oldest + 1], going[id] = id, true
      end
    end
    if not upto then break end
    from = us(upto + 1)
  end
  if #oldest == n then return oldest end
  table.sort(spared, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
  local left = redis.call('ZRANGE', KEYS.done, 0, n - 1)
  for i, id in ipairs(left) do left[i] = {0, id} end
  for _, list in ipairs({spared, left}) do
    for _, entry in ipairs(list) do
      if #oldest < n and not going[entry[2]] then oldest[#oldest + 1], going[entry[2]] = entry[2], true end
    end
  end
  return oldest
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
