-- Shared by the scripts that delete many messages at a time, if there are groups (state.parts).
--
-- clear(ids) deletes the parts of messages that are to be deleted, and leaves of the list as many of those as one call may
-- clear. It returns whether that is all of them.
local function clear(ids)
  local parts, bytes = 0, 0
  for i = 1, #ids do
    local envelope = redis.call('HGET', KEYS.msg, ids[i]) or ''
    local n = partsof(envelope)
    parts, bytes = parts + n, bytes + #envelope
    if i > 1 and (parts > PARTS or bytes > 1048576) then
      for j = #ids, i, -1 do ids[j] = nil end
      return false
    end
    dropparts(ids[i], n)
  end
  return true
end
