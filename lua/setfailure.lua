-- Shared by the scripts that write fail records (failure.lua).
--
-- setfailure(id, n, counts, text) writes one and returns it: n is the number of the delivery that follows, counts is
-- '<failures> <losses>'.
local function setfailure(id, n, counts, text)
  local record = n .. ' ' .. counts .. ' ' .. us(now) .. ' ' .. text
  redis.call('HSET', KEYS.fail, id, record)
  return record
end
