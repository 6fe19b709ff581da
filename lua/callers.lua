-- Shared by the scripts that forget callers, of which state keeps the last call of each (call.lua).
--
-- forgotten(name, record) says whether a field of state is that of a caller last heard of more than an hour ago,
-- or at an instant that is more than an hour away. What comes twice comes within minutes.
local function forgotten(name, record)
  if string.sub(name, 1, 5) ~= 'call:' then return false end
  local called = whole(string.match(record, '^%d+ (%d+) '))
  return not called or math.abs(now - called) > 3600000000
end
