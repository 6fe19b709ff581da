-- Part of put: what becomes of a message whose key another one wants.

-- keyless(edits, envelope, count) are the edits that take the key from a group, which still goes by it; count is what it says of
-- its parts then.
local function keyless(edits, envelope, count)
  local key, i, size = keyof(envelope), fieldat(envelope, 129)
  local length, before = 11 + #key, size < 128 and 1 or 2 -- bytes of its length, which stands before the field
  local long = length < 128 and string.char(length) or string.char(length % 128 + 128, math.floor(length / 128))
  edits[#edits + 1] = {18, 2 + #key, '\0\0'}
  edits[#edits + 1] = {i - before, before + size, long .. count .. key}
end

-- list(id, envelope) notes that a group leaves its key and lives on, and leave(id, envelope) takes the key from it.
local function list(id, envelope)
  setleft(keyof(envelope), id, true)
  grown = true
end
local function leave(id, envelope)
  local edits, _, _, at = {}, partsof(envelope)
  list(id, envelope)
  keyless(edits, envelope, string.sub(envelope, at, at + 10))
  write(id, edited(envelope, edits))
end

-- append(id, envelope, other, most) adds the payload of another message to a group, of most parts and 1 MB. It returns where
-- the envelope says what parts there are, and that; whether the payload was added, and whether the group is full; nil if the
-- message is no group.
local function append(id, envelope, other, most)
  local n, bytes, at = partsof(envelope)
  local i, size = fieldat(other, 1)
  if n == 0 or not i then return nil end
  local _, first = fieldat(envelope, 1)
  local left = 1048576 - bytes - (first or 0)
  if n >= most or size > left then return at, string.sub(envelope, at, at + 10), false, true end
  redis.call('HSET', KEYS.parts, id .. ':' .. n + 1, string.sub(other, i, i + size - 1))
  grown = true
  return at, string.format('%04d%07d', n + 1, bytes + size), true, n + 1 >= most or size == left
end

-- include expired
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
  local edits, added, full, replaces = {}, true, false, taken == 'replace'
  local target = replaces and other or envelope -- which is edited
  if taken == 'append' and partsof(envelope) > 0 and expired(tonumber(delivery(record)), envelope) then
    leave(id, envelope) -- it is over, and no place for what is fresh
    return nil
  end
  local at, count
  if taken == 'append' then
    at, count, added, full = append(id, envelope, other, most)
    if not at then return false end
    if added and not full then edits[1] = {at, 11, count} end
  end
  changed = true
  if full then
    redis.call('HDEL', KEYS.key, keyof(envelope))
    list(id, envelope)
    keyless(edits, envelope, count)
    due, said, latest = now, true, nil
  end
  local movable = taken ~= 'append' or place == 'pending'
  if not movable then said, latest = false, nil end
  local limit = instantat(envelope, LATEST)
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
  if place == 'pending' and not moves and before <= now and taken ~= 'append' then -- its TTL counts from now
    stamp(edits, target, SINCE, now)
  end
  if latest and (replaces or moves and latest ~= limit) then stamp(edits, target, LATEST, latest) end
  if replaces or moves and place == 'pending' then redueto(edits, target, digits) end
  if replaces then
    if grouped then dropparts(id, (partsof(envelope))) end
    write(id, edited(other, edits))
    if place ~= 'pending' then
      setfailure(id, delivery(record), '0 0', errors, ended)
    end
  elseif edits[1] then
    write(id, edited(envelope, edits))
  end
  if not added then return nil end
  return moves and due or before
end
