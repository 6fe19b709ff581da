-- Turns of lanes (lib/lane.lua): who gets one, and who gives it up.
-- Cost: 3 commands of O(log n) for a message that enters, 7 for a turn that ends and is given on, 2 more if the lane has several turns. A
-- message that is due before all that wait, while no turn is free, looks at all turns.
-- from time: now, us, scored
-- from record: split
-- from edit: noted
-- from lane: inlane, turnsof

local GONE = 500 -- most messages that a call drops

-- lanes() is what a call does with lanes. The functions are made when a call needs one first, because most calls need none.
local made
local function lanes()
  if made then return made end
  -- hasturn(lane, tag, width) and waits(lane, due, tag, width) are members of lanes.
  local function hasturn(lane, tag, width) return lane .. '\0\0' .. string.format('%03d', width) .. tag end
  local function waits(lane, due, tag, width)
    local n, id = split(tag)
    return lane .. '\0' .. string.format('%016.0f%s %d %03d', due, id, n, width)
  end

  -- moveto(tag, due) lays a message down where a delivery waits, and moveout(tag) takes it up from there.
  local function moveto(tag, due)
    if (split(tag)) == 1 then redis.call('ZADD', KEYS.pending, us(due), tag) else redis.call('ZADD', KEYS.retry, us(due), tag) end
    noted.first = math.min(noted.first or due, due)
  end
  local function moveout(tag)
    if (split(tag)) == 1 then redis.call('ZREM', KEYS.pending, tag) else redis.call('ZREM', KEYS.retry, tag) end
  end

  -- yields(lane, due, id) takes the turn from the last of those messages that are not due, and were not handed out since they got one, by the
  -- instants at which they are due and then by their ids, if that one comes after the message id, which is due at an instant. If that is -1,
  -- the last may be due. It returns false if none does.
  local function yields(lane, due, id)
    local turns, tags, from, last = turnsof(lane), {}, due < 0 and 0 or now, nil
    noted.looked = noted.looked + #turns
    if not turns[1] then return false end -- other scores than 0 hide members
    for i = 1, #turns do tags[i] = turns[i].tag end
    local firsts, others = redis.call('ZMSCORE', KEYS.pending, unpack(tags)), redis.call('ZMSCORE', KEYS.retry, unpack(tags))
    for i = 1, #turns do
      local score, _, other = scored(firsts[i] or others[i]), split(tags[i])
      if score and score > from and (score > due or score == due and other > id) then last, due, id = turns[i], score, other end
    end
    if not last then return false end
    moveout(last.tag)
    redis.call('ZREM', KEYS.lanes, last.member)
    redis.call('ZADD', KEYS.lanes, 0, waits(lane, due, last.tag, last.width))
    redis.call('ZADD', KEYS.waiting, us(due), last.tag)
    return true
  end

  -- fill(lane, me) gives turns that are free to those that are next. While the message me is next, it takes turns from those that yield. The
  -- result is false if the call has no room to drop more of what is gone.
  local gone = 0
  local function fill(lane, me)
    local n, least, next = inlane(lane)
    while next and gone < 2 * GONE do
      local most = math.min(least, next.width)
      if n >= most then
        if next.id ~= me or not yields(lane, next.due, me) then return true end
      else
        local there = redis.call('HEXISTS', KEYS.msg, next.id) == 1
        if not there and gone >= GONE then return false end -- a turn of another lane may be given
        redis.call('ZREM', KEYS.lanes, next.member)
        if redis.call('ZREM', KEYS.waiting, next.tag) == 1 and there then
          redis.call('ZADD', KEYS.lanes, 0, hasturn(lane, next.tag, next.width))
          moveto(next.tag, math.max(next.due, now)) -- behind what is due already, also of other lanes
          if n + 1 >= most then return true end
        else -- another program deleted it
          gone = gone + 1
          if not there then redis.call('HDEL', KEYS.fail, next.id) end
        end
      end
      n, least, next = inlane(lane)
    end
    return not next
  end

  -- enter(lane, width, tag, due) lays down a message that is due at an instant: it gets a turn, or waits.
  local function enter(lane, width, tag, due)
    local n, least, next = inlane(lane)
    if (n > 0 and least or next and next.width or width) ~= width then noted.uneven = lane end
    if not next and n < math.min(least, width) then
      redis.call('ZADD', KEYS.lanes, 0, hasturn(lane, tag, width))
      return moveto(tag, math.max(due, now))
    end
    redis.call('ZADD', KEYS.lanes, 0, waits(lane, due, tag, width))
    redis.call('ZADD', KEYS.waiting, us(due), tag)
    local _, id = split(tag)
    if n == 0 or not next or next.due > due or next.due == due and next.id > id then fill(lane, id) end
  end

  made = {hasturn = hasturn, waits = waits, moveto = moveto, moveout = moveout, yields = yields, fill = fill, enter = enter}
  return made
end
