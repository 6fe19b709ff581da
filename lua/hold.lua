-- Shared by the scripts that take or free keys. A key is taken while a live message has it, and until the score that it has in
-- held: each script that gives a key to a message, or takes it from one, asks here first.
--
-- heldUntil(key) is until when a key stays taken after an ack (WithKeyHold); nil if that is over, or was never said. More than
-- 365 days is of another program.
local function heldUntil(key)
  local ends = tonumber(redis.call('ZSCORE', KEYS.held, key) or 0) or 0
  if ends > now and ends <= now + 31536000000000 then return ends end
end
