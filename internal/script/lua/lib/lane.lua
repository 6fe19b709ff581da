-- Lanes. A message with a lane has field 136 in its envelope: a width in 3 digits, and the name of the lane. It may be handled if it has a turn.
-- A lane has as many turns as its width says, for those of its messages that are due first. Without a turn a message lies in waiting, due or
-- not. With a turn it lies in pending, or where its later deliveries lie. All members of lanes have the score 0:
--   <lane> NUL NUL <tag> <blank> <width>              a turn, by the tag that its message had when it got the turn
--   <lane> NUL <us, 16 digits><tag> <blank> <width>   a message in waiting
-- So one read gives the turns of a lane and the message that is next. A turn lasts until the message ends, over all its retries. Only a message
-- that was not handed out since it got its turn loses it, to one that is due before it.
-- from time: us, whole, scored
-- from message: fieldat
-- from record: split
-- from edit: noted

local WIDTH, NAME, GONE = 100, 200, 500 -- most turns, most bytes of a name, most messages that a call drops

-- laneof(envelope) is the lane of a message, and its width; nil if it has none.
local function laneof(envelope)
  if string.byte(envelope, 1) ~= 2 then return nil end -- nearly all
  local i, size = fieldat(envelope, 136)
  local width = i and size > 3 and size <= 3 + NAME and whole(string.sub(envelope, i, i + 2)) or 0
  local lane = i and string.sub(envelope, i + 3, i + size - 1)
  if width >= 1 and width <= WIDTH and not string.find(lane, '\0', 1, true) then return lane, width end
end

-- inlane(lane, n) reads the first n members of a lane. It returns its turns, and the message that is next, if it is among them.
local function inlane(lane, n)
  local turns = {}
  for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS.lanes, '[' .. lane .. '\0', '(' .. lane .. '\1', 'LIMIT', 0, n)) do
    local text, width = string.sub(member, #lane + 2, -5), math.max(whole(string.sub(member, -3)) or 1, 1)
    if string.byte(text, 1) ~= 0 then
      return turns, {tag = string.sub(text, 17), width = width, due = whole(string.sub(text, 1, 16)) or 0, member = member}
    end
    turns[#turns + 1] = {tag = string.sub(text, 2), width = width, member = member}
  end
  return turns
end

-- lanes() is what a call does with lanes. The functions are made when a call needs one first, because most calls need none.
local made
local function lanes()
  if made then return made end
  -- hasturn(lane, tag, width) and waits(lane, us, tag, width) are members of lanes.
  local function hasturn(lane, tag, width) return lane .. '\0\0' .. tag .. string.format(' %03d', width) end
  local function waits(lane, due, tag, width) return lane .. '\0' .. string.format('%016.0f', due) .. tag .. string.format(' %03d', width) end

  -- moveto(tag, due) lays a message down where a delivery waits, and moveout(tag) takes it up from there.
  local function moveto(tag, due)
    if (split(tag)) == 1 then redis.call('ZADD', KEYS.pending, us(due), tag) else redis.call('ZADD', KEYS.retry, us(due), tag) end
    noted.first = math.min(noted.first or due, due)
  end
  local function moveout(tag)
    if (split(tag)) == 1 then redis.call('ZREM', KEYS.pending, tag) else redis.call('ZREM', KEYS.retry, tag) end
  end

  -- yields(turns, due) is the last of those turns whose messages were not handed out since they got them, by the instants at which they are due
  -- and then by their tags, and that instant, if it is after due.
  local function yields(turns, due)
    local last, at, tags = nil, due, {}
    for i = 1, #turns do tags[i] = turns[i].tag end
    local firsts, others = redis.call('ZMSCORE', KEYS.pending, unpack(tags)), redis.call('ZMSCORE', KEYS.retry, unpack(tags))
    for i = 1, #turns do
      local score = scored(firsts[i] or others[i])
      if score and score > due and score >= at then last, at = i, score end
    end
    return last, at
  end

  -- fill(lane, turns, next) gives turns to those that are next. It returns false if the call has no room to drop more of what is gone.
  local gone = 0
  local function fill(lane, turns, next)
    while next and gone < 2 * GONE do
      local most = next.width
      for i = 1, #turns do most = math.min(most, turns[i].width) end
      if #turns >= most then
        local i, at = yields(turns, next.due)
        if not i then return true end
        local other = table.remove(turns, i)
        moveout(other.tag)
        redis.call('ZREM', KEYS.lanes, other.member)
        redis.call('ZADD', KEYS.lanes, 0, waits(lane, at, other.tag, other.width))
        redis.call('ZADD', KEYS.waiting, us(at), other.tag)
      else
        local _, id = split(next.tag)
        local there = redis.call('HEXISTS', KEYS.msg, id) == 1
        if not there and gone >= GONE then return false end -- a turn of another lane may be given
        redis.call('ZREM', KEYS.lanes, next.member)
        if redis.call('ZREM', KEYS.waiting, next.tag) == 1 and there then
          redis.call('ZADD', KEYS.lanes, 0, hasturn(lane, next.tag, next.width))
          moveto(next.tag, next.due)
          if #turns + 1 >= most then return true end
        else -- another program deleted it
          gone = gone + 1
          if not there then redis.call('HDEL', KEYS.fail, id) end
        end
        turns, next = inlane(lane, WIDTH + 1)
      end
    end
    return not next
  end

  -- enter(lane, width, tag, due) lays down a message that is due at an instant: it gets a turn, or waits.
  local function enter(lane, width, tag, due)
    local turns, next = inlane(lane, width + 1)
    if (turns[1] or next or {width = width}).width ~= width then noted.uneven = lane end
    if not turns[1] and not next then
      redis.call('ZADD', KEYS.lanes, 0, hasturn(lane, tag, width))
      return moveto(tag, due)
    end
    local me = {tag = tag, width = width, due = due, member = waits(lane, due, tag, width)}
    redis.call('ZADD', KEYS.lanes, 0, me.member)
    redis.call('ZADD', KEYS.waiting, us(due), tag)
    if next and turns[1] and (next.due < due or next.due == due and next.width >= width) then return end
    if next and next.due <= due or #turns > width then
      turns, me = inlane(lane, WIDTH + 1) -- who had the turns may have been deleted, and at one instant an id goes first
    end
    fill(lane, turns, me)
  end

  made = {inlane = inlane, hasturn = hasturn, waits = waits, moveto = moveto, moveout = moveout, yields = yields, fill = fill, enter = enter}
  return made
end
