-- Shared by the scripts that know what has expired.
--
-- expired(nth, envelope) says whether a delivery, the nth of its message, is beyond its deadline or, if it is the first, its
-- TTL. A TTL counts from the due instant, or from a later one at which a send started it anew (field 6).
local function expired(nth, envelope)
  local function instant(kind)
    local i, size = fieldat(envelope, kind)
    return size == 16 and whole(string.sub(envelope, i, i + 15)) or 0
  end
  local deadline = instant(130)
  if deadline > 0 and deadline <= now then return true end
  local due, hi, lo = whole(string.sub(envelope, 2, 17)), string.byte(envelope, 18, 19)
  if nth > 1 or not due or not lo then return false end
  local function uvarint(i) -- nil if there is none, and where it ends
    local value, scale = 0, 1
    while i do
      local digit = string.byte(envelope, i)
      if not digit or scale > 1e15 then return nil end
      value, scale, i = value + digit % 128 * scale, scale * 128, i + 1
      if digit < 128 then return value, i end
    end
  end
  local ttl
  if string.byte(envelope, 1) == 1 then
    local at = 20 + hi * 256 + lo -- its flags, the first of which is that there is a TTL, and its retries
    local _, after = uvarint(at + 1)
    if (string.byte(envelope, at) or 0) % 2 == 1 then ttl = uvarint(after) end
  else
    ttl = uvarint((fieldat(envelope, 4)))
  end
  return ttl and ttl > 0 and now - math.max(due, instant(6)) > ttl or false
end
