-- Every ten minutes callers without a call for an hour are forgotten, and turns of lanes end whose messages are gone, because another
-- program deleted them, or a version that knows no lanes. Each call looks at a page. state.cursor is the HSCAN cursor over state, and behind a
-- blank the last lane that was looked at.
-- takes: lookAgain, cursor, swept, byAge, byAlarm, SWEEP
-- from time: now, us, whole
-- from call: field, mark
local page, lane = string.match(cursor or '', '^(%d+) ?(.*)$')
local sweptBefore = whole(swept) or 0
if sweptBefore > now then sweptBefore = 0 end
if not page or #page > 19 then page, lane = '0', '' end
local callers = page ~= '0' or lane == '' and now - sweptBefore > 600000000 -- else these are done
if byAge and not byAlarm and (callers or lane ~= '') then
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
  local some = redis.pcall('ZCARD', KEYS.lanes)
  if type(some) == 'number' and some > 0 and type(redis.pcall('ZCARD', KEYS.waiting)) == 'number' then
    -- from relane: relanes
    lane = relanes().sweep(lane, SWEEP)
    lookAgain()
  else
    lane = ''
  end
  mark('swept', us(now))
  mark('cursor', lane == '' and page or page .. ' ' .. lane)
end
