-- Part of put: what becomes of a message whose key another one wants.

-- keyless(envelope) is the envelope without its key, which a group still goes by.
local function keyless(envelope)
  local key = keyof(envelope)
  local fields = string.sub(envelope, 20 + #key)
  local n, _, i = partsof(envelope)
  if n > 0 then
    local _, size = fieldat(envelope, 129)
    local length, digits = 11 + #key, string.sub(envelope, i, i + 10)
    local before = string.sub(envelope, 20 + #key, i - (size < 128 and 2 or 3)) -- its type is the last byte
    local long = length < 128 and string.char(length) or string.char(length % 128 + 128, math.floor(length / 128))
    fields = before .. long .. digits .. key .. string.sub(envelope, i + size)
  end
  return string.sub(envelope, 1, 17) .. '\0\0' .. fields
end

-- list(id, envelope) notes that a group leaves its key and lives on, and leave(id, envelope) takes the key from it.
local function list(id, envelope)
  setleft(keyof(envelope), id, true)
  grown = true
end
local function leave(id, envelope)
  list(id, envelope)
  write(id, keyless(envelope))
end

-- append(id, envelope, other, most) adds the payload of another message to a group, of most parts and 1 MB. It returns the
-- envelope, whether the payload was added, and whether the group is full; nil if the message is no group.
local function append(id, envelope, other, most)
  local n, bytes, at = partsof(envelope)
  local i, size = fieldat(other, 1)
  if n == 0 or not i then return nil end
  local _, first = fieldat(envelope, 1)
  local left = 1048576 - bytes - (first or 0)
  if n >= most or size > left then return envelope, false, true end
  redis.call('HSET', KEYS.parts, id .. ':' .. n + 1, string.sub(other, i, i + size - 1))
  grown = true
  local count = string.format('%04d%07d', n + 1, bytes + size)
  return string.sub(envelope, 1, at - 1) .. count .. string.sub(envelope, at + 11), true, n + 1 >= most or size == left
end

-- include expired
-- anew(envelope) is the envelope whose TTL counts from now, although the message was due before, if it has a TTL.
local function anew(envelope)
  local i, size = fieldat(envelope, 6)
  return size == 16 and string.sub(envelope, 1, i - 1) .. us(now) .. string.sub(envelope, i + 16) or envelope
end

-- change makes a message that waits, and of which envelope is stored, another one, one part longer, or due at another
-- instant, if that is said. It is due by latest (nil: at any time), or by what a send before said of it, until it is handed
-- out; a group that is full is due now. A group that was handed out before stays due when it was. It returns when it is due;
-- nil if the other is to be stored beside it, for the message is nowhere, handled, over, or has no room; false if it can
-- have no parts.
local function change(id, envelope, other, due, taken, said, latest, most)
  local record = redis.call('HGET', KEYS.fail, id)
  local tag = tagof(id, record)
  local place, score = locate(tag, id, '')
  if not place and redis.call('LPOS', KEYS.ready, tag) then place, score = 'ready', us(now) end
  local failures, losses, errors, ended = failure(record)
  if place == 'unack' and taken ~= 'append' then -- the delivery is superseded
    setfailure(id, delivery(record), us(failures) .. ' ' .. us(losses), '\31' .. errors, ended or 0)
    overtaken = true
  elseif place == 'unack' then
    if partsof(envelope) == 0 then return false end
    leave(id, envelope) -- the new one has the key, also when this one is handed out again
  end
  if place ~= 'pending' and place ~= 'retry' and place ~= 'ready' then return nil end
  local kept, added, full, replaces = envelope, true, false, taken == 'replace'
  if taken == 'append' and partsof(envelope) > 0 and expired(tonumber(delivery(record)), envelope) then
    leave(id, envelope) -- it is over, and no place for what is fresh
    return nil
  end
  if taken == 'append' then
    kept, added, full = append(id, envelope, other, most)
    if kept == nil then return false end
  end
  changed = true
  if full then
    redis.call('HDEL', KEYS.key, keyof(envelope))
    list(id, envelope)
    kept, due, said, latest = keyless(kept), now, true, nil
  end
  local movable = taken ~= 'append' or place == 'pending'
  if not movable then said, latest = false, nil end
  local limit = latestof(envelope)
  if limit and movable and (latest or not replaces) then
    -- One that is over counts if it was said, as latest is now, since the last delivery ended.
    local since = latest and ended and limit - (latest - now) > ended
    if place == 'pending' or limit > now or since then latest = limit end
  end
  local before, digits = scored(score), string.sub(envelope, 2, 17)
  if not said then due = before end
  if latest then due = math.max(math.min(due, latest), now) end
  local moves = (said or due < before) and not (before <= now and due <= now) -- what is next already keeps its place
  if moves then
    digits = us(due)
    wait(due)
    if place == 'ready' then redis.call('LREM', KEYS.ready, 1, tag) end
    if place == 'pending' then
      redis.call('ZADD', KEYS.pending, digits, tag)
    else
      redis.call('ZADD', KEYS.retry, digits, tag)
    end
  end
  if place == 'pending' and not moves and before <= now and taken ~= 'append' then other, kept = anew(other), anew(kept) end
  if replaces then
    if grouped then dropparts(id, (partsof(envelope))) end
    write(id, redue(latest and putlatest(other, latest) or other, digits))
    if place ~= 'pending' then
      setfailure(id, delivery(record), '0 0', errors, ended)
    end
  else
    if moves and latest and latest ~= limit then kept = putlatest(kept, latest) end
    if moves and place == 'pending' then kept = redue(kept, digits) end
    if kept ~= envelope then write(id, kept) end
  end
  if not added then return nil end
  return moves and due or before
end
