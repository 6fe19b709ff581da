-- settle ends a batch of deliveries, each with its own outcome.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, done, result, held, parts
-- ARGV: 3 n, '+' before it if a fetch follows right behind, which sets the alarm for the places that this frees;
--       then the tags of n first deliveries without key that are acked,
--       then records of 9: outcome ('ack', 'done', 'retry', 'throttle', 'ready' or 'garbage'), tag, id,
--       key or '', delay us (retry, throttle) or for how long it is kept (done: an ack after which it stays to be looked at),
--       number of the delivery that follows, '<failures> <losses>', error ('': they are as they were) as
--       '<delivery> <text>', with the errors of the record before behind it, or the result (done; '': none), '1' if the
--       delivery failed or, of an ack, us for which its key stays taken (1 ms at least). 'throttle' is a retry before which
--       nothing else of the queue is handed out either, for an hour at most. Before an ack, and a 'done', of a
--       group comes 'parts', '', id, '', how many parts its handler has, and four of ''. Before the record of a delivery whose
--       handler runs on and keeps its place (overran.lua) comes 'overrun', '', id, '', lease us, and four of ''. After an
--       ack, and a 'done', one of 'then' for each message that follows it, if it counts: 'then', '', id, key or '', delay
--       us ('': the envelope has its due instant), version, '', envelope (after a delay: only the part behind its due
--       instant), ''
-- Returns {now, overflow, doneOverflow, void, refused, ended}: how much garbage, and how many done messages, were deleted for
--       want of room; '' or a list '<i> ' of outcomes (from 1, acks before records) whose delivery was not held any
--       more; they changed nothing. An ack counts although the message waits where it was before that delivery
--       (pending, retry): the server forgot the fetch, as in a failover, and it was handled (but for a group, and for
--       one with a key where sends change messages that wait: it may be another one since). refused: '' or a list
--       '<i>=<id> ', message i (from 1) of those that follow was not stored, its key is held by id, as of send. ended: '' or a list
--       '<i> ' of outcomes, as in void, whose deliveries were superseded: their messages have ended (superseded.lua).
-- Cost: 9 commands for any number of plain acks that are all held, and else at most 3 more for each;
--       O(log n) for each other outcome; 5 more where there is more garbage than there may be, at most 500 messages;
--       3 more where anything is done, and where there is more of that than there may be 6, or up to 13 where some were
--       acked just now: at most 100 messages more than came in, and the records of up to 4 times as many are read;
--       2 for each message that follows, 7 with a key, and 1 for all of them, 2 if any has a key;
--       3 for each ack whose key stays taken, and 1 for all of them; where anything was superseded 1 for each record, and 2 for
--       all of them, and 4 for one that was superseded;
--       O(parts) for each ack of a group, 1 more, 2 more if it has left its key, and 1 for all of them; 1 for each place
--       that is kept; 2 where what is due waits for a place; 1 to throttle.
-- Keeps: invariants 1, 3, 4, 6 and 9 of PROTOCOL.md. The first write is a ZREM: a full server lets the rest pass.

-- include head, call
local plain = tonumber(ARGV[3])
local saved, armed, ackedBefore, failedBefore, garbageBefore, settings, firstHold, groups, changed, limited,
  overtaken, supersededBefore =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'acked', 'failed', 'garbage', 'settings', 'held',
    'parts', 'changed', 'limited', 'overtaken', 'superseded'), 1, 12)
local reply, at = recall(saved)
if reply then
  local overflow, doneOverflow, void, ended, refused = string.match(reply, '^(%d+) (%d+) ([^;]*);?([^;]*);?(.*)$')
  return {at, overflow or reply, doneOverflow or '0', void or '', refused or '', ended or ''}
elseif reply == false then
  return STALE
