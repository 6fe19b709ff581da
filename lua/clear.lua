-- Shared by the scripts that delete many messages at a time, if there are groups (state.parts).
--
-- clear(ids) deletes the parts of messages that are to be deleted, and leaves of the list as many of those as one call may
-- clear: until more than half of the most that a group has are deleted. It returns whether that is all of them. It looks
-- for parts, and reads no envelope, which may be long.
local function clear(ids)
  local parts = 0
  for i = 1, #ids do
    if parts > PARTS / 2 then
      for j = #ids, i, -1 do ids[j] = nil end
      return false
    end
    local from, size = 2, 4
    repeat
      local gone = redis.call('HDEL', KEYS.parts, unpack(partnames(ids[i], from + size - 1, from)))
      parts, from, size = parts + gone, from + size, 2 * size
    until gone == 0 or from > PARTS
  end
  return true
end
