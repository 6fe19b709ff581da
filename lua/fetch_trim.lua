-- Part of fetch: garbage that is too old or too much is deleted.
local trimmed = {}
if oldest and garbageAge < CENTURY and oldest <= now - garbageAge then
  trimmed = redis.call('ZRANGEBYSCORE', KEYS.garbage, '-inf', us(now - garbageAge), 'LIMIT', 0, SWEEP)
end
if oldest and garbageMax < CENTURY then
  local aged = #trimmed
  overflow = math.max(0, math.min(redis.call('ZCARD', KEYS.garbage) - aged - garbageMax, SWEEP - aged))
  if overflow > 0 then
    for i, id in ipairs(redis.call('ZRANGE', KEYS.garbage, aged, aged + overflow - 1)) do trimmed[aged + i] = id end
  end
end
if trimmed[1] then
  moved = moved + #trimmed
  redis.call('ZREM', KEYS.garbage, unpack(trimmed))
  redis.call('HDEL', KEYS.msg, unpack(trimmed))
  redis.call('HDEL', KEYS.fail, unpack(trimmed))
end