end
guard(redis.call('ZCARD', KEYS.unack), redis.call('HLEN', KEYS.msg), redis.call('HLEN', KEYS.fail), redis.call('ZCARD', KEYS.pending))
if limited then guard(redis.call('ZCARD', KEYS.wake)) end
local group, unlist -- what is done to groups, if there are any
if #ARGV > 3 + plain then
  guard(redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.retry), redis.call('LLEN', KEYS.ready),
    redis.call('ZCARD', KEYS.garbage), redis.call('ZCARD', KEYS.wake))
  local keeps, keyed, grown = overtaken, firstHold, groups
  for i = 4 + plain, #ARGV, 9 do
    local long = #ARGV[i + 8] > 1
    keeps = keeps or ARGV[i] == 'done'
    keyed = keyed or long or ARGV[i] == 'then' and ARGV[i + 3] ~= ''
    grown = grown or ARGV[i] == 'parts'
  end
  if keeps then guard(redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result)) end
  if keyed then guard(redis.call('ZCARD', KEYS.held)) end
  if grown then
    guard(redis.call('HLEN', KEYS.parts))
    -- include settle_groups
  end
end

local void, ended, acked, failed, dead, kept, replaced = '', '', plain, 0, 0, 0, 0 -- replaced: what was superseded
local function isvoid(i) void = void .. us(i) .. ' ' end
if plain > 0 then
  if redis.call('ZREM', KEYS.unack, unpack(ARGV, 4, 3 + plain)) == plain then
    redis.call('HDEL', KEYS.msg, unpack(ARGV, 4, 3 + plain))
  else
    -- Some were not held. A message whose first delivery is the current one, which has no record, was in unack until
    -- just now; or it is in pending again, for the server forgot the fetch, and this ack ends it there.
    for i = 1, plain do
      local id = ARGV[3 + i]
      if redis.call('HEXISTS', KEYS.fail, id) == 1 or redis.call('HDEL', KEYS.msg, id) == 0 then
        isvoid(i)
        acked = acked - 1
      else
        redis.call('ZREM', KEYS.pending, id)
      end
    end
  end
end

