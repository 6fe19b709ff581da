-- Shared by the scripts that give a message a key.
-- include hold
-- holderof(key) is the id of the live message that has a key, false, and how long its envelope is; or the id of an acked one that
-- keeps it taken, and true; false or nil if none has. Any other holder without an envelope is what somebody else left behind.
local function holderof(key)
  local holder = redis.call('HGET', KEYS.key, key)
  if not holder then return nil end
  local size = redis.call('HSTRLEN', KEYS.msg, holder)
  if size > 0 then return holder, false, size end
  if string.sub(holder, 1, 6) == 'acked:' and heldUntil(key) then return string.sub(holder, 7), true end
  return false
end

-- named(holder, acked) says who has a key: '=<id>', or '=acked:<id>'. Somebody else may have written that.
local function named(holder, acked) return '=' .. (acked and 'acked:' or '') .. string.gsub(holder, '[^!-~]', '?') end
