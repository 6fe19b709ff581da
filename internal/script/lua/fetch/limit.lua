-- In a queue that has limits or is throttled: how many deliveries may go now, by the rate (GCRA: state.tat is the
-- instant until which hand-outs have used up the rate) and by the free places, and when the next may go.
--
--   state.limits     '<n> <us> <burst> <places> <when a consumer asked for that rate> <for those places>', the
--                    strictest limits that consumers ask for, 0 for none. A limit that nobody has asked for in a lease
--                    is forgotten. The other fields are read only if this one is there, or this consumer asks for limits
--   state.override   '<n> <us> <burst> <places>', what ops has set, 0 for none. It goes before state.limits
--   state.throttled  '<us when a handler said so> <until when nothing goes>'
--   state.limited    '<since when> <armed> <open> <marker> <full>' while a limit puts off messages that are due. armed
--                    is state.armed, the instant of these messages, so that later messages do not set the alarm. marker
--                    is where the marker stands. open is when the rate lets the next go. full is '1' if a message waits
--                    for a place: a script that frees one sets the alarm (freed)
-- from time: now, us, whole
-- from call: mark
-- from fetch/read: MOVES

-- limits(c) reads them, and shortens c.want. It returns the table of what holds, with the functions left and take, and
-- the instant at which the marker stands.
local function limits(c)
  -- from limits: throttledUntil
  -- from message: expired
  -- from lease: howmanyheld, howmanylent
  local tat, throttled, before, override =
    unpack(redis.call('HMGET', KEYS.state, 'tat', 'throttled', 'limited', 'override'), 1, 4)
  local function numbers(text) -- of a field, 0 for what is no number
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
  local mine, theirs, set = numbers(ARGV[11]), numbers(c.limits), numbers(override)
  mine[5], mine[6] = now, now
  local rate, crowd = mine, mine
  if rated(theirs) and math.abs(now - theirs[5]) <= c.leaseUS and (not rated(mine) or slower(theirs, mine)) then rate = theirs end
  if theirs[4] > 0 and math.abs(now - theirs[6]) <= c.leaseUS and (mine[4] == 0 or theirs[4] < mine[4]) then crowd = theirs end
  local asked = {us(rate[1]), us(rate[2]), us(rate[3]), us(crowd[4]), us(rate[5]), us(crowd[6])}
  local overridden = rated(set) or set[4] > 0
  if rated(set) then rate = set end
  if set[4] > 0 then crowd = set end

  local till = throttledUntil(throttled)
  local limit, marker = {before = '', open = till, free = nil, take = function() end, spare = nil}, c.alarm or 0
  local since, first, stood = string.match(before or '', '^(%d+) (%d+) %d+ (%d+) [01]$')
  if since then
    limit.since, limit.before = whole(since), before
    if whole(first) == marker then marker = whole(stood) end
  end
  limit.text = table.concat({us(rate[1]), us(rate[2]), us(rate[3]), us(crowd[4]), overridden and '1' or '0'}, ' ')
  limit.idle = not rated(rate) and crowd[4] == 0 and till == 0
  if limit.idle then
    redis.call('HDEL', KEYS.state, 'limits', 'override', 'tat', 'throttled', 'limited')
  else
    mark('limits', table.concat(asked, ' '))
  end

  limit.spare = expired -- an expired message comes to no handler, and so does not count: it would use up the rate of the others

  if till > 0 then c.want = 0 end
  if crowd[4] > 0 then
    local held = howmanylent(crowd[4]) -- with what was canceled, until its holder has noticed
    if held >= crowd[4] and now - (whole(c.canceled) or 0) <= 2 * c.leaseUS then held = math.min(held, howmanyheld()) end
    limit.free = crowd[4] - held
    c.want = math.max(math.min(c.want, limit.free), 0)
  end
  local room -- how many may go by the rate
  -- limit.left(taken) is how many more may go after so many were taken, as far as two fetches reach.
  function limit.left(taken)
    local n = till > 0 and 0 or 2 * MOVES
    if limit.free then n = math.min(n, limit.free - taken) end
    if room then n = math.min(n, room()) end
    return math.max(n, 0)
  end
  if rated(rate) then
    local n, per, burst = rate[1] * 1.0, rate[2] * 1.0, rate[3] -- floats: newer Lua's integers overflow
    local function marktat() mark('tat', string.format('%.0f', tat)) end -- it may be beyond 2^63
    local read = math.max(tonumber(string.match(tat or '', '^%d+$') or '') or 0, now) -- it may lie centuries ahead
    tat = math.min(read, now + math.ceil(burst * per / n)) -- a later instant is of another limit, or of another time
    if tat < read then marktat() end
    function room() return math.floor((burst * per - (tat - now) * n) / per) end
    c.want = math.max(math.min(c.want, room()), 0)
    -- limit.take(k) notes that k went. A delivery that a consumer releases unseen counts too, and once more when it
    -- goes again.
    function limit.take(k)
      if k > 0 then
        tat = tat + math.ceil(k * per / n)
        marktat()
      end
      if room() < 1 then
        limit.open = math.min(math.max(limit.open, tat - math.floor((burst - 1) * per / n), now + 1), 7258118400000000)
      end
    end
  end
  return limit, marker
end