local throttle = 0 -- us for which nothing is handed out
local first -- instant at which any of these is due again, or what follows is due
local holdEnds -- the first end of a hold, if any begins
local following, followers, refused = nil, 0, '' -- of acks that count: where in ARGV, its number, and whom it follows; of all, how many
if #ARGV > 3 + plain then
  local holds = (whole(firstHold) or 0) > 0 -- some key is held
  -- include failure, setfailure, erase, envelope, overran
  local isOver, finishes = nil, nil -- superseded and finish, where anything may be that is
  if overtaken then
    -- include parts, dropparts, superseded
    isOver, finishes = superseded, finish
  end
  local outcomes, counts = plain, nil -- so many so far; whose was the last one, nil if that was void
  local parts, runsFor = nil, nil -- of the next one, which is a group; us for which its handler, which runs on, keeps its place
  for i = 4 + plain, #ARGV, 9 do
    local outcome, tag, id, key, delay, n, record, text, more = unpack(ARGV, i, i + 8)
    local settles = outcome ~= 'then' and outcome ~= 'parts' and outcome ~= 'overrun'
    -- The server may have forgotten the fetch. Then, if the group has grown, another one has it under the same tag.
    local held = settles and not (parts and group.grown(id, parts)) and redis.call('ZREM', KEYS.unack, tag) == 1
    if not held and (outcome == 'ack' or outcome == 'done') and not parts and not (changed and key ~= '') then
      held = redis.call('ZREM', KEYS.pending, tag) == 1 or redis.call('ZREM', KEYS.retry, tag) == 1
    end
    if outcome == 'parts' then
      parts = tonumber(delay)
    elseif outcome == 'overrun' then
      runsFor = tonumber(delay)
    elseif outcome == 'then' then
      followers = followers + 1
      following = following or {}
      if counts then following[#following + 1] = {i, followers, counts} end
    else
      outcomes, counts = outcomes + 1, held and id
      if not held then isvoid(outcomes) end
    end
    if held then
      if runsFor then redis.call('ZADD', KEYS.unack, even(now + runsFor), OVERRUN .. tag) end
      local past, acks = isOver and isOver(redis.call('HGET', KEYS.fail, id)), outcome == 'ack' or outcome == 'done'
      if past then
        replaced, ended = replaced + 1, ended .. us(outcomes) .. ' '
      elseif acks then
        acked = acked + 1
      end
      if #more > 1 then -- us: the key of an acked message stays taken
        if redis.call('HGET', KEYS.key, key) == id then
          local ends = math.max(now + tonumber(more), holds and heldUntil(key) or 0)
          redis.call('HSET', KEYS.key, key, 'acked:' .. id)
          redis.call('ZADD', KEYS.held, us(ends), key)
          holdEnds = math.min(holdEnds or ends, ends)
        end
      elseif more == '1' then
        failed = failed + 1
      end
      if outcome == 'throttle' then throttle = math.max(throttle, tonumber(delay)) end
      local value = text
      if outcome == 'done' or text == '' and not acks then -- which keeps the errors, as a release or a snooze does
        local _, _, before = failure(n ~= '2' and redis.call('HGET', KEYS.fail, id))
        text = before
      elseif not acks then
        text = '\30' .. us(now) .. ' ' .. text
      end
      if past and not acks then
        if finishes(id, n, record, text) then kept = kept + 1 end
      elseif outcome == 'ack' then
        if parts then group.drop(id, parts) end
        erase(id, key)
      else
        setfailure(id, n, record, text)
        if outcome == 'done' then
          kept = kept + 1
          freekey(id, key)
          redis.call('ZADD', KEYS.done, us(now + tonumber(delay)), id)
          if value ~= '' then redis.call('HSET', KEYS.result, id, value) end
        elseif outcome == 'garbage' then
          dead = dead + 1
          freekey(id, key)
          redis.call('ZADD', KEYS.garbage, us(now), id)
        elseif outcome == 'ready' then
          redis.call('RPUSH', KEYS.ready, n .. ':' .. id)
          first = now
        else
          local next = now + tonumber(delay)
          redis.call('ZADD', KEYS.retry, us(next), n .. ':' .. id)
          if not first or next < first then first = next end
        end
      end
    end
    if settles then parts, runsFor = nil, nil end
  end
end

if following then
  -- include settle_follow
end
if throttle > 0 then
  -- include settle_throttle
end

-- Garbage and what is done are trimmed where they come in, the oldest first. How much there may be is known while
-- anybody consumes.
local overflow, doneOverflow = 0, 0
if dead + kept > 0 then
  -- include settings, score
  local values = agreed(settings, {})
  local function excess(there, room, most)
    if room == 0 or room >= CENTURY then return 0 end
    return math.max(0, math.min(there - room, most))
  end
  if dead > 0 then overflow = excess(redis.call('ZCARD', KEYS.garbage), values[4], 500) end
  if overflow > 0 then
    local oldest = redis.call('ZRANGE', KEYS.garbage, 0, overflow - 1)
    if group and not group.clear(oldest) then overflow = #oldest end
    redis.call('ZREM', KEYS.garbage, unpack(oldest))
    redis.call('HDEL', KEYS.msg, unpack(oldest))
    redis.call('HDEL', KEYS.fail, unpack(oldest))
  end
  if kept > 0 then doneOverflow = excess(redis.call('ZCARD', KEYS.done), values[5], kept + 100) end -- each may have 1 MB
  if doneOverflow > 0 then
    local oldest = {}
    -- include settle_spare
    if group and not group.clear(oldest) then doneOverflow = #oldest end
    redis.call('ZREM', KEYS.done, unpack(oldest))
    redis.call('HDEL', KEYS.msg, unpack(oldest))
    redis.call('HDEL', KEYS.fail, unpack(oldest))
    redis.call('HDEL', KEYS.result, unpack(oldest))
  end
  if kept > 0 then mark('done', us(scored(redis.call('ZRANGE', KEYS.done, 0, 0, 'WITHSCORES')[2]))) end
end

local function count(kind, before, n) if n > 0 then mark(kind, us((whole(before) or 0) + n)) end end
if holdEnds then
  firstHold = whole(firstHold) or 0
  if firstHold == 0 or holdEnds < firstHold then mark('held', us(holdEnds)) end
end
count('acked', ackedBefore, acked)
count('failed', failedBefore, failed)
count('garbage', garbageBefore, dead)
count('superseded', supersededBefore, replaced)
if first then
  -- include arm
  if sooner(first, armed) then
    arm(first)
    armed = us(first)
  end
end
if limited and string.sub(ARGV[3], 1, 1) ~= '+' then
  -- include freed
end
overflow = overflow > 0 and us(overflow) or '0'
doneOverflow = doneOverflow > 0 and us(doneOverflow) or '0'
local others = (ended .. refused) ~= '' and ';' .. ended .. ';' .. refused or ''
remember(overflow .. ' ' .. doneOverflow .. ' ' .. void .. others)
return {us(now), overflow, doneOverflow, void, refused, ended}
