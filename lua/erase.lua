-- Shared by the scripts that end messages.

-- include hold
-- freekey(id, key) lets go of a message's key ('': it has none), unless another message has it by now; then it may be a group that
-- has left it (unlist, nil where there are no groups). A key that was held when the message got it (it follows the one that was
-- acked) is held on; holds says whether any is.
local function freekey(id, key)
  if key == '' then return end
  if redis.call('HGET', KEYS.key, key) ~= id then
    if unlist then unlist(key, id) end
    return
  end
  if holds and heldUntil(key) then
    redis.call('HSET', KEYS.key, key, 'acked:' .. id)
  else
    redis.call('HDEL', KEYS.key, key)
  end
end

-- erase(id, key) deletes what there is of a message beside its tag.
local function erase(id, key)
  freekey(id, key)
  redis.call('HDEL', KEYS.msg, id)
  redis.call('HDEL', KEYS.fail, id)
end
