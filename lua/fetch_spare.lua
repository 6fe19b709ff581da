-- Part of fetch: where the queue has limits, and something went out that has expired, all that waits before the next good one goes
-- too, beyond what may go and what is wanted: no handler gets it. Else each would cost a round trip, and, where more comes in than
-- may go, nothing good would ever be reached. A call takes 500 messages and its bytes, as ever.
local function sweepSpare(head, remove)
  local page, rest = 16, MOVES - moved - #given
  while rest > 0 do
    local tags, ids, out = head(math.min(page, rest)), {}, {}
    if #tags * big + size > bytes then
      truncate(tags, bytes, 0)
    else
      size = size + #tags * big
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
    if out[1] then remove(out) end
    for i = 1, #out do
      give(out[i], envelopes[i])
      if ids[i] == out[i] then
        started = started + 1
        local lateness = math.max(now - (whole(string.sub(envelopes[i], 2, 17)) or now), 0)
        late, latest = late + lateness, math.max(latest, lateness)
      else
        for j = #fails + 1, #given - 1 do fails[j] = '' end
        fails[#given] = records[i] or ''
      end
    end
    rest = rest - #out
    if #out < page then break end
    page = page * 2
  end
end
if spared > 0 and not repeated and not limit.idle then
  if not weighed then size = size + #given * big end
  sweepSpare(function(n) return redis.call('ZRANGEBYSCORE', KEYS.pending, '-inf', us(now), 'LIMIT', 0, n) end,
    function(tags) redis.call('ZREM', KEYS.pending, unpack(tags)) end)
  sweepSpare(function(n) return redis.call('ZRANGEBYSCORE', KEYS.retry, '-inf', us(now), 'LIMIT', 0, n) end,
    function(tags) redis.call('ZREM', KEYS.retry, unpack(tags)) end)
end
if given[1] and not repeated then lease(given) end
