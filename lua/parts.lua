-- Shared by the scripts that know groups: messages that are sent to be appended to. The first part is the payload of the
-- envelope, each other one is in parts, under '<id>:<n>', n from 2 on. Field 129 of the envelope, which is of version 2
-- then, says how many parts there are, in 4 digits, how many bytes those in parts have, in 7, and, once the group has no
-- key any more, which it had.
local PARTS = 1000 -- at most, of one group

-- fieldat(envelope, kind) is where the bytes of a field begin, and how many they are; nil if there is no such field. Types
-- fall from field to field.
local function fieldat(envelope, wanted)
  local version, hi, lo = string.byte(envelope, 1), string.byte(envelope, 18, 19)
  if version ~= 2 or not lo then return nil end
  local i, before = 20 + hi * 256 + lo, 256
  while true do
    local kind, size, scale = string.byte(envelope, i), 0, 1
    if not kind or kind < wanted or kind >= before then return nil end
    repeat -- a uvarint
      i = i + 1
      local digit = string.byte(envelope, i)
      if not digit or scale > 1e12 then return nil end
      size, scale = size + digit % 128 * scale, scale * 128
    until digit < 128
    i, before = i + 1, kind
    if kind == wanted then
      if #envelope < i + size - 1 then return nil end
      return i, size
    end
    i = i + size
  end
end

-- partsof(envelope) is how many parts a group has, how many bytes all but the first have, and where that stands; 0, 0 and
-- nil of any other message.
local function partsof(envelope)
  if string.byte(envelope, 1) ~= 2 then return 0, 0 end -- nearly all
  local i, size = fieldat(envelope, 129)
  if not i or size < 11 then return 0, 0 end
  local n, bytes = string.match(string.sub(envelope, i, i + 10), '^(%d%d%d%d)(%d%d%d%d%d%d%d)$')
  n = tonumber(n) or 0
  if n < 1 or n > PARTS then return 0, 0 end
  return n, tonumber(bytes), i
end

-- partnames(id, n, from) are the fields of parts that a group of n has, from 2 on or a later one.
local function partnames(id, n, from)
  local names = {}
  for i = from or 2, n do names[#names + 1] = id .. ':' .. i end
  return names
end

-- weight(envelope) is what a message counts in a reply: its bytes, those of its parts, and something for each of them.
local function weight(envelope)
  local n, bytes = partsof(envelope)
  if n < 2 then return #envelope end
  return #envelope + bytes + 256 * n
end
