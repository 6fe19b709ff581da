-- Each delivery ends that is not one of the plain acks.
-- takes: left, settled, lists, before, firstHold, overtaken, plain, isvoid, ended, replaced, FIELDS, changed, acked, holdEnds, unlist, kept, following,
--        FOLLOWER, failed, throttle, dead, first
-- from time: now, us, whole
-- from record: split, failure, setfailure
-- from lease: isheld
-- from keys: heldUntil, freekey, erase
-- from limits: OVERRUN

local keysHeld = (whole(firstHold) or 0) > 0 -- some key is held
local isOver, finishes -- superseded and finish, if any delivery may be superseded
if overtaken then
  -- from record: superseded, finish
  isOver, finishes = superseded, finish
end
local outcomes, followers = plain, 0 -- so many so far
local hold, parts, overrun -- of the next outcome, if they were said

-- holds(lease, tag, id) says whether a delivery is held under the lease of that number, and counts it if so.
local function holds(lease, tag, id)
  local there = left[lease] and lists(lease, tag) and isheld(id, (split(tag)))
  if there then settled[lease] = settled[lease] + 1 end
  return there
end

-- begin(there, tag, id) numbers an outcome. It returns whether the outcome counts, and whether the delivery was superseded.
local function begin(there, tag, id)
  outcomes = outcomes + 1
  if not there then isvoid(outcomes) return false end
  if overrun then redis.call('ZADD', KEYS.unack, us(now + overrun), OVERRUN .. tag) end
  if not (isOver and isOver(redis.call('HGET', KEYS.fail, id))) then return true, false end
  replaced, ended = replaced + 1, ended .. us(outcomes) .. ' '
  return true, true
end

-- errorsOf(id, number) are the errors of the record before; '' of a first delivery, which has no record.
local function errorsOf(id, number)
  local _, _, errors = failure(number ~= '2' and redis.call('HGET', KEYS.fail, id))
  return errors
end

local i = before + plain + 1
while ARGV[i] do
  local word = ARGV[i]
  local behind = i + 1 + FIELDS[word]
  if word == 'hold' then
    hold = tonumber(ARGV[i + 1])
  elseif word == 'group' then
    parts = tonumber(ARGV[i + 1])
  elseif word == 'overrun' then
    overrun = tonumber(ARGV[i + 1])
  elseif word == 'ack' or word == 'done' then
    local lease, tag, id, key, n, number, counts, keep, result = unpack(ARGV, i + 1, behind - 1)
    lease = tonumber(lease)
    local there = holds(lease, tag, id)
    if not left[lease] and not parts and not (changed and key ~= '') then -- the server may have forgotten the fetch
      there = redis.call('ZREM', KEYS.pending, tag) == 1 or redis.call('ZREM', KEYS.retry, tag) == 1
    end
    local valid, past = begin(there, tag, id)
    if valid then
      if not past then acked = acked + 1 end
      if hold and redis.call('HGET', KEYS.key, key) == id then
        local ends, longer = now + hold, keysHeld and heldUntil(key)
        if longer and longer > ends then ends = longer end
        redis.call('HSET', KEYS.key, key, 'acked:' .. id)
        redis.call('ZADD', KEYS.held, us(ends), key)
        if not holdEnds or ends < holdEnds then holdEnds = ends end
        key = '' -- which the message has no more: nothing is left to be freed
      end
      if word == 'ack' then
        if parts then
          -- from group: dropparts
          dropparts(id, parts)
        end
        erase(id, key, keysHeld, unlist)
      else
        setfailure(id, number, counts, errorsOf(id, number))
        kept = kept + 1
        freekey(id, key, keysHeld, unlist)
        redis.call('ZADD', KEYS.done, us(now + tonumber(keep)), id)
        if result ~= '' then redis.call('HSET', KEYS.result, id, result) end
      end
    end
    for _ = 1, n ~= '0' and tonumber(n) or 0 do
      followers, following = followers + 1, following or {}
      if valid then following[#following + 1] = {behind, followers, id} end
      behind = behind + FOLLOWER
    end
    hold, parts, overrun = nil, nil, nil
  else
    -- last: of 'garbage' a key, else a delay
    local lease, tag, id, number, counts, text, failing, last = unpack(ARGV, i + 1, behind - 1)
    local valid, past = begin(holds(tonumber(lease), tag, id), tag, id)
    if valid then
      if failing == '1' then failed = failed + 1 end
      if word == 'throttle' then throttle = math.max(throttle, tonumber(last)) end
      local errors = text == '' and errorsOf(id, number) or '\30' .. us(now) .. ' ' .. text
      if past then
        if finishes(id, number, counts, errors) then kept = kept + 1 end
      else
        setfailure(id, number, counts, errors)
        if word == 'garbage' then
          dead = dead + 1
          freekey(id, last, keysHeld, unlist)
          redis.call('ZADD', KEYS.garbage, us(now), id)
        elseif word == 'ready' then
          redis.call('RPUSH', KEYS.ready, number .. ':' .. id)
          first = now
        else
          local next = now + tonumber(last)
          redis.call('ZADD', KEYS.retry, us(next), number .. ':' .. id)
          if not first or next < first then first = next end
        end
      end
    end
    hold, parts, overrun = nil, nil, nil
  end
  i = behind
end
