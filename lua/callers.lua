-- Shared by the scripts that forget callers, of which state keeps the last call of each (call.lua).
--
-- forgotten(field, record) says whether a field of state is that of a caller last heard of more than an hour ago,
-- or at an instant that is more than an hour away. What comes twice comes within minutes.
local function forgotten(field, record)
  if string.sub(field, 1, 5) ~= 'call:' then return false end
  local heard = whole(string.match(record, '^%d+ (%d+) '))
  return not heard or math.abs(now - heard) > 3600000000
end
