-- Shared by the scripts that move sequences on.
--
-- lastof(name) is the last number of a sequence, as 20 digits of it and 2^63, of which any two compare as texts; nil if it
-- has none, or somebody else has written it.
local function lastof(name)
  local last = redis.call('HGET', KEYS.sequence, name)
  return last and #last == 20 and string.match(last, '^%d+$') and last <= '18446744073709551615' and last or nil
end
