-- The deliveries of a lost reply are leased anew, and handed out again. Those without room in this reply go back to
-- ready, and nothing is counted. A large message that does not come through alone is lost: its lease ends, and the next
-- tick counts the loss.
-- from time: now, us
-- from fetch/read: MOVES, score
-- from fetch/choose: weigh
-- from lease: lend, lendrest, isheld
-- from record: split, failure

local LARGE = 65536 -- bytes: a smaller message comes through wherever a reply does

-- again(c) leases anew what is handed out again, of the tags that the lease of this call has, and returns these.
local function again(c)
  -- from record: setfailure, superseded
  local tags, past, name = {}, {}, ARGV[1] .. ':' .. ARGV[2] -- past: superseded deliveries without room
  for tag in string.gmatch(c.listed, '%S+') do
    local n, id = split(tag)
    if #tags < MOVES and isheld(id, n) then tags[#tags + 1] = tag end -- else it was canceled, or this repeat is late
  end
  redis.call('ZREM', KEYS.unack, name)
  redis.call('HDEL', KEYS.lease, name, name .. '#')
  local _, first = split(tags[1] or '')
  if c.bytes == 0 and #tags == 1 and redis.call('HSTRLEN', KEYS.msg, first) > LARGE then
    lend(name .. '!', us(now), tags) -- as tick/reclaim.lua says
    tags, c.lost = {}, 1
  elseif #tags * c.big > c.bytes then
    local fit, rest, total = {}, {}, 0
    for i = 1, #tags do
      local _, id = split(tags[i])
      local length = weigh(c, id, c.bytes)
      if total + length <= c.bytes then
        total = total + length
        fit[#fit + 1] = tags[i]
      else
        rest[#rest + 1] = tags[i]
      end
    end
    if not fit[1] then fit[1] = table.remove(rest, 1) end
    for i = 1, #rest do
      local n, id = split(rest[i])
      local record = redis.call('HGET', KEYS.fail, id)
      local failures, losses, errors = failure(record)
      if superseded(record) then -- its lease ends now
        past[#past + 1] = rest[i]
      else
        setfailure(id, us(n + 1), us(failures) .. ' ' .. us(losses), errors)
        redis.call('RPUSH', KEYS.ready, us(n + 1) .. ':' .. id)
        c.givenBack = true
      end
    end
    tags = fit
  end
  if past[1] then lendrest(name, us(now), past) end
  if tags[1] then
    c.leaseEnd = now + c.leaseUS
    c.list = lend(name, us(c.leaseEnd), tags)
  end
  c.leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES'))
  return tags
end
