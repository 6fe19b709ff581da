-- settle ends a batch of deliveries, each with its own outcome.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state
-- ARGV: 3 n, then the tags of n first deliveries without key that are acked,
--       then records of 9: outcome ('ack', 'retry', 'ready' or 'garbage'), tag, id, key or '',
--       delay us (retry), number of the delivery that follows, '<failures> <losses>', error text ('': as it was),
--       '1' if the delivery failed
-- Returns {now, overflow, void}: how much garbage was deleted for want of room; '' or a list '<i> ' of outcomes (from 1,
--       acks before records) whose delivery was not held any more; they changed nothing. An ack counts although the
--       message waits where it was before that delivery (pending, retry): the server forgot the fetch, as in a
--       failover, and it was handled.
-- Cost: 9 commands for any number of plain acks that are all held, and else at most 3 more for each;
--       O(log n) for each other outcome; 5 more where there is more garbage than there may be, at most 500 messages.
-- Keeps: invariants 1, 3, 4, 6 and 9 of PROTOCOL.md. The first write is a ZREM: a full server lets the rest pass.

-- include head, call
local plain = tonumber(ARGV[3])
local saved, armed, ackedBefore, failedBefore, garbageBefore, settings =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'acked', 'failed', 'garbage', 'settings'), 1, 6)
local reply, at = recall(saved)
if reply then
  local overflow, void = string.match(reply, '^(%d+) (.*)$')
  return {at, overflow or reply, void or ''}
elseif reply == false then
  return STALE
end
guard(redis.call('ZCARD', KEYS.unack), redis.call('HLEN', KEYS.msg), redis.call('HLEN', KEYS.fail), redis.call('ZCARD', KEYS.pending))
if #ARGV > 3 + plain then
  guard(redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.retry), redis.call('LLEN', KEYS.ready),
    redis.call('ZCARD', KEYS.garbage), redis.call('ZCARD', KEYS.wake))
end

local void, acked, failed, dead = '', plain, 0, 0
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

local first -- instant at which any of these is due again
if #ARGV > 3 + plain then
  -- include failure, setfailure, erase
  for i = 4 + plain, #ARGV, 9 do
    local outcome, tag, id, key, delay, n, counts, text, isfailure = unpack(ARGV, i, i + 8)
    local held = redis.call('ZREM', KEYS.unack, tag) == 1
    if not held and outcome == 'ack' then -- the server may have forgotten the fetch
      held = redis.call('ZREM', KEYS.pending, tag) == 1 or redis.call('ZREM', KEYS.retry, tag) == 1
    end
    if not held then
      isvoid(plain + (i - 4 - plain) / 9 + 1)
    else
      if isfailure == '1' then failed = failed + 1 end
      if outcome == 'ack' then
        acked = acked + 1
        erase(id, key)
      else
        if text == '' then -- a release or a snooze keeps the last error
          local _, _, before = failure(redis.call('HGET', KEYS.fail, id))
          text = before
        end
        setfailure(id, n, counts, text)
        if outcome == 'garbage' then
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
  end
end

-- Garbage is trimmed where it is buried, the oldest first. How much there may be is known while anybody consumes.
local overflow = 0
if dead > 0 then
  -- include settings
  local room = agreed(settings, {})[4]
  if room > 0 and room < CENTURY then
    overflow = math.max(0, math.min(redis.call('ZCARD', KEYS.garbage) - room, 500))
  end
  if overflow > 0 then
    local oldest = redis.call('ZRANGE', KEYS.garbage, 0, overflow - 1)
    redis.call('ZREM', KEYS.garbage, unpack(oldest))
    redis.call('HDEL', KEYS.msg, unpack(oldest))
    redis.call('HDEL', KEYS.fail, unpack(oldest))
  end
end

local function count(kind, before, n) if n > 0 then mark(kind, us((whole(before) or 0) + n)) end end
count('acked', ackedBefore, acked)
count('failed', failedBefore, failed)
count('garbage', garbageBefore, dead)
if first then
  -- include arm
  if sooner(first, armed) then arm(first) end
end
remember(us(overflow) .. ' ' .. void)
return {us(now), us(overflow), void}
