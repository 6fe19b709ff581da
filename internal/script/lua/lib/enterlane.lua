-- Messages that enter their lanes (lib/lane.lua), and turns, which are given and taken back.
-- Cost: 3 commands of O(log n) for a message that enters, 7 for a turn that ends and is given on, 2 more if the lane has several turns. A
-- message that is due before all that wait, while no turn is free, looks at all turns, and may take back 100. A lane
-- whose width has grown may give 100: 8 commands each.
-- from time: now, us, scored
-- from record: split
-- from edit: noted, TURN

local GONE = 500 -- most messages that a call drops

-- lanes() is what a call does with lanes. The functions are made when a call needs one first, because most calls need
-- none.
local made
local function lanes()
  if made then return made end
  -- from lane: inlane, turnsof

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

  -- idle(lane, after) are the turns of messages that are due after an instant, and were not handed out since they got
  -- the turns: by the instants at which they are due, and then by their ids.
  local function idle(lane, after)
    local turns, tags, found = turnsof(lane), {}, {}
    noted.looked = noted.looked + #turns
    if not turns[1] then return found end -- other scores than 0 hide members
    for i = 1, #turns do tags[i] = turns[i].tag end
    local firsts, others = redis.call('ZMSCORE', KEYS.pending, unpack(tags)), redis.call('ZMSCORE', KEYS.retry, unpack(tags))
    for i, turn in ipairs(turns) do
      local due, _, id = scored(firsts[i] or others[i]), split(turn.tag)
      turn.due, turn.id = due, id
      if due and due > after then found[#found + 1] = turn end
    end
    table.sort(found, function(a, b) return a.due < b.due or a.due == b.due and a.id < b.id end)
    return found
  end

  -- takeback(lane, turn) makes the message of an idle turn wait.
  local function takeback(lane, turn)
    moveout(turn.tag)
    redis.call('ZREM', KEYS.lanes, turn.member)
    redis.call('ZADD', KEYS.lanes, 0, waits(lane, turn.due, turn.tag, turn.width))
    redis.call('ZADD', KEYS.waiting, us(turn.due), turn.tag)
    noted.looked = noted.looked + TURN
  end

  -- fill(lane, me) gives turns that are free to those that are next. While the message me is next, it gets turns of
  -- messages that come after it and are not due. The result is false if the call has no room to drop more of what is
  -- gone.
  local gone = 0
  local function fill(lane, me)
    local n, least, next = inlane(lane)
    local others
    while next and gone < 2 * GONE do
      local most = math.min(least, next.width)
      if n >= most then
        others = next.id == me and (others or idle(lane, now)) or {}
        local last = table.remove(others)
        if not last or last.due < next.due or last.due == next.due and last.id < me then return true end
        takeback(lane, last)
      else
        local there = redis.call('HEXISTS', KEYS.msg, next.id) == 1
        if not there and gone >= GONE then return false end -- a turn of another lane may be given
        redis.call('ZREM', KEYS.lanes, next.member)
        if redis.call('ZREM', KEYS.waiting, next.tag) == 1 and there then
          redis.call('ZADD', KEYS.lanes, 0, hasturn(lane, next.tag, next.width))
          noted.given = noted.given or next.due <= now
          moveto(next.tag, math.max(next.due, now)) -- behind what is due already, also of other lanes
          noted.looked = noted.looked + TURN
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
      noted.given = noted.given or due <= now
      return moveto(tag, math.max(due, now))
    end
    redis.call('ZADD', KEYS.lanes, 0, waits(lane, due, tag, width))
    redis.call('ZADD', KEYS.waiting, us(due), tag)
    local _, id = split(tag)
    if n == 0 or not next or next.due > due or next.due == due and next.id > id then fill(lane, id) end
  end

  made = {inlane = inlane, turnsof = turnsof, hasturn = hasturn, waits = waits, moveto = moveto, moveout = moveout, idle = idle,
    takeback = takeback, fill = fill, enter = enter}
  return made
end
