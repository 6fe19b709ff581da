-- Each delivery ends that is not one of the plain acks, until there is no room to read what the next one changes.
-- takes: leavelane, left, before, firstHold, plain, FIELDS, changed, acked, holdEnds, unlist, kept, garbageRoom, doneRoom, follows, failed, throttle, dead, first, act,
--        changes, fits, count, stopped, answers, outcomes, holds, begin, errorsOf, finishes, ackedKept, unkept
-- from time: now, us, whole
-- from record: setfailure
-- from keys: heldUntil, freekey, erase
-- from edit: noted, LOOKS

local keysHeld = (whole(firstHold) or 0) > 0 -- some key is held
local hold, parts, lane -- of the next outcome, if they were said
local own, counted = nil, false -- of the last ack: its message, if it is not void, and whether it may count for another
local sends, acks = 0, 0 -- so many so far; the countdown of the next
local i = before + plain + 1
while ARGV[i] do
  local word = ARGV[i]
  local behind = i + 1 + (FIELDS[word] or follows[word])
  if word == 'hold' then
    hold = tonumber(ARGV[i + 1])
  elseif word == 'group' then
    parts = tonumber(ARGV[i + 1])
  elseif word == 'lane' then
    lane = ARGV[i + 1]
  elseif word == 'countdown' then
    acks = tonumber(ARGV[i + 1])
  elseif word == 'counts' then
    if counted then count(ARGV[i + 1]) end
  elseif not FIELDS[word] then
    local answer = own and act(own, acks, unpack(ARGV, i, behind - 1)) or '+'
    sends, acks = sends + 1, 0
    if answer ~= '+' then answers = answers .. us(sends) .. answer .. ' ' end
  elseif noted.looked >= LOOKS then
    stopped = us(outcomes + 1)
    break
  elseif word == 'ack' or word == 'done' then
    local lease, tag, id, key, number, counts, keep, result, room = unpack(ARGV, i + 1, behind - 1)
    if changes or noted.spent > 0 then
      local fitting, never = fits(behind)
      if never or not fitting then
        stopped = us(outcomes + 1) .. (never and '!' or '')
        break
      end
    end
    lease = tonumber(lease)
    local there = holds(lease, tag, id)
    local other = (parts or 0) > 0 or (changed or noted.changed) and key ~= '' -- it may be another message since
    if not left[lease] and not other then -- the server may have forgotten the fetch
      there = redis.call('ZREM', KEYS.pending, tag) == 1 or redis.call('ZREM', KEYS.retry, tag) == 1
      there = there and redis.call('HEXISTS', KEYS.msg, id) == 1
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
          dropparts(id, parts, 0)
        end
        erase(id, key, keysHeld, unlist)
        if past then unkept = unkept + 1 end
      else
        setfailure(id, number, counts, errorsOf(id, number))
        doneRoom, kept, ackedKept = tonumber(room), kept + 1, ackedKept + (past and 0 or 1)
        freekey(id, key, keysHeld, unlist)
        redis.call('ZADD', KEYS.done, us(now + tonumber(keep)), id)
        if result ~= '' then redis.call('HSET', KEYS.result, id, result) end
      end
    end
    if lane and valid then leavelane(lane, id, tag) end
    own, counted = valid and id, valid and not past
    hold, parts, lane = nil, nil, nil
  else
    -- last: of 'garbage' a key, else a delay
    local lease, tag, id, number, counts, text, failing, last, room = unpack(ARGV, i + 1, behind - 1)
    local valid, past = begin(holds(tonumber(lease), tag, id), tag, id)
    if valid then
      if failing == '1' then failed = failed + 1 end
      if word == 'throttle' then throttle = math.max(throttle, tonumber(last)) end
      local errors = text == '' and errorsOf(id, number) or '\30' .. us(now) .. ' ' .. text
      if past then
        if finishes(id, number, counts, errors) then kept = kept + 1 else unkept = unkept + 1 end
      else
        setfailure(id, number, counts, errors)
        if word == 'garbage' then
          garbageRoom, dead = tonumber(room), dead + 1
          freekey(id, last, keysHeld, unlist)
          redis.call('ZADD', KEYS.garbage, us(now), id)
          if lane then leavelane(lane, id, tag) end
        elseif word == 'ready' then
          redis.call('RPUSH', KEYS.ready, number .. ':' .. id)
          first = now
        else
          local next = now + tonumber(last)
          if lane then
            leavelane(lane, id, tag, number .. ':' .. id, next)
          else
            redis.call('ZADD', KEYS.retry, us(next), number .. ':' .. id)
            if not first or next < first then first = next end
          end
        end
      end
    end
    hold, parts, lane = nil, nil, nil
  end
  i = behind
end
