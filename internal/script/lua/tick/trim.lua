-- Garbage that is too old or too much, done messages whose time is over, and holds that are over are deleted.
-- from time: now, us
-- from call: mark
-- from group: clear
-- from tick/read: SWEEP, score

-- gone(c, out, n) counts messages that were deleted.
local function gone(c, out, n) c.outs[out] = (c.outs[out] or 0) + n end

-- trimgarbage(c) deletes garbage, as much as a call may, and returns the ids.
local function trimgarbage(c)
  local age, most, ids, all = tonumber(ARGV[6]), tonumber(ARGV[7]), {}, true
  if c.byAge and age > 0 and c.oldest <= now - age then
    ids = redis.call('ZRANGEBYSCORE', KEYS.garbage, '-inf', us(now - age), 'LIMIT', 0, SWEEP)
  end
  local aged = #ids
  if most > 0 then
    local over = math.max(0, math.min(redis.call('ZCARD', KEYS.garbage) - aged - most, SWEEP - aged))
    if over > 0 then
      for i, id in ipairs(redis.call('ZRANGE', KEYS.garbage, aged, aged + over - 1)) do ids[aged + i] = id end
    end
  end
  if not ids[1] then return ids end
  if c.groups then all = clear(ids) end -- which shortens the list
  redis.call('ZREM', KEYS.garbage, unpack(ids))
  aged = math.min(aged, #ids)
  c.overflow = #ids - aged
  if aged > 0 then gone(c, 'out:aged', redis.call('HDEL', KEYS.msg, unpack(ids, 1, aged))) end
  if c.overflow > 0 then gone(c, 'out:trimmed', redis.call('HDEL', KEYS.msg, unpack(ids, aged + 1))) end
  redis.call('HDEL', KEYS.fail, unpack(ids))
  return ids, not all
end

-- trim(c) deletes garbage and done messages. If there is more, c.more is set, unless the clock was perhaps stepped.
local function trim(c)
  local ids, rest = {}, false
  if c.oldest then ids, rest = trimgarbage(c) end
  local n = #ids
  if c.doneOver and n < SWEEP then
    local over = redis.call('ZRANGEBYSCORE', KEYS.done, '-inf', us(now), 'LIMIT', 0, SWEEP - n)
    if over[1] then
      if c.groups then rest = not clear(over) or rest end
      redis.call('ZREM', KEYS.done, unpack(over))
      redis.call('HDEL', KEYS.result, unpack(over))
      gone(c, 'out:over', redis.call('HDEL', KEYS.msg, unpack(over)))
      redis.call('HDEL', KEYS.fail, unpack(over))
      n = n + #over
    end
    c.done, c.kept = score(redis.call('ZRANGE', KEYS.done, 0, 0, 'WITHSCORES')) or 0, true
  end
  if c.kept then mark('done', us(c.done)) end
  if (rest or n >= SWEEP) and (c.overflow > 0 or not c.byPages) then c.more = true end
end

-- freeholds(c) frees keys whose holds are over, unless another message has the key. A call frees as many as a call may ack, so that no
-- more come in than go.
local function freeholds(c)
  local MOST = 500
  if not c.holdsOver then return end
  local over, free = redis.call('ZRANGEBYSCORE', KEYS.holds, '-inf', us(now), 'LIMIT', 0, MOST), {}
  if over[1] then
    local holders = redis.call('HMGET', KEYS.key, unpack(over))
    for i = 1, #over do
      if holders[i] and string.sub(holders[i], 1, 6) == 'acked:' then free[#free + 1] = over[i] end
    end
    redis.call('ZREM', KEYS.holds, unpack(over))
    if free[1] then redis.call('HDEL', KEYS.key, unpack(free)) end
  end
  if #over == MOST and not c.byPages then c.more = true end
  mark('holds', us(score(redis.call('ZRANGE', KEYS.holds, 0, 0, 'WITHSCORES')) or 0))
end
