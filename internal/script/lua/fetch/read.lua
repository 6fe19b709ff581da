-- The call and the state of the queue are read.
-- from time: now, us, whole, scored
-- from call: field, STALE, recall, guard, mark
-- from longest: longest
-- from message: SMALL

local MOVES = 500 -- how many messages a call moves

-- score(head) is the first score of a structure, by what ZRANGE says of it.
local function score(head) return scored(head[2]) end

-- read() reads all that the call may touch, up to the first write. It returns the table of the call; or nil, and the
-- answer.
local function read()
  local state = redis.call('HMGET', KEYS.state, field, 'armed', 'seen', 'grace', 'big', 'canceled', 'pause', 'lease', 'parts', 'limits', 'ticked',
    'shards', 'in:stored', 'out:acked', 'delivered', 'started', 'late', 'latest', 'dropped', 'failed', 'told', 'done')
  local saved, armed, seen, grace, big, canceled, pause, asked, groups, limits, ticked, shards = unpack(state, 1, 12)
  if shards or ARGV[13] then
    -- from queue: othershards
    local other = othershards(shards, ARGV[13] or '1')
    if other then return nil, other end
  end
  local repeated, at, number = recall(saved) -- nil: the call is new; else what was remembered of the call before it
  if repeated == false then return nil, {err = STALE} end
  local known = repeated or number and number .. ' ' .. at or '0 0' -- the number of the last call of this consumer, and when it was

  local leaseUS, agreed = longest(asked, tonumber(ARGV[5]))
  local limited = limits or ARGV[11] ~= '' -- perhaps
  local leased = score(redis.call('ZRANGE', KEYS.unack, 0, 0, 'WITHSCORES')) -- the first end of a lease

  -- An idle consumer goes by the alarm, and reads only unack: until the instant of the alarm nothing else is due. It
  -- reads everything if the first lease is in its second half, because only then the alarm is set for the end of that
  -- lease, if a lease ends later than it can, because the clock was stepped back (tick), and in queues with limits.
  local alarm = whole(armed or '0')
  local byAlarm = ARGV[7] == '2' and saved and repeated == nil and alarm and (alarm == 0 or alarm > now) and not limited
  if byAlarm and leased then
    byAlarm = leased >= now + leaseUS / 2 and score(redis.call('ZRANGE', KEYS.unack, -1, -1, 'WITHSCORES')) <= now + leaseUS
  end
  local want = tonumber(ARGV[4])
  if ARGV[10] == '0' or (whole(pause) or 0) > now then want = 0 end
  local pended, retried, ready, listed = nil, nil, {}, nil
  if not byAlarm then
    pended = score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES'))
    retried = score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES'))
    ready = redis.call('LRANGE', KEYS.ready, 0, want) -- one more than wanted: is there more?
    guard(redis.call('ZCARD', KEYS.wake), redis.call('HLEN', KEYS.msg), redis.call('HLEN', KEYS.fail))
    if groups then guard(redis.call('HLEN', KEYS.parts)) end
  end
  if limited then guard(redis.call('ZCARD', KEYS.garbage), redis.call('ZCARD', KEYS.done), redis.call('ZCARD', KEYS.waiting)) end
  if repeated or limited or ready[1] or pended and pended <= now or retried and retried <= now or leased and leased <= now
    or #ARGV[8] > 1 then
    -- The tags of the lease of this call, if it was carried out before and handed out anything. Then it is a repeat,
    -- also if its record is lost.
    listed = redis.call('HGET', KEYS.lease, ARGV[1] .. ':' .. ARGV[2])
    if listed then repeated = repeated or '' end
  end
  local anyone = ARGV[9] ~= '' and redis.pcall('HRANDFIELD', KEYS.consumers, 1, 'WITHVALUES')

  redis.call('ZREM', KEYS.unack, '') -- the first write
  mark('seen', us(now))
  mark('lease', agreed)
  return {
    state = state, known = known, repeated = repeated, heard = whole(at) or now, seen = seen, grace = grace, canceled = canceled, pause = pause,
    groups = groups, limits = limits, ticked = ticked, big = math.max(whole(big) or 0, SMALL), leaseUS = leaseUS, leased = leased,
    alarm = alarm, byAlarm = byAlarm, want = want, bytes = tonumber(ARGV[10]), pended = pended, retried = retried, ready = ready,
    listed = listed, anyone = anyone,
    size = 0, -- bytes of envelopes and parts read so far
    list = '', parts = {}, missing = {}, -- as in the reply
  }
end
