-- Lanes, their turns, and what waits for one.
-- takes: mend, leased, turnof
-- from time: us, scored
-- from record: split, tagof
-- from lane: WIDTH, laneof, lanes
-- from relane: rescore
rescore(1000)

-- isdead(id) says whether a message is in garbage or done.
local function isdead(id) return redis.call('ZSCORE', KEYS.garbage, id) or redis.call('ZSCORE', KEYS.done, id) end

-- belongs(member, lane, text) says whether a member of lanes is right. text is what it has between the first NUL and the width.
local function belongs(member, lane, text)
  local l, turn = lanes(), string.byte(text, 1) == 0
  local tag = string.sub(text, turn and 2 or 17)
  local _, id = split(tag)
  local own, width = laneof(redis.call('HGET', KEYS.msg, id) or '')
  if own ~= lane or isdead(id) then return false end
  local due = redis.call('ZSCORE', KEYS.waiting, tag)
  if not turn then return due and member == l.waits(lane, scored(due), tag, width) end
  due = due or redis.call('ZSCORE', KEYS.waiting, tagof(id, redis.call('HGET', KEYS.fail, id)))
  return not due and member == l.hasturn(lane, tag, width) and turnof(lane, id) == member
end

function mend.member(member)
  if not redis.call('ZSCORE', KEYS.lanes, member) then return 'sound' end
  local ends = string.find(member, '\0', 1, true) or 0
  local lane = string.sub(member, 1, math.max(ends - 1, 0))
  if lane ~= '' and belongs(member, lane, string.sub(member, ends + 1, -5)) then return 'sound' end
  redis.call('ZREM', KEYS.lanes, member)
  if lane ~= '' then lanes().fill(lane, lanes().inlane(lane, WIDTH + 1)) end
  return 'done'
end

function mend.laned(id)
  local envelope, tag, l = redis.call('HGET', KEYS.msg, id), tagof(id, redis.call('HGET', KEYS.fail, id)), lanes()
  if not envelope or isdead(id) then return 'sound' end
  local lane, width = laneof(envelope)
  local due = redis.call('ZSCORE', KEYS.waiting, tag)
  if not lane and due then
    redis.call('ZREM', KEYS.waiting, tag)
    l.moveto(tag, scored(due))
    return 'done'
  elseif not lane or not due and turnof(lane, id) or due and redis.call('ZSCORE', KEYS.lanes, l.waits(lane, scored(due), tag, width)) then
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

-- turnsof(turns) are the members of turns, in one text.
local function turnsof(turns)
  local all = {}
  for i = 1, #turns do all[i] = turns[i].member end
  return table.concat(all, ' ')
end

function mend.lane(lane)
  local l = lanes()
  local turns = l.inlane(lane, WIDTH + 1)
  local before, most = turnsof(turns), WIDTH
  for i = 1, #turns do most = math.min(most, turns[i].width) end
  while #turns > most do -- the last of those that were not handed out since waits
    local i, at = l.yields(turns, -1)
    if not i then break end
    local other = table.remove(turns, i)
    l.moveout(other.tag)
    redis.call('ZREM', KEYS.lanes, other.member)
    redis.call('ZADD', KEYS.lanes, 0, l.waits(lane, at, other.tag, other.width))
    redis.call('ZADD', KEYS.waiting, us(at), other.tag)
  end
  l.fill(lane, l.inlane(lane, WIDTH + 1))
  turns = l.inlane(lane, WIDTH + 1)
  return turnsof(turns) == before and 'sound' or 'done'
end
