-- Shared by the scripts that write fail records (failure.lua).
--
-- setfailure(id, n, counts, errors, ended) writes one and returns it: n is the number of the delivery that follows, counts
-- is '<failures> <losses>', ended when the delivery before did (nil: now).
local function setfailure(id, n, counts, errors, ended)
  local record = n .. ' ' .. counts .. ' ' .. us(ended or now) .. ' ' .. errors
  redis.call('HSET', KEYS.fail, id, record)
  return record
end
