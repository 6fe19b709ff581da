-- Shared by the scripts that end messages.

-- freekey(id, key) lets go of a message's key ('': it has none), unless another message has it by now.
local function freekey(id, key)
  if key ~= '' and redis.call('HGET', KEYS.key, key) == id then redis.call('HDEL', KEYS.key, key) end
end

-- erase(id, key) deletes what there is of a message beside its tag.
local function erase(id, key)
  freekey(id, key)
  redis.call('HDEL', KEYS.msg, id)
  redis.call('HDEL', KEYS.fail, id)
end
