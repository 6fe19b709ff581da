-- Envelopes are edited, groups leave their keys and get parts.
-- from time: whole
-- from message: keyof, fieldat
-- from group: partsof, weight, setleft

-- noted is what the sends of this call have done so far, for state (noteall):
--   stored, longest                how many messages are new, and the weight of the longest that was written
--   first                          when the first of them, or of those that were moved, is due; nil: none
--   given                          a message that is due got a turn
--   uneven                         a lane of which messages ask for different widths
--   grown, changed, overtaken      parts got a field, a message that waits was changed, a delivery was superseded
--   looked                         turns of lanes that were looked at; each that was given or taken back counts TURN
--   spent, room                    bytes of other messages that were read, and how many may be; nil: any number
local noted = {stored = 0, longest = 0, looked = 0, spent = 0}
local TURN = 4
local LOOKS = 1000 -- a call ends behind the message with which it has looked at so many turns: another call does the rest

-- write(id, envelope) stores an envelope, and notes how long it is.
local function write(id, envelope)
  redis.call('HSET', KEYS.msg, id, envelope)
  noted.longest = math.max(noted.longest, weight(envelope))
end

-- edited(envelope, edits) is an envelope with some bytes replaced. An edit is where, how many bytes, and the new bytes.
-- A long payload is copied twice, however many edits there are.
local function edited(envelope, edits)
  if not edits[1] then return envelope end
  table.sort(edits, function(a, b) return a[1] < b[1] end)
  local pieces, from = {}, 1
  for _, edit in ipairs(edits) do
    pieces[#pieces + 1], pieces[#pieces + 2] = string.sub(envelope, from, edit[1] - 1), edit[3]
    from = edit[1] + edit[2]
  end
  pieces[#pieces + 1] = string.sub(envelope, from)
  return table.concat(pieces)
end

-- instantat(envelope, kind) is the instant in a field of an envelope, and where it begins; nil if there is none.
-- stamp(edits, envelope, kind, instant) adds the edit that replaces it, and redueto(edits, envelope, digits) the edit
-- of the due instant.
local function instantat(envelope, kind)
  local i, size = fieldat(envelope, kind)
  if size == 16 then return whole(string.sub(envelope, i, i + 15)), i end
end
local function stamp(edits, envelope, kind, instant)
  local _, i = instantat(envelope, kind)
  if i then edits[#edits + 1] = {i, 16, string.format('%016.0f', instant)} end
end
local function redueto(edits, envelope, digits)
  if string.sub(envelope, 2, 17) ~= digits then edits[#edits + 1] = {2, 16, digits} end
end
local LATEST, SINCE = 5, 6 -- fields: until when a message may be put off, from when its TTL counts

-- keyless(edits, envelope, count) adds the edits that take the key from a group and write it into field 129. count has
-- the first 11 digits of that field.
local function keyless(edits, envelope, count)
  local key, i, size = keyof(envelope), fieldat(envelope, 129)
  local length, before = 11 + #key, size < 128 and 1 or 2 -- bytes of the length before the field
  local long = length < 128 and string.char(length) or string.char(length % 128 + 128, math.floor(length / 128))
  edits[#edits + 1] = {18, 2 + #key, '\0\0'}
  edits[#edits + 1] = {i - before, before + size, long .. count .. key}
end

-- list(id, envelope) lists a group by the key that it leaves. leave(id, envelope) also takes the key from its envelope.
local function list(id, envelope)
  setleft(keyof(envelope), id, true)
  noted.grown = true
end
local function leave(id, envelope)
  local edits, _, _, at = {}, partsof(envelope)
  list(id, envelope)
  keyless(edits, envelope, string.sub(envelope, at, at + 10))
  write(id, edited(envelope, edits))
end

-- append(id, envelope, other, most) adds the payload of another message to a group of at most so many parts and 1 MB.
-- It returns where field 129 begins, its new 11 digits, whether the payload was added, and whether the group is full;
-- nil if the message is no group.
local function append(id, envelope, other, most)
  local n, bytes, at = partsof(envelope)
  local i, size = fieldat(other, 1)
  if n == 0 or not i then return nil end
  local _, first = fieldat(envelope, 1)
  local left = 1048576 - bytes - (first or 0)
  if n >= most or size > left then return at, string.sub(envelope, at, at + 10), false, true end
  redis.call('HSET', KEYS.parts, id .. ':' .. n + 1, string.sub(other, i, i + size - 1))
  noted.grown = true
  return at, string.format('%04d%07d', n + 1, bytes + size), true, n + 1 >= most or size == left
end
