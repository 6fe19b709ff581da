-- Lanes, their turns, and what waits for one.
-- from time: scored
-- from record: split, tagof
-- from edit: noted
-- from lane: WIDTH, laneof, readlane
-- from enterlane: lanes
-- from repair/place: isdead, leased, turnof

-- belongs(member, lane) says whether a member of lanes is right.
local function belongs(member, lane)
  local l, says = lanes(), readlane(lane, member)
  local tag = says.tag
  local _, id = split(tag)
  local own, width = laneof(redis.call('HGET', KEYS.msg, id) or '')
  if own ~= lane or isdead(id) then return false end
  local due = redis.call('ZSCORE', KEYS.waiting, tag)
  if not says.turn then return due and member == l.waits(lane, scored(due), tag, width) end
  due = due or redis.call('ZSCORE', KEYS.waiting, tagof(id, redis.call('HGET', KEYS.fail, id)))
  return not due and member == l.hasturn(lane, tag, width) and turnof(lane, id) == member
end

-- turnsin(lane) are the turns of a lane, in one text, how many there are, and the smallest width.
local function turnsin(lane)
  local turns, all = lanes().turnsof(lane), {}
  noted.looked = noted.looked + #turns
  for i = 1, #turns do all[i] = turns[i].member end
  return table.concat(all, ' '), #turns, turns[1] and turns[1].width or WIDTH
end

-- mendlanes(mend) adds the words about lanes to mend.
local function mendlanes(mend)
  function mend.member(member)
    local lane = string.sub(member, 1, (string.find(member, '\0', 1, true) or 1) - 1)
    if not redis.call('ZSCORE', KEYS.lanes, member) then -- what waited may have got a turn since
      local _, id = split(readlane(lane, member).tag)
      member = lane ~= '' and turnof(lane, id)
    end
    if not member or lane ~= '' and belongs(member, lane) then return 'sound' end
    redis.call('ZREM', KEYS.lanes, member)
    if lane ~= '' then lanes().fill(lane) end
    return 'done'
  end

  function mend.laned(id)
    local envelope, tag, l = redis.call('HGET', KEYS.msg, id), tagof(id, redis.call('HGET', KEYS.fail, id)), lanes()
    if not envelope then return 'sound' end
    local lane, width = laneof(envelope)
    local due = redis.call('ZSCORE', KEYS.waiting, tag)
    if not lane and due then
      redis.call('ZREM', KEYS.waiting, tag)
      if not isdead(id) then l.moveto(tag, scored(due)) end
      return 'done'
    elseif not lane or isdead(id) or not due and turnof(lane, id)
      or due and redis.call('ZSCORE', KEYS.lanes, l.waits(lane, scored(due), tag, width)) then
      return 'sound'
    end
    due = due or redis.call('ZSCORE', KEYS.pending, tag) or redis.call('ZSCORE', KEYS.retry, tag)
    if due then
      redis.call('ZREM', KEYS.waiting, tag)
      redis.call('ZREM', KEYS.pending, tag)
      redis.call('ZREM', KEYS.retry, tag)
      l.enter(lane, width, tag, scored(due))
    elseif redis.call('LPOS', KEYS.ready, tag) or leased(tag) then
      redis.call('ZADD', KEYS.lanes, 0, l.hasturn(lane, tag, width))
    else
      return 'sound' -- it is in no structure
    end
    return 'done'
  end

  function mend.lane(lane)
    local l = lanes()
    local before, n, most = turnsin(lane)
    local idle = n > most and l.idle(lane, 0) or {}
    for _ = most + 1, n do
      if idle[1] then l.takeback(lane, table.remove(idle)) end
    end
    local _, _, next = l.inlane(lane)
    l.fill(lane, next and next.id)
    return turnsin(lane) == before and 'sound' or 'done'
  end
end
