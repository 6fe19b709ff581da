-- Shared by the scripts that write fail records (failure.lua).
--
-- setfailure(id, n, counts, text, ended) writes one and returns it: n is the number of the delivery that follows, counts
-- is '<failures> <losses>', ended when the delivery before did (nil: now).
local function setfailure(id, n, counts, text, ended)
  local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. text
  redis.call('HSET', KEYS.fail, id, record)
  return record
end
