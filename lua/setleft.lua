-- Shared by the scripts in which groups leave their keys or end (left.lua).
--
-- setleft(key, id, lives) notes that a group that left a key lives, or that it does not any more.
local function setleft(key, id, lives)
  local ids = left(key)
  for i = #ids, 1, -1 do
    if ids[i] == id then table.remove(ids, i) end
  end
  if lives then table.insert(ids, 1, id) end
  ids[LEFT + 1] = nil
  if ids[1] then
    redis.pcall('HSET', KEYS.parts, ':' .. key, table.concat(ids, ' '))
  else
    redis.pcall('HDEL', KEYS.parts, ':' .. key)
  end
end
