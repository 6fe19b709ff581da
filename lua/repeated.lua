-- Shared by send and put, whose calls WAIT may follow: answers a call that was carried out before, by what state has
-- saved of it.
local reply, at = recall(saved)
if reply then
  -- Written once more, so that a WAIT on this connection waits for it.
  redis.call('ZREM', KEYS.pending, '')
  redis.call('HSET', KEYS.state, field, saved)
  return {at, reply}
elseif reply == false then
  return STALE
end
