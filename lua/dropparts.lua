-- Shared by the scripts that delete messages.
--
-- dropparts(id, n) deletes the parts of a group of n, but the first, which goes with its envelope. It does not raise, for where
-- state says that there are no groups nobody has looked at that key.
local function dropparts(id, n)
  if n > 1 then redis.pcall('HDEL', KEYS.parts, unpack(partnames(id, n))) end
end
