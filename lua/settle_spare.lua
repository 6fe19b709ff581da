-- Part of settle: which of what is done has to go, so many as doneOverflow: those that are over soonest, but nothing that
-- was acked within the last seconds, for whoever waits for that has not looked yet (Call). Messages that are kept for as
-- long as one of those are over within as many seconds of it: what is kept for longer stands behind, and so on, a few
-- times. Where that is not enough, those go that were acked first, and then those that are over soonest.
-- include failure
local SPARED, LENGTHS = 5000000, 4 -- us; how many times
local spared, going, from = {}, {}, '-inf'
for _ = 1, LENGTHS do
  local page = redis.call('ZRANGEBYSCORE', KEYS.done, from, '+inf', 'WITHSCORES', 'LIMIT', 0, doneOverflow - #oldest)
  local ids, upto = {}, nil -- upto: where those end that are kept for as long as one that is spared
  for i = 1, #page, 2 do ids[#ids + 1] = page[i] end
  local records = ids[1] and redis.call('HMGET', KEYS.fail, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local score = scored(page[2 * i])
    if upto and score > upto then break end
    local _, _, _, acked = failure(records[i])
    if acked and acked <= now and acked > now - SPARED then
      spared[#spared + 1] = {acked, id}
      upto = upto or score + SPARED
    else
      oldest[#oldest + 1], going[id] = id, true
    end
  end
  if not upto then break end
  from = us(upto + 1)
end
if #oldest < doneOverflow then
  table.sort(spared, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
  local left = redis.call('ZRANGE', KEYS.done, 0, doneOverflow - 1)
  for i, id in ipairs(left) do left[i] = {0, id} end
  for _, list in ipairs({spared, left}) do
    for _, entry in ipairs(list) do
      if #oldest < doneOverflow and not going[entry[2]] then oldest[#oldest + 1], going[entry[2]] = entry[2], true end
    end
  end
end
