-- Envelopes: 1 byte version, 16 digits due instant, 2 bytes length of the key, the key. In version 2 fields follow,
-- each of a type, a length and bytes. docs/redis.md has the rest.
-- from time: now, us, whole

local SMALL = 2048 -- bytes: only a longer envelope is noted in state.big

-- keyof(envelope, head) is the message key, '' for none. It copies only the key. head is how many bytes stand before
-- it, 17 if it is not said.
local function keyof(envelope, head)
  head = head or 17
  local hi, lo = string.byte(envelope, head + 1, head + 2)
  if not lo or hi * 256 + lo == 0 then return '' end
  return string.sub(envelope, head + 3, head + 2 + hi * 256 + lo)
end

-- redue(envelope, digits) is the envelope with another due instant, in 16 digits.
local function redue(envelope, digits) return string.sub(envelope, 1, 1) .. digits .. string.sub(envelope, 18) end

-- complete(delay, version, envelope) is a whole envelope, and when it is due: delay us from now, or if that is nil,
-- when the envelope says, but not before now.
local function complete(delay, version, envelope)
  if delay then
    return string.char(tonumber(version)) .. us(now + delay) .. envelope, now + delay
  end
  local due = tonumber(string.sub(envelope, 2, 17))
  if due >= now then return envelope, due end
  return redue(envelope, us(now)), now
end

-- fieldat(envelope, wanted) is where the bytes of a field begin, and how many there are; nil if there is no such field.
-- The fields are in falling order of their types.
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

-- expired(nth, envelope, at) says whether the nth delivery of a message is beyond its deadline at an instant (nil:
-- now), or the first beyond its TTL. A TTL counts from the due instant, or from a later instant at which a send started
-- the TTL anew (field 6).
local function expired(nth, envelope, at)
  at = at or now
  local function instant(kind)
    local i, size = fieldat(envelope, kind)
    return size == 16 and whole(string.sub(envelope, i, i + 15)) or 0
  end
  local deadline = instant(130)
  if deadline > 0 and deadline <= at then return true end
  local due, hi, lo = whole(string.sub(envelope, 2, 17)), string.byte(envelope, 18, 19)
  if nth > 1 or not due or not lo then return false end
  local function uvarint(i) -- its value, nil if there is none, and where it ends
    local n, scale = 0, 1
    while i do
      local d = string.byte(envelope, i)
      if not d or scale > 1e15 then return nil end
      n, scale, i = n + d % 128 * scale, scale * 128, i + 1
      if d < 128 then return n, i end
    end
  end
  local ttl
  if string.byte(envelope, 1) == 1 then
    local flags = 20 + hi * 256 + lo -- of which 1 is that a TTL follows, then retries, then the TTL
    local _, after = uvarint(flags + 1)
    if (string.byte(envelope, flags) or 0) % 2 == 1 then ttl = uvarint(after) end
  else
    ttl = uvarint((fieldat(envelope, 4)))
  end
  return ttl and ttl > 0 and at - math.max(due, instant(6)) > ttl or false
end
