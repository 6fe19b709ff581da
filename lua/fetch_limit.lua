-- Part of fetch, where the queue has limits or is throttled: how many may go now, by the rate (GCRA: one instant, tat, until
-- which what went has used the rate up) and by the places that are free in unack, and when the next may.
--
-- state.limits is what consumers ask for: '<n> <us> <burst> <places> <when somebody asked for that rate> <for so few places>',
-- the least of each; what nobody has asked for in a lease is forgotten. Its presence says that the others are to be read:
-- state.override, what a Monitor has set, '<n> <us> <burst> <places>', goes before it. Each 0 for none.
-- state.throttled is '<us when a handler said so> <until when nothing goes>'.
-- state.limited is there while what is due is put off: '<since when> <us> <open> <us> <full>'. open: when the next may go
-- by the rate; full: '1': it waits for a place, and who frees one sets the alarm (freed). The marker stands at the second us,
-- while armed is the first us, that of what is put off: so what comes later does not set the alarm once more.
local limit -- nil: nothing bounds the queue but its workers
local marker = alarm or 0 -- what it was set for last
if limits or (ARGV[15] or '') ~= '' then
  local tat, throttled, before, override =
    unpack(redis.call('HMGET', KEYS.state, 'tat', 'throttled', 'limited', 'override'), 1, 4)
  local function numbers(text) -- those of a field, 0 for what is none
    local list, i = {0, 0, 0, 0, 0, 0}, 0
    for word in string.gmatch(text or '', '%S+') do
      i = i + 1
      list[i] = whole(word) or 0
    end
    return list
  end
  local function rated(r) return r[1] > 0 and r[1] <= r[2] and r[3] > 0 end
  local function slower(a, b)
    local x, y = a[1] / a[2], b[1] / b[2]
    return x < y or x == y and a[3] < b[3]
  end
  local mine, theirs, set = numbers(ARGV[15]), numbers(limits), numbers(override)
  mine[5], mine[6] = now, now
  local rate, crowd = mine, mine
  if rated(theirs) and math.abs(now - theirs[5]) <= leaseUS and (not rated(mine) or slower(theirs, mine)) then rate = theirs end
  if theirs[4] > 0 and math.abs(now - theirs[6]) <= leaseUS and (mine[4] == 0 or theirs[4] < mine[4]) then crowd = theirs end
  local asked = {us(rate[1]), us(rate[2]), us(rate[3]), us(crowd[4]), us(rate[5]), us(crowd[6])}
  local overridden = rated(set) or set[4] > 0
  if rated(set) then rate = set end
  if set[4] > 0 then crowd = set end

  -- include throttled
  local till = throttledUntil(throttled)
  limit = {before = '', open = till, free = nil, take = function() end, spare = nil}
  local since, floor, set = string.match(before or '', '^(%d+) (%d+) %d+ (%d+) [01]$')
  if since then
    limit.since, limit.before = whole(since), before
    if whole(floor) == marker then marker = whole(set) end
  end
  limit.text = table.concat({us(rate[1]), us(rate[2]), us(rate[3]), us(crowd[4]), overridden and '1' or '0'}, ' ')
  limit.idle = not rated(rate) and crowd[4] == 0 and till == 0
  if limit.idle then
    redis.call('HDEL', KEYS.state, 'limits', 'override', 'tat', 'throttled', 'limited')
  else
    mark('limits', table.concat(asked, ' '))
  end

  -- include expired
  limit.spare = expired -- which comes to no handler (unfit in Go) and so does not count: it would use up the rate of the others

  if till > 0 then want = 0 end
  if crowd[4] > 0 then
    limit.free = crowd[4] - redis.call('ZCARD', KEYS.unack)
    want = math.max(math.min(want, limit.free), 0)
  end
  local room -- how many may go by the rate
  -- left(taken): how many more may go once so many are in unack, as far as two fetches reach.
  function limit.left(taken)
    local n = till > 0 and 0 or 2 * MOVES
    if limit.free then n = math.min(n, limit.free - taken) end
    if room then n = math.min(n, room()) end
    return math.max(n, 0)
  end
  if rated(rate) then
    local n, per, burst = rate[1] * 1.0, rate[2] * 1.0, rate[3] -- floats: newer Lua's integers overflow
    local read = math.max(tonumber(string.match(tat or '', '^%d+$') or '') or 0, now) -- it may be centuries from now
    tat = math.min(read, now + math.ceil(burst * per / n)) -- more than that was of another limit, or of another time
    if tat < read then mark('tat', us(tat)) end
    function room() return math.floor((burst * per - (tat - now) * n) / per) end
    want = math.max(math.min(want, room()), 0)
    -- take(k): so many went. What is given back unseen, by whomever, counts too, and once more when it goes again.
    function limit.take(k)
      if k > 0 then
        tat = tat + math.ceil(k * per / n)
        mark('tat', us(tat))
      end
      if room() < 1 then
        limit.open = math.min(math.max(limit.open, tat - math.floor((burst - 1) * per / n), now + 1), 7258118400000000)
      end
    end
  end
end
