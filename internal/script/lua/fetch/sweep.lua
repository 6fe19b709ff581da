-- Every ten minutes callers without a call for an hour are forgotten, and turns of lanes end whose messages do not live, or wait for a turn,
-- because another program deleted or moved them. Turns that are free are given. Each call looks at a page.
-- state.cursor is the HSCAN cursor over state, and behind a blank the last lane that was looked at.
-- takes: lookAgain, cursor, swept, byAge, byAlarm, SWEEP
-- from time: now, us, whole
-- from call: field, mark
-- from edit: noted
-- from record: split, tagof

local page, lane = string.match(cursor or '', '^(%d+) ?(.*)$')
local sweptBefore = whole(swept) or 0
if sweptBefore > now then sweptBefore = 0 end
if not page or #page > 19 then page, lane = '0', '' end
local callers = page ~= '0' or lane == '' and now - sweptBefore > 600000000 -- else these are done
if byAge and not byAlarm and (callers or lane ~= '') then
  -- isover(turn) says whether the message of a turn is not live, or waits for a turn.
  local function isover(turn)
    local _, id = split(turn.tag)
    return redis.call('HEXISTS', KEYS.msg, id) == 0 or redis.call('ZSCORE', KEYS.garbage, id) or redis.call('ZSCORE', KEYS.done, id)
      or redis.call('ZSCORE', KEYS.waiting, tagof(id, redis.call('HGET', KEYS.fail, id)))
  end

  -- sweeplanes(lane, n) looks at about n lanes behind one, ends turns of messages that do not live, and gives free turns. It returns the last
  -- lane; '' at the end. A lane in which there is more to do is looked at again.
  local function sweeplanes(lane, n)
    -- from lane: NAME, turnsof
    -- from enterlane: lanes
    -- from leavelane: rescore
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
        local turns, looked = turnsof(lane), noted.looked
        for i = 1, #turns do
          if isover(turns[i]) then redis.call('ZREM', KEYS.lanes, turns[i].member) end
        end
        if not l.fill(lane) then return before == '' and '\0' or before end -- '\0' is before all lanes
        n = n - #turns - (noted.looked - looked)
      end
    end
    return lane
  end

  if callers then
    -- from call: forgotten
    local found = redis.call('HSCAN', KEYS.state, page, 'MATCH', 'call:*', 'COUNT', SWEEP)
    for i = 1, #found[2], 2 do
      if found[2][i] ~= field and forgotten(found[2][i], found[2][i + 1]) then
        redis.call('HDEL', KEYS.state, found[2][i])
      end
    end
    page = found[1]
  end
  if redis.call('HLEN', KEYS.msg) == 0 then redis.call('HDEL', KEYS.state, 'big', 'parts', 'changed', 'overtaken') end
  local some, waiting, done = redis.pcall('ZCARD', KEYS.lanes), redis.pcall('ZCARD', KEYS.waiting), redis.pcall('ZCARD', KEYS.done)
  if type(some) == 'number' and some > 0 and type(waiting) == 'number' and type(done) == 'number' then
    lane = sweeplanes(lane, SWEEP)
    lookAgain()
  else
    lane = ''
  end
  mark('swept', us(now))
  mark('cursor', lane == '' and page or page .. ' ' .. lane)
end
