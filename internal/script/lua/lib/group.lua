-- Groups: messages to which later sends append parts. The first part is the payload of the envelope. Each other part is
-- in the structure parts, under '<id>:<n>', n from 2 on. The envelope is of version 2. Its field 129 has the number of
-- parts in 4 digits, the bytes of those in parts in 7 digits, and the key that the group had, if it has left its key. A
-- group leaves its key and lives on when it is full, has expired, or is handled while another part comes. The field
-- ':<key>' of parts lists the ids of the live groups that left a key, the newest first, with blanks between.
-- state.parts says that there may be groups or countdowns (lib/countdown.lua).
-- from message: fieldat

local PARTS = 1000 -- at most, of one group

-- partsof(envelope) is how many parts a group has, how many bytes all but the first have, and where field 129 begins.
-- It is 0, 0 and nil of any other message.
local function partsof(envelope)
  if string.byte(envelope, 1) ~= 2 then return 0, 0 end -- nearly all
  local i, size = fieldat(envelope, 129)
  if not i or size < 11 then return 0, 0 end
  local n, bytes = string.match(string.sub(envelope, i, i + 10), '^(%d%d%d%d)(%d%d%d%d%d%d%d)$')
  n = tonumber(n) or 0
  if n < 1 or n > PARTS then return 0, 0 end
  return n, tonumber(bytes), i
end

-- partnames(id, n, from) are the fields in parts of a group of n parts, from the second part on or a later one (from).
local function partnames(id, n, from)
  local names = {}
  for i = from or 2, n do names[#names + 1] = id .. ':' .. i end
  return names
end

-- weight(envelope) is what a message counts in a reply: its bytes, those of its parts, and 256 for each part.
local function weight(envelope)
  local n, bytes = partsof(envelope)
  if n < 2 then return #envelope end
  return #envelope + bytes + 256 * n
end

-- dropparts(id, n, from) deletes the parts of a group of n parts, but the first, which goes with the envelope; from 0
-- on what is left of a countdown (lib/countdown.lua), too. It does not raise, because a script has not read the key
-- parts before if state says that nothing is there.
local function dropparts(id, n, from)
  if n >= (from or 2) then redis.pcall('HDEL', KEYS.parts, unpack(partnames(id, n, from))) end
end

-- dropall(id, envelope) deletes all that a message has in parts.
local function dropall(id, envelope) dropparts(id, (partsof(envelope)), fieldat(envelope, 134) and 0 or nil) end

-- clear(ids) deletes all that messages have in parts which are to be deleted. It stops when more than 500 parts are
-- deleted, shortens the list to the messages that it has cleared, and returns whether these are all. It reads no
-- envelope, because an envelope may be long.
local function clear(ids)
  local parts = 0
  for i = 1, #ids do
    if parts > PARTS / 2 then
      for j = #ids, i, -1 do ids[j] = nil end
      return false
    end
    local from, size = 0, 6
    repeat
      local gone = redis.call('HDEL', KEYS.parts, unpack(partnames(ids[i], from + size - 1, from)))
      parts, from, size = parts + gone, from + size, 2 * size
    until gone == 0 or from > PARTS
  end
  return true
end

local LEFT = 100 -- ids in the list of a key at most: older groups are found by their ids only

-- leftkey(envelope) is the key that a group has left; '' for any other message.
local function leftkey(envelope)
  local i, size = fieldat(envelope, 129)
  return i and size > 11 and string.sub(envelope, i + 11, i + size - 1) or ''
end

-- left(key) are the ids of the live groups that left a key. It does not raise.
local function left(key)
  local list, ids = redis.pcall('HGET', KEYS.parts, ':' .. key), {}
  for id in string.gmatch(list and not list.err and list or '', '%S+') do
    ids[#ids + 1] = id
    if #ids == LEFT then break end
  end
  return ids
end

-- setleft(key, id, lives) puts a group that has left a key into the list of that key, or takes it out of the list.
local function setleft(key, id, lives)
  local ids = left(key)
  for i = #ids, 1, -1 do
    if ids[i] == id then table.remove(ids, i) end
  end
  if lives then table.insert(ids, 1, id) end
  ids[LEFT + 1] = nil
  if ids[1] then
    redis.pcall('HSET', KEYS.parts, ':' .. key, table.concat(ids, ' '))
  else
    redis.pcall('HDEL', KEYS.parts, ':' .. key)
  end
end
