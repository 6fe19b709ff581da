-- Every ten minutes the records of callers without a call for an hour are deleted. So are turns in lanes which no
-- message has any more, because another program deleted or moved them. Turns that are free are given. Each call looks
-- at a page. state.cursor is the HSCAN cursor over state, and behind a blank the last lane that was looked at.
-- from time: now, us, whole
-- from call: field, forgotten, mark
-- from edit: noted
-- from record: split, tagof
-- from lane: NAME
-- from enterlane: lanes
-- from leavelane: rescore
-- from tick/read: SWEEP

-- isended(turn) says whether the message of a turn is not live, or waits for a turn.
local function isended(turn)
  local _, id = split(turn.tag)
  return redis.call('HEXISTS', KEYS.msg, id) == 0 or redis.call('ZSCORE', KEYS.garbage, id) or redis.call('ZSCORE', KEYS.done, id)
    or redis.call('ZSCORE', KEYS.waiting, tagof(id, redis.call('HGET', KEYS.fail, id)))
end

-- sweeplanes(lane, n) looks at about n lanes behind one, ends turns of messages that do not live, and gives free turns.
-- It returns the last lane; '' at the end. A lane in which there is more to do is looked at again.
local function sweeplanes(lane, n)
  local l = lanes()
  rescore(n)
  while n > 0 do
    local member = redis.call('ZRANGEBYLEX', KEYS.lanes, lane == '' and '-' or '(' .. lane .. '\1', '+', 'LIMIT', 0, 1)[1]
    if not member then return '' end
    local before, ends = lane, string.find(member, '\0', 1, true) or 0
    n = n - 1
    if ends < 2 or ends > NAME + 1 then
      redis.call('ZREM', KEYS.lanes, member) -- of no lane
    else
      lane = string.sub(member, 1, ends - 1)
      local turns, looked = l.turnsof(lane), noted.looked
      for i = 1, #turns do
        if isended(turns[i]) then redis.call('ZREM', KEYS.lanes, turns[i].member) end
      end
      if not l.fill(lane) then return before == '' and '\0' or before end -- '\0' is before all lanes
      n = n - #turns - (noted.looked - looked)
    end
  end
  return lane
end

-- sweepcallers(page) deletes records of callers, but that of this one, and returns the cursor that follows.
local function sweepcallers(page)
  local found = redis.call('HSCAN', KEYS.state, page, 'MATCH', 'call:*', 'COUNT', SWEEP)
  for i = 1, #found[2], 2 do
    if found[2][i] ~= field and forgotten(found[2][i], found[2][i + 1]) then redis.call('HDEL', KEYS.state, found[2][i]) end
  end
  return found[1]
end

-- sweep(c) does a page of this, if it is time.
local function sweep(c)
  local page, lane = string.match(c.cursor or '', '^(%d+) ?(.*)$')
  local swept = whole(c.swept) or 0
  if swept > now then swept = 0 end
  if not page or #page > 19 then page, lane = '0', '' end
  local callers = page ~= '0' or lane == '' and now - swept > 600000000 -- else these are done
  if not c.byAge or not (callers or lane ~= '') then return end
  if callers then page = sweepcallers(page) end
  if redis.call('HLEN', KEYS.msg) == 0 then redis.call('HDEL', KEYS.state, 'big', 'parts', 'changed', 'overtaken') end
  lane = c.laned and sweeplanes(lane, SWEEP) or ''
  mark('swept', us(now))
  c.sweeping = page ~= '0' or lane ~= ''
  mark('cursor', lane == '' and page or page .. ' ' .. lane)
end
