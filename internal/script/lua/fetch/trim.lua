-- Garbage that is too old or too much, done messages whose time is over, and holds that are over are deleted. If there is more than
-- one call may delete, the next call follows at once (answer), unless the clock was perhaps stepped (read).
-- takes: groups, oldest, overdue, byAge, garbageAge, garbageMax, overflow, done, keptUntil, SWEEP, score, moved, holdOver,
--        MOVES, leaves
-- gives: more, trimmed
-- from time: now, us, whole
-- from call: mark

local trimmed, more, clearAll = {}, false, nil -- more: there is more than one call may delete
if groups and (oldest or overdue) then
  -- from group: clear
  clearAll = clear
end
if byAge and oldest and garbageAge > 0 and oldest <= now - garbageAge then
  trimmed = redis.call('ZRANGEBYSCORE', KEYS.garbage, '-inf', us(now - garbageAge), 'LIMIT', 0, SWEEP)
end
local aged = #trimmed
if oldest and garbageMax > 0 then
  overflow = math.max(0, math.min(redis.call('ZCARD', KEYS.garbage) - aged - garbageMax, SWEEP - aged))
  if overflow > 0 then
    for i, id in ipairs(redis.call('ZRANGE', KEYS.garbage, aged, aged + overflow - 1)) do trimmed[aged + i] = id end
  end
end
if trimmed[1] then
  if groups then
    more = not clearAll(trimmed)
    overflow = math.max(0, #trimmed - aged)
  end
  redis.call('ZREM', KEYS.garbage, unpack(trimmed))
  aged = math.min(aged, #trimmed)
  if aged > 0 then leaves('out:aged', redis.call('HDEL', KEYS.msg, unpack(trimmed, 1, aged))) end
  if #trimmed > aged then leaves('out:trimmed', redis.call('HDEL', KEYS.msg, unpack(trimmed, aged + 1))) end
end
if keptUntil and ((whole(done) or 0) == 0 or keptUntil < whole(done)) then mark('done', us(keptUntil)) end
if overdue and #trimmed < SWEEP then
  local over = redis.call('ZRANGEBYSCORE', KEYS.done, '-inf', us(now), 'LIMIT', 0, SWEEP - #trimmed)
  if over[1] then
    if groups then more = not clearAll(over) or more end
    redis.call('ZREM', KEYS.done, unpack(over))
    redis.call('HDEL', KEYS.result, unpack(over))
    leaves('out:over', redis.call('HDEL', KEYS.msg, unpack(over)))
    for _, id in ipairs(over) do trimmed[#trimmed + 1] = id end
  end
  mark('done', us(score(redis.call('ZRANGE', KEYS.done, 0, 0, 'WITHSCORES')) or 0))
end
if trimmed[1] then
  moved = moved + #trimmed
  redis.call('HDEL', KEYS.fail, unpack(trimmed))
end

-- Held keys are freed, unless another message has the key. A call frees as many as a call may ack, so that no more come in than go.
if holdOver then
  local over, free = redis.call('ZRANGEBYSCORE', KEYS.held, '-inf', us(now), 'LIMIT', 0, MOVES), {}
  if over[1] then
    local holders = redis.call('HMGET', KEYS.key, unpack(over))
    for i = 1, #over do
      if holders[i] and string.sub(holders[i], 1, 6) == 'acked:' then free[#free + 1] = over[i] end
    end
    redis.call('ZREM', KEYS.held, unpack(over))
    if free[1] then redis.call('HDEL', KEYS.key, unpack(free)) end
  end
  more = more or #over == MOVES
  mark('held', us(score(redis.call('ZRANGE', KEYS.held, 0, 0, 'WITHSCORES')) or 0))
end
