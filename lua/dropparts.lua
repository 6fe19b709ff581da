-- Shared by the scripts that delete messages.
--
-- dropparts(id, n) deletes the parts of a group of n, but the first, which goes with its envelope.
local function dropparts(id, n)
  if n > 1 then redis.call('HDEL', KEYS.parts, unpack(partnames(id, n))) end
end
