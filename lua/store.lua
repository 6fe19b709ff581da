-- Shared by the scripts that store messages.
local SMALL = 2048 -- an envelope that is no longer than that is not noted in state.big

-- holderof(key) is the id of the live message that has a key, or of an acked one that keeps it taken, and then true; false
-- or nil if none has. Any other holder without an envelope is what somebody else left behind.
local function holderof(key)
  local holder = redis.call('HGET', KEYS.key, key)
  if not holder or redis.call('HEXISTS', KEYS.msg, holder) == 1 then return holder end
  local ends = string.sub(holder, 1, 6) == 'acked:' and tonumber(redis.call('ZSCORE', KEYS.held, key) or 0)
  if ends and ends > now and ends <= now + 31536000000000 then return string.sub(holder, 7), true end -- 365 days at most
  return false
end

-- refusal(i, holder) says that message i is not stored, for its key is held. Somebody else may have written the holder.
local function refusal(i, holder) return us(i) .. '=' .. string.gsub(holder, '[^!-~]', '?') .. ' ' end
