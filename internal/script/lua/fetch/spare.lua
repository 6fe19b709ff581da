-- If the queue has limits and an expired message was handed out, all expired messages before the next good one go too,
-- beyond the limits and `want`, because they come to no handler. Else each would cost a round trip, and if more comes
-- in than may go, no good message would ever be reached. The bounds of a call stay: 500 messages and its bytes.
-- from time: now, us
-- from record: split
-- from fetch/read: MOVES
-- from fetch/choose: truncate
-- from fetch/handout: lastChance, give, begin

-- handspare(c, limit) does so, from pending and from retry.
local function handspare(c, limit)
  local function sweep(head, remove)
    local page, rest = 16, MOVES - #c.given
    while rest > 0 do
      local tags, ids, out = head(math.min(page, rest)), {}, {}
      if #tags * c.big + c.size > c.bytes then
        truncate(c, tags, c.bytes, 0)
      else
        c.size = c.size + #tags * c.big
      end
      for i = 1, #tags do
        local _, id = split(tags[i])
        ids[i] = id
      end
      local envelopes = ids[1] and redis.call('HMGET', KEYS.msg, unpack(ids)) or {}
      local records = ids[1] and ids[1] ~= tags[1] and redis.call('HMGET', KEYS.fail, unpack(ids)) or {}
      for i = 1, #tags do
        local first = ids[i] == tags[i]
        if not envelopes[i] or not limit.spare((split(tags[i])), envelopes[i]) or not first and lastChance(records[i]) then break end
        out[i] = tags[i]
      end
      if out[1] then remove(#out - 1) end
      for i = 1, #out do
        give(c, limit, out[i], envelopes[i])
        if ids[i] == out[i] then
          c.started = c.started + 1
          begin(c, envelopes[i], 1)
        else
          for j = #c.fails + 1, #c.given - 1 do c.fails[j] = '' end
          c.fails[#c.given] = records[i] or ''
        end
      end
      rest = rest - #out
      if #out < page then break end
      page = page * 2
    end
  end
  if not c.weighed then c.size = c.size + #c.given * c.big end
  sweep(function(n) return redis.call('ZRANGEBYSCORE', KEYS.pending, '-inf', us(now), 'LIMIT', 0, n) end,
    function(last) redis.call('ZREMRANGEBYRANK', KEYS.pending, 0, last) end)
  sweep(function(n) return redis.call('ZRANGEBYSCORE', KEYS.retry, '-inf', us(now), 'LIMIT', 0, n) end,
    function(last) redis.call('ZREMRANGEBYRANK', KEYS.retry, 0, last) end)
end
