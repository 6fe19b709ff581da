-- Part of fetch: what a lost reply held is leased anew, and described or handed out again. What this reply has no room
-- for goes back: it counts for nothing.
local held, givenBack = {}, false
if repeated and repeated ~= '' then
  local function giveBack(tag)
    local n, id = split(tag)
    local failures, losses, errors = failure(redis.call('HGET', KEYS.fail, id))
    redis.call('ZREM', KEYS.unack, tag)
    setfailure(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
    redis.call('RPUSH', KEYS.ready, us(n + 1) .. ':' .. id)
    givenBack = true
  end
  local tags = redis.call('ZRANGEBYSCORE', KEYS.unack, repeated, repeated, 'LIMIT', 0, MOVES)
  local ids = {}
  for i = 1, #tags do
    local _, id = split(tags[i])
    ids[i] = id
  end
  local records = overtaken and ids[1] and redis.call('HMGET', KEYS.fail, unpack(ids)) or {}
  for i = #tags, 1, -1 do
    if superseded(records[i]) then -- and nobody has it
      redis.call('ZREM', KEYS.unack, tags[i])
      replace(ids[i], (split(tags[i])), failure(records[i]))
      table.remove(tags, i)
    end
  end
  if bytes == 0 then
    -- include envelope
    for i = 1, #tags do
      local _, id = split(tags[i])
      local record, key = redis.call('HGET', KEYS.fail, id) or '', ''
      local _, losses = failure(record)
      if losses >= maxLosses - 1 then
        local envelope = redis.call('HGET', KEYS.msg, id) or ''
        key = keyof(envelope)
        if key == '' and groups then key = leftkey(envelope) end
      end
      for _, part in ipairs({tags[i], redis.call('HSTRLEN', KEYS.msg, id), record, key}) do held[#held + 1] = part end
    end
  elseif #tags * big > bytes then
    local fit, rest, total = {}, {}, 0
    for i = 1, #tags do
      local _, id = split(tags[i])
      local length = weigh(id, bytes)
      if total + length <= bytes then
        total = total + length
        fit[#fit + 1] = tags[i]
      else
        rest[#rest + 1] = tags[i]
      end
    end
    if not fit[1] then fit[1] = table.remove(rest, 1) end
    for i = 1, #rest do giveBack(rest[i]) end
    tags = fit
  end
  if tags[1] then
    lease(tags)
    leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES'))
  end
  if bytes > 0 then picked = tags end
end
