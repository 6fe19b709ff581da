-- Shared by the scripts that know groups which have left their keys. A group that has left its key lives on: it is full, has
-- expired, or was handled when another part came. The field ':<key>' of parts lists the ids of those live ones that left a key,
-- the newest first, with blanks between.
local LEFT = 100 -- ids in such a list at most: of more, the oldest are found by their ids alone

-- leftkey(envelope) is the key that a group has left; '' for any other message.
local function leftkey(envelope)
  local i, size = fieldat(envelope, 129)
  return i and size > 11 and string.sub(envelope, i + 11, i + size - 1) or ''
end

-- left(key) are the ids of the groups that left a key. It does not raise.
local function left(key)
  local list, ids = redis.pcall('HGET', KEYS.parts, ':' .. key), {}
  for id in string.gmatch(list and not list.err and list or '', '%S+') do
    ids[#ids + 1] = id
    if #ids == LEFT then break end
  end
  return ids
end
