-- set stops hand-outs until an instant or resumes them, sets the limits that go before those of consumers, lifts a Throttle, notes a loss,
-- or accepts what the books do not explain and the losses that were noted.
--
-- KEYS: pending, ready, retry, msg, wake, state
-- ARGV: 1, 2: lib/call.lua; 3 a word, and its fields from 4 on:
--         'until'   us until which nothing is handed out ('0': resume), who says so, a newline and why
--         'for'     the same, but us from now on
--         'limits'  '<n> <us> <burst> <places>', as state.override has them; '': none
--         'lift'    none: the Throttle ends
--         'loss'    us at which a consumer saw the queue whole, us at which it noticed the loss, how many messages at most, '1' if each
--                   consumer counts them all, '0' if each counts its own
--         'accept'  none: what is there counts as right (lib/books.lua), and no loss is noted any more
-- Returns {now, before}, of a repeat the now of the first call. before: of 'limits' what they were, '' for none; of 'lift' until when
--       the queue was throttled, '' if it was not; of 'accept' how many messages were missing, as in balance, a blank, and state.loss; else ''. Or an
--       error, and nothing was changed: DQNOQUEUE; DQPAST, of 'until' an instant that is not after now.
-- Cost: 10 commands of O(log n), 6 of 'limits', 7 of 'lift', 5 of 'loss', 11 of 'accept'.
-- Keeps: invariants 6 and 9 of internal/check. The first write is a ZREM: a full server lets the rest pass.

-- from time: now, us, whole
-- from call: field, STALE, recall, guard, mark, remember
-- from queue: missing
local word, value = ARGV[3], ARGV[4]
local saved, armed, pause, said, limits, override, limited, throttled, loss =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'pause', 'paused', 'limits', 'override', 'limited', 'throttled', 'loss'), 1, 9)
local reply, at = recall(saved)
if reply then return {at, reply} elseif reply == false then return {err = STALE} end
local refusal = missing(armed)
if refusal then return refusal end
guard(redis.call('ZCARD', KEYS.wake))
local before = ''

if word == 'until' or word == 'for' then
  -- from time: scored
  -- from alarm: gate, sooner, arm
  local till = tonumber(value)
  if word == 'for' then
    till = math.min(now + till, 7258118400000000) -- year 2200
  elseif till > 0 and till <= now then
    return {err = 'DQPAST that instant is over'} -- it would end a pause that somebody has made
  end
  local pended = redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES')
  local ready = redis.call('LLEN', KEYS.ready)
  local retried = redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES')
  redis.call('ZREM', KEYS.wake, '') -- the first write
  local first = scored(pended[2])
  if retried[2] and (not first or scored(retried[2]) < first) then first = scored(retried[2]) end
  if ready > 0 and (not first or now < first) then first = now end
  if till > now then
    -- A pause that goes on keeps its beginning. What state.paused says of another pause than the one in force counts for nothing.
    local since, upto = string.match(said or '', '^(%d+) (%d+) ')
    since = whole(since)
    if not since or since > now or upto ~= pause or (whole(pause) or 0) <= now then since = now end
    mark('pause', us(till))
    mark('paused', us(since) .. ' ' .. us(till) .. ' ' .. (ARGV[5] or ''))
    first = first and gate(first, us(till))
  else
    redis.call('HDEL', KEYS.state, 'pause', 'paused')
  end
  if first and sooner(first, armed) then arm(first) end
elseif word == 'accept' then
  -- from books: acceptbooks
  guard(redis.call('HLEN', KEYS.msg))
  redis.call('ZREM', KEYS.wake, '') -- the first write
  before = us(acceptbooks()) .. ' ' .. string.sub(loss or '', 1, 60)
  redis.call('HDEL', KEYS.state, 'loss')
elseif word == 'loss' then
  redis.call('ZREM', KEYS.wake, '') -- the first write
  local from, at, n = tonumber(value), tonumber(ARGV[5]), tonumber(ARGV[6])
  local since, last, sum = string.match(loss or '', '^(%d+) (%d+) (%d+)$')
  since, last, sum = whole(since) or from, whole(last) or 0, whole(sum) or 0
  -- A consumer that saw the queue whole before the last loss was noticed, and not since, has noticed the same loss.
  if ARGV[7] == '1' and from < last then sum = math.max(sum, n) else sum = sum + n end
  mark('loss', us(math.min(since, from)) .. ' ' .. us(math.max(last, at)) .. ' ' .. us(math.min(sum, 1e15)))
else
  redis.call('ZREM', KEYS.wake, '') -- the first write
  if word == 'lift' then
    -- from limits: throttledUntil
    local till = throttledUntil(throttled)
    if till > 0 then before = us(till) end
    redis.call('HDEL', KEYS.state, 'throttled')
  else
    before = override or ''
    if value ~= '' or limits then
      mark('override', value)
      if not limits then mark('limits', '') end
    end
  end
  local since, open = string.match(limited or '', '^(%d+) %d+ (%d+) %d+ [01]$')
  if since and (word == 'limits' or before ~= '') then -- what is put off may go now
    redis.call('ZADD', KEYS.wake, us(now), 'w')
    mark('limited', since .. ' ' .. us(whole(armed) or 0) .. ' ' .. open .. ' ' .. us(now) .. ' 0')
  end
end
remember(before)
return {us(now), before}
