-- Messages that leave their lanes (lib/lane.lua), or get another instant or another lane.
-- from time: us, whole, scored
-- from record: split
-- from edit: noted
-- from lane: laneof
-- from enterlane: lanes

-- rescore(n) sets the scores of up to n members of lanes right. Others than 0 would hide members from each other.
local function rescore(n)
  for _, range in ipairs({{'-inf', '(0'}, {'(0', '+inf'}}) do
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS.lanes, range[1], range[2], 'LIMIT', 0, n)) do
      redis.call('ZADD', KEYS.lanes, 0, member)
    end
  end
end

-- relanes() is what a call does with messages that leave. The functions are made when a call needs one first.
local remade
local function relanes()
  if remade then return remade end
  local l = lanes()

  -- vacate(lane, width, id, tag) ends the turn of a message, if it has one: mostly it got that in its first delivery,
  -- or under its tag.
  local function vacate(lane, width, id, tag)
    local ended = redis.call('ZREM', KEYS.lanes, l.hasturn(lane, id, width)) == 1
      or tag ~= id and tag ~= '' and redis.call('ZREM', KEYS.lanes, l.hasturn(lane, tag, width)) == 1
    local turns = ended and {} or l.turnsof(lane)
    noted.looked = noted.looked + #turns
    for _, turn in ipairs(turns) do
      local _, holder = split(turn.tag)
      if holder == id then ended = redis.call('ZREM', KEYS.lanes, turn.member) == 1 end
    end
    if ended then l.fill(lane) end
  end

  -- leavewaiting(lane, width, tag, due) takes out a message that waits. The message behind it may have a larger width.
  local function leavewaiting(lane, width, tag, due)
    redis.call('ZREM', KEYS.waiting, tag)
    redis.call('ZREM', KEYS.lanes, l.waits(lane, due, tag, width))
    local n, least, next = l.inlane(lane)
    if next and n < math.min(least, next.width) then l.fill(lane) end
  end

  -- shift(lane, width, place, tag, id, before, due) makes a message of a lane that waits in a structure due at another
  -- instant. If it was handed out since it got its turn, and is not made due later, it keeps the turn. If another
  -- program took the lane from a message in waiting (nil), it is laid down.
  local function shift(lane, width, place, tag, id, before, due)
    if not lane then
      redis.call('ZREM', KEYS.waiting, tag)
      return l.moveto(tag, due)
    elseif place == 'waiting' then
      leavewaiting(lane, width, tag, before)
      return l.enter(lane, width, tag, due)
    end
    if place == 'ready' then redis.call('LREM', KEYS.ready, 1, tag) else l.moveout(tag) end
    if due <= before and not redis.call('ZSCORE', KEYS.lanes, l.hasturn(lane, tag, width)) then return l.moveto(tag, due) end
    vacate(lane, width, id, tag)
    l.enter(lane, width, tag, due)
  end

  -- outof(envelope, place, tag, id, score) takes a message out of its lane, if it has one, when it leaves a structure
  -- for good.
  local function outof(envelope, place, tag, id, score)
    local lane, width = laneof(envelope)
    if not lane and place == 'waiting' then redis.call('ZREM', KEYS.waiting, tag) end
    if not lane or place == 'garbage' or place == 'done' then return end
    if place == 'waiting' then leavewaiting(lane, width, tag, scored(score)) else vacate(lane, width, id, tag) end
  end

  -- relane(envelope, other, place, tag, id, before, due) puts a message that waits in a structure into the lane of
  -- another envelope. If due is nil, it stays due when it was.
  local function relane(envelope, other, place, tag, id, before, due)
    local lane, width = laneof(envelope)
    local next, most = laneof(other)
    if lane == next and width == most then
      if due and due ~= before then shift(lane, width, place, tag, id, before, due) end
      return
    end
    due = due or tag == id and place == 'pending' and whole(string.sub(envelope, 2, 17)) or before -- not when it got its turn
    if place == 'ready' then redis.call('LREM', KEYS.ready, 1, tag) elseif place ~= 'waiting' then l.moveout(tag) end
    outof(envelope, place, tag, id, us(before))
    if next then l.enter(next, most, tag, due) else l.moveto(tag, due) end
  end

  remade = {vacate = vacate, shift = shift, outof = outof, relane = relane, enter = l.enter}
  return remade
end

-- leavelane(lane, id, tag, next, due) ends the turn of a message. lane is the width of its lane in 3 digits and the
-- name, or '?': its envelope says, if it is not deleted. If due is said, the message enters the lane again, with the
-- tag next.
local function leavelane(lane, id, tag, next, due)
  if lane == '?' then return relanes().outof(redis.call('HGET', KEYS.msg, id) or '', 'unack', tag, id) end
  local width, name = tonumber(string.sub(lane, 1, 3)), string.sub(lane, 4)
  relanes().vacate(name, width, id, tag)
  if due then relanes().enter(name, width, next, due) end
end
