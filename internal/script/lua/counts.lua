-- counts says how many messages are where, and how far behind the consumers are.
--
-- KEYS: pending, ready, lease, retry, garbage, msg, fail, state, done, waiting
-- Returns {now, pending, ready, unack, retry, garbage, done, oldest, next, pause, fields, layout, limits, override, since, open,
--       throttled, paused, waiting, waited, missing, loss, books}
--       pending to done: messages; whatever is due counts as ready, also in pending and retry
--       oldest: since when the oldest ready message has been due; next: when the next of the others is due; '0': none
--       pause: until when the queue is paused; throttled: until when a Throttle stops hand-outs; '0': not
--       fields: how many state has, at least 1 if the queue was ever used
--       layout, limits, override, paused: of state; '' if absent, layout '1'
--       since: since when a limit puts off what is ready; open: when the rate lets the next go; '0': none
--       waiting: messages behind others of their lanes; waited: when the message was due that has waited longest for its lane; '0': none that
--       is due waits
--       missing: how many messages are missing by the books (lib/books.lua), less than 0: how many are too many
--       loss: of state; '' if absent
--       books: since when they are kept; '0': not known
-- Cost: 18 to 27 commands of O(log n). Writes nothing.

-- from time: now, us, whole, scored
-- from record: split, failure
-- from limits: throttledUntil
-- from lease: howmanyheld
-- from books: BOOKS, difference
local due = redis.call('ZCOUNT', KEYS.pending, '-inf', us(now))
local again = redis.call('ZCOUNT', KEYS.retry, '-inf', us(now))
local oldest, next = 0, 0
local function soonest(a, b) return b and (a == 0 or b < a) and b or a end
local function score(head) return scored(head[2]) end
if due > 0 then oldest = soonest(oldest, score(redis.call('ZRANGE', KEYS.pending, 0, 0, 'WITHSCORES'))) end
if again > 0 then oldest = soonest(oldest, score(redis.call('ZRANGE', KEYS.retry, 0, 0, 'WITHSCORES'))) end
local head = redis.call('LINDEX', KEYS.ready, 0)
if head then -- the record of a released message says when it was released
  local _, id = split(head)
  local _, _, _, at = failure(redis.call('HGET', KEYS.fail, id))
  oldest = soonest(oldest, at)
end
next = soonest(next, score(redis.call('ZRANGE', KEYS.pending, due, due, 'WITHSCORES')))
next = soonest(next, score(redis.call('ZRANGE', KEYS.retry, again, again, 'WITHSCORES')))
local waited = score(redis.call('ZRANGE', KEYS.waiting, 0, 0, 'WITHSCORES'))
local pause, layout, limits, override, limited, throttled, paused, loss, books =
  unpack(redis.call('HMGET', KEYS.state, 'pause', 'layout', 'limits', 'override', 'limited', 'throttled', 'paused', 'loss', 'books'), 1, 9)
pause = whole(pause) or 0
if pause <= now then pause = 0 end
local unack = howmanyheld()
local since, open, full = string.match(limited or '', '^(%d+) %d+ (%d+) %d+ ([01])$')
since, open = whole(since) or 0, whole(open) or 0
-- What the last fetch wrote holds while a message waits for a place, and for a second after the rate lets the next go.
if oldest == 0 or since > now or open <= now - 1000000 and (full == '0' or unack == 0) then since, open = 0, 0 end
if open <= now then open = 0 end
return {
  us(now),
  redis.call('ZCARD', KEYS.pending) - due,
  redis.call('LLEN', KEYS.ready) + due + again,
  unack,
  redis.call('ZCARD', KEYS.retry) - again,
  redis.call('ZCARD', KEYS.garbage),
  redis.call('ZCOUNT', KEYS.done, '(' .. us(now), '+inf'), -- the time of the others is over
  us(oldest), us(next), us(pause),
  redis.call('HLEN', KEYS.state), layout or '1', limits or '', override or '', us(since), us(open), us(throttledUntil(throttled)),
  paused or '', redis.call('ZCARD', KEYS.waiting), us(waited and waited <= now and waited or 0),
  us(difference(redis.call('HMGET', KEYS.state, unpack(BOOKS)), redis.call('HLEN', KEYS.msg)) or 0),
  string.sub(loss or '', 1, 60),
  us(whole(books) or 0),
}
