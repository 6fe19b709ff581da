-- Messages that leave their lanes, or get another instant or lane (lib/lane.lua).
-- from time: us, scored
-- from record: split
-- from lane: WIDTH, laneof, lanes

local remade
local function relanes()
  if remade then return remade end
  local l = lanes()

  -- vacate(lane, width, id) ends the turn of a message, if it has one.
  local function vacate(lane, width, id)
    local turns, next = l.inlane(lane, width + 1)
    if #turns > width then turns, next = l.inlane(lane, WIDTH + 1) end -- its width was another when it got its turn
    for i = 1, #turns do
      local _, holder = split(turns[i].tag)
      if holder == id then
        redis.call('ZREM', KEYS.lanes, table.remove(turns, i).member)
        return l.fill(lane, turns, next)
      end
    end
  end

  -- leavewaiting(lane, width, tag, due) takes out a message that waits.
  local function leavewaiting(lane, width, tag, due)
    redis.call('ZREM', KEYS.waiting, tag)
    redis.call('ZREM', KEYS.lanes, l.waits(lane, due, tag, width))
    local turns, next = l.inlane(lane, WIDTH + 1)
    if next and next.due >= due then l.fill(lane, turns, next) end
  end

  -- shift(lane, width, place, tag, id, before, due) makes a message of a lane that waits in a structure due at another instant. If it was
  -- handed out since it got its turn, it keeps the turn.
  local function shift(lane, width, place, tag, id, before, due)
    if place == 'waiting' then
      leavewaiting(lane, width, tag, before)
      return l.enter(lane, width, tag, due)
    end
    if place == 'ready' then redis.call('LREM', KEYS.ready, 1, tag) else l.moveout(tag) end
    local begun = true
    for _, other in ipairs(l.inlane(lane, WIDTH + 1)) do begun = begun and other.tag ~= tag end
    if begun then return l.moveto(tag, due) end
    vacate(lane, width, id)
    l.enter(lane, width, tag, due)
  end

  -- outof(envelope, place, tag, id, score) takes a message out of its lane, if it has one, when it leaves a structure for good.
  local function outof(envelope, place, tag, id, score)
    local lane, width = laneof(envelope)
    if not lane or place == 'garbage' or place == 'done' then return end
    if place == 'waiting' then leavewaiting(lane, width, tag, scored(score)) else vacate(lane, width, id) end
  end

  -- relane(envelope, other, place, tag, id, before, due) puts a message that waits in a structure into the lane of another envelope.
  local function relane(envelope, other, place, tag, id, before, due)
    local lane, width = laneof(envelope)
    local next, most = laneof(other)
    if lane == next and width == most then
      if due ~= before then shift(lane, width, place, tag, id, before, due) end
      return
    end
    if place == 'ready' then redis.call('LREM', KEYS.ready, 1, tag) elseif place ~= 'waiting' then l.moveout(tag) end
    outof(envelope, place, tag, id, us(before))
    if next then l.enter(next, most, tag, due) else l.moveto(tag, due) end
  end

  -- sweeplanes(lane, n) looks at about n lanes behind one, frees turns of messages that do not live, and returns the last lane; '' at the end.
  local function sweeplanes(lane, n)
    while n > 0 do
      local member = redis.call('ZRANGEBYLEX', KEYS.lanes, lane == '' and '-' or '(' .. lane .. '\1', '+', 'LIMIT', 0, 1)[1]
      if not member then return '' end
      lane = string.sub(member, 1, (string.find(member, '\0', 1, true) or 0) - 1)
      local turns, next = l.inlane(lane, WIDTH + 1)
      n = n - 1 - #turns
      local before = #turns
      for i = before, 1, -1 do
        local _, id = split(turns[i].tag)
        if redis.call('HEXISTS', KEYS.msg, id) == 0 or redis.call('ZSCORE', KEYS.garbage, id) or redis.call('ZSCORE', KEYS.done, id) then
          redis.call('ZREM', KEYS.lanes, turns[i].member)
          table.remove(turns, i)
        end
      end
      if #turns < before or not turns[1] then l.fill(lane, turns, next) end
    end
    return lane
  end

  remade = {vacate = vacate, shift = shift, outof = outof, relane = relane, sweep = sweeplanes}
  return remade
end
