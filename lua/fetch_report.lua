-- Part of fetch: this consumer says what it does, and is told what this call did.

-- An entry of a consumer that has been silent for long, or is from the future, goes when somebody
-- comes upon it; and all of them go in a month without any consumer.
if anyone and not anyone.err then
  local at, itsLease = string.match(anyone[2] or '', '^(%d+) (%d+) ')
  at, itsLease = whole(at), whole(itsLease)
  if anyone[1] and (not at or not itsLease or math.abs(now - at) > 2 * itsLease + 5000000) then
    redis.call('HDEL', KEYS.consumers, anyone[1])
  end
  if ARGV[12] == '-' then
    redis.call('HDEL', KEYS.consumers, ARGV[1])
  else
    redis.call('HSET', KEYS.consumers, ARGV[1], us(now) .. ' ' .. ARGV[4] .. ' ' .. ARGV[12])
    redis.pcall('EXPIRE', KEYS.consumers, 2678400)
  end
end
remember(leaseEnd)

-- The reply, as fetch.lua says.
local numbers = {
  us(now), us(next), lost, dropped, overflow, seen and 0 or 1, us(leaseUS), us(maxLosses), us(garbageAge), us(garbageMax), us(doneMax),
  limit and not limit.idle and limit.text .. ' ' .. (full and '-1' or us(limit.left(repeated and 0 or #given))) or '',
  #given, #fails, #dead / 3, #held / 4, replaced,
}
for i = 1, NUMBERS do out[i] = numbers[i] end
for _, list in ipairs({fails, dead, held, parts}) do
  local n = #out
  for i = 1, #list do out[n + i] = list[i] end
end
return out
