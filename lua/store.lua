-- Shared by the scripts that store messages.
local SMALL = 2048 -- an envelope that is no longer than that is not noted in state.big

-- holderof(key) is the id of the live message that has a key; false or nil if none has. A holder without an envelope is
-- what somebody else left behind.
local function holderof(key)
  local holder = redis.call('HGET', KEYS.key, key)
  return holder and redis.call('HEXISTS', KEYS.msg, holder) == 1 and holder
end

-- refusal(i, holder) says that message i is not stored, for its key is held. Somebody else may have written the holder.
local function refusal(i, holder) return us(i) .. '=' .. string.gsub(holder, '[^!-~]', '?') .. ' ' end
