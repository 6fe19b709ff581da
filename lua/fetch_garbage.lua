-- Garbage that is too old or too much, part of fetch.
local gone, crowd = {}, 0
if oldest and age < CENTURY and oldest <= now - age then
  gone = redis.call('ZRANGEBYSCORE', KEYS.garbage, '-inf', us(now - age), 'LIMIT', 0, SWEEP)
end
if oldest and room < CENTURY then
  local aged = #gone
  crowd = math.max(0, math.min(redis.call('ZCARD', KEYS.garbage) - aged - room, SWEEP - aged))
  if crowd > 0 then
    for i, id in ipairs(redis.call('ZRANGE', KEYS.garbage, aged, aged + crowd - 1)) do gone[aged + i] = id end
  end
end
if gone[1] then
  moved = moved + #gone
  redis.call('ZREM', KEYS.garbage, unpack(gone))
  redis.call('HDEL', KEYS.msg, unpack(gone))
  redis.call('HDEL', KEYS.fail, unpack(gone))
end
