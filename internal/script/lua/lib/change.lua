-- A message that waits is changed by another one that has its key.
-- from time: now, us, scored
-- from message: keyof, expired
-- from edit: noted, write, edited, instantat, stamp, redueto, LATEST, SINCE, keyless, list, leave, append
-- from countdown: countof, countdownof, acksleft, recount
-- from group: partsof, dropparts
-- from record: delivery, tagof, failure, setfailure
-- from place: locate
-- from lane: laneof
-- from leavelane: relanes

-- change(id, envelope, other, due, word, said, latest, most, acks) does what word says to the message id, if it waits.
-- envelope is its own, other that of the message which is sent. It is due at another instant if that is said, and by
-- latest at the latest (nil: by what an earlier send said, or at any time) until it is handed out. A group that is full
-- is due now. A group that was handed out before stays due when it was. acks is the countdown of the message which is
-- sent. Returns
--   an instant   the message is due then
--   nil, counted it does not wait (it is nowhere, handled or over), or has no room: the other is to be stored beside it. If it is
--                superseded, counted is how many acks have counted for it
--   false        it is no group
local function change(id, envelope, other, due, word, said, latest, most, acks)
  local record = redis.call('HGET', KEYS.fail, id)
  local tag = tagof(id, record)
  local place, score = locate(tag, id)
  if place == 'ready' then score = us(now) end
  local failures, losses, errors, ended = failure(record)
  if place == 'unack' and word ~= 'append' then -- the delivery is superseded
    setfailure(id, delivery(record), us(failures) .. ' ' .. us(losses), '\31' .. errors, ended or 0)
    noted.overtaken = true
    return nil, (countdownof(id))
  elseif place == 'unack' then
    if partsof(envelope) == 0 then return false end
    leave(id, envelope) -- the new group has the key, also if this one is handed out again
  end
  if place == 'unack' or place == 'garbage' or place == 'done' or not place then return nil end
  local fresh = tag == id -- it was never handed out
  local edits, added, full, replaces = {}, true, false, word == 'replace'
  local target = replaces and other or envelope -- which is edited
  if word == 'append' and partsof(envelope) > 0 and expired(tonumber(delivery(record)), envelope) then
    leave(id, envelope) -- it has expired, and so would what is added
    return nil
  end
  local at, count
  if word == 'append' then
    at, count, added, full = append(id, envelope, other, most)
    if not at then return false end
    if added and not full then edits[1] = {at, 11, count} end
  end
  noted.changed = true
  if full then
    redis.call('HDEL', KEYS.key, keyof(envelope))
    list(id, envelope)
    keyless(edits, envelope, count)
    due, said, latest = now, true, nil
  end
  local missing
  if replaces then
    missing = recount(id, envelope, acks)
    noted.grown = noted.grown or missing
  elseif countof(envelope) > 0 then
    missing = acksleft(id)
  end
  if missing == 0 and fresh then due, said, latest = now, true, nil end -- as many acks have counted: it is due, and stays so
  local movable = word ~= 'append' or fresh
  if not movable then said, latest = false, nil end
  local bound = instantat(envelope, LATEST)
  if bound and bound > 1 and movable and (latest or not replaces) then -- 1 is of a send that moved nothing
    -- A bound that has passed still counts if it was set after the last delivery ended.
    local since = latest and ended and bound - (latest - now) > ended
    if fresh or bound > now or since then latest = bound end
  end
  local before, digits = scored(score), string.sub(envelope, 2, 17)
  if not said then due = before end
  if latest then due = math.max(math.min(due, latest), now) end
  local moves = (said or due < before) and not (before <= now and due <= now) -- a message that is due, and is to be due now, keeps its place
  local lane, width = laneof(envelope)
  if moves then digits = us(due) end
  if replaces and (lane or laneof(other)) then
    relanes().relane(envelope, other, place, tag, id, before, moves and due or nil)
  elseif moves and (lane or place == 'waiting') then
    relanes().shift(lane, width, place, tag, id, before, due)
  elseif moves then
    noted.first = math.min(noted.first or due, due)
    if place == 'ready' then redis.call('LREM', KEYS.ready, 1, tag) end
    if fresh then redis.call('ZADD', KEYS.pending, digits, tag) else redis.call('ZADD', KEYS.retry, digits, tag) end
  end
  if fresh and not moves and before <= now and word ~= 'append' then -- its TTL counts from now
    stamp(edits, target, SINCE, now)
  end
  if latest and (replaces or moves and latest ~= bound) then stamp(edits, target, LATEST, latest) end
  if replaces or moves and fresh then redueto(edits, target, digits) end
  if replaces then
    dropparts(id, (partsof(envelope)))
    write(id, edited(other, edits))
    if not fresh then
      setfailure(id, delivery(record), '0 0', errors, ended)
    end
  elseif edits[1] then
    write(id, edited(envelope, edits))
  end
  if not added then return nil end
  return moves and due or before
end
