-- fetch hands out up to `want` deliveries, and sets the alarm for the next instant. Each consumer calls it every few seconds at least. What is to be
-- done once for all consumers of a queue is left to tick.
--
-- KEYS: pending, ready, unack, lease, retry, garbage, msg, fail, wake, state, consumers, done, parts, waiting
-- ARGV: 1, 2: lib/call.lua; 3 a random number from 1 to 2^31-2, 4 want (0 to 500), 5 lease us, 6 losses in a row that make a message poison,
--       7 '1': set the alarm in any case, because a consumer that took the marker cannot serve it; '2': this consumer holds
--       nothing, waits for the marker, and called lately: go by the alarm if possible (fetch/read.lua),
--       8 '<tag> <instant>' of a message on its last chance, as a fetch has named it, which is handed out alone, because this consumer's
--          process handles nothing; '-': this consumer has such a name, and wants no other; '': none,
--       9 what this consumer says of itself, for ops.Queue.Consumers; '-': it leaves; '': nothing new,
--       10 bytes of messages that the reply may hold (a delivery that is alone in it may have more); '0': hand out nothing new, and
--       end the lease of the one large message of a lost reply,
--       11 the limits of the queue that this consumer asks for: '<n> <us> <burst> <places>', 0 for each that it does not; '': none,
--       12 how many messages are so many that the consumer reads the envelopes itself, if all come from pending, there are no groups, and
--       no limits; '0': any number is too few,
--       13 how many shards the queue has (none: 1).
--       The longest lease that any consumer asks for holds for all
-- Returns {envelopes, tags, now, next, tick, lost, dropped, first, leaseUS, limits, #fails, canceled, books, #missing, reserved, big,
--       fails, missing, parts, #envelopes}
--       envelopes: of each delivery that is handed out, or none, if the consumer is to read them; tags: with blanks between
--       next: the instant of the next work, not after now if more is due; '0': none
--       tick: 1 if this consumer is to call tick now, because a lease is over, or the last one was a second ago; 20 seconds if nothing
--             is in pending, ready, retry and unack, nothing was counted since then, and no end of a done message has come
--       lost: 1 if a message has not come through alone, and its lease ends (10); dropped: tags without an envelope
--       first: 1 if no consumer has called since state was there; leaseUS: ARGV 5 as it holds for all
--       limits: ARGV 11 as they hold for all, '1' if ops has set them, else '0', and how many more may go now (1,000 at most,
--       -1: a message that is due waits for a place); '' if there are none
--       canceled: of state (lib/lease.lua)
--       books: number and us of the call of this caller before this one, as far as the server knows ('0': none), and in:stored and
--       out:acked of state
--       fails: the fail record ('' for none) of each of the first given; the others come from pending and have none
--       missing: of each message with a countdown: which one, as in parts, and how many acks it waits for
--       reserved: '<tag> <instant>' of a message on its last chance, which is to be asked for alone (8); '': none
--       big: bytes of the longest envelope that was ever stored, or more
--       parts: of each group: which one, from 1, how many parts it has but the first, and these; 0 and none if any is missing
-- Cost: 11 commands if nothing is due, 6 of these fewer if it goes by the alarm, 1 more to set or take away the marker; O(log n) for each message, at most 500. More: 3 if the
--       consumer says something; 1 if there are groups or countdowns, and O(parts) and 1 for each that is handed out; 4 if the queue has
--       limits, 5 more with places, 2 more for each further 1,000 leases, 7 if all are taken and anything was canceled lately; 3 for each
--       page of expired messages (16, then twice as many each time); for a repeat 4, and 3 for each delivery.
-- Keeps: invariants 1 to 7 and 9 of internal/check. Reads first, then a ZREM as the first write: a full server lets
--       the rest pass. A repeat whose reply may hold less than the call's gives back what does not fit.

-- from time: now, us, whole
-- from call: mark, remember
-- from lease: lend
-- from grace: newgrace
-- from fetch/read: read
-- from fetch/again: again
-- from fetch/limit: limits
-- from fetch/choose: askedfor, choose
-- from fetch/handout: handpicked, handfirst
-- from fetch/spare: handspare
-- from fetch/alarm: setalarm

local c, answer = read()
if not c then return answer end
local stored, acked, delivered, started, late, latest, dropped, failed, told, done = unpack(c.state, 13, 22)
local books = (stored or '0') .. ' ' .. (acked or '0')
local live = c.pended or c.retried or c.ready[1] or c.leased
local counted = (told or '0 0') ~= books or (delivered or '0') ~= '0' or (failed or '0') ~= '0'
local busy = live or counted or done and done ~= '0' and (whole(done) or 0) <= now
local seen = whole(c.seen) or 0 -- the last call of any consumer
if seen > now then seen = 0 end
local cut = now - c.heard > c.leaseUS / 2 or c.leased and c.leased <= now and now - seen > c.leaseUS * 2 / 3
local grace = c.grace or ''
if cut or grace ~= '' then
  c.grace = newgrace(grace, c.leaseUS, cut)
  if c.grace ~= grace then mark('grace', c.grace) end
end
local picked, pending, fromReady = {}, {}, 0
if c.listed then picked = again(c) end
local limit, marker = nil, c.alarm or 0 -- nil: the queue has no limits and is not throttled; the instant for which the marker was set last
if c.limits or ARGV[11] ~= '' then limit, marker = limits(c) end

-- What is handed out, and counted.
c.given, c.out, c.fails, c.reserved = {}, {}, {}, '' -- tags; the reply, which begins with the envelopes of these; and their fail records
c.started, c.late, c.latest = 0, 0, 0 -- messages that are handed out for the first time, and how late they were, us: together, and the latest
c.spared, c.dropped = 0, 0 -- expired messages; tags without an envelope
if ARGV[8] ~= '' and ARGV[8] ~= '-' then
  if not c.repeated then picked[1], c.asked = askedfor(c, limit), true end
elseif c.want > 0 and not c.repeated and not c.byAlarm then
  picked, pending, fromReady = choose(c)
end
if picked[1] then handpicked(c, limit, picked, fromReady) end
if pending[1] then handfirst(c, limit, pending) end
if c.spared > 0 and not c.repeated and not limit.idle then handspare(c, limit) end
local given = #c.given
if given > 0 and not c.repeated then
  c.leaseEnd = now + c.leaseUS
  c.list = lend(ARGV[1] .. ':' .. ARGV[2], us(c.leaseEnd), c.given)
end
c.fromPending, c.fromRetry = pending[1] or c.spared > 0, picked[1] or c.spared > 0
local next, full = setalarm(c, limit, marker)

-- The counts since the last tick.
local function add(name, before, n) if n > 0 then mark(name, us((whole(before) or 0) + n)) end end
if not c.repeated and given > 0 then add('delivered', delivered, given) end
if c.started > 0 then
  local function ms(n) return math.floor(n / 1000 + 0.5) end
  add('started', started, c.started)
  add('late', late, ms(c.late))
  if ms(c.latest) > (whole(latest) or 0) then mark('latest', us(ms(c.latest))) end
end
if c.dropped > 0 then add('dropped', dropped, c.dropped) end

-- One random record of a consumer is looked at, and deleted if it is old or from the future. Without any consumer all expire in a month.
local anyone = c.anyone
if anyone and not anyone.err then
  local at, lease = string.match(anyone[2] or '', '^(%d+) (%d+) ')
  at, lease = whole(at), whole(lease)
  if anyone[1] and (not at or not lease or math.abs(now - at) > 2 * lease + 5000000) then redis.call('HDEL', KEYS.consumers, anyone[1]) end
  if ARGV[9] == '-' then
    redis.call('HDEL', KEYS.consumers, ARGV[1])
  else
    redis.call('HSET', KEYS.consumers, ARGV[1], us(now) .. ' ' .. ARGV[5] .. ' ' .. ARGV[9])
    redis.pcall('EXPIRE', KEYS.consumers, 2678400)
  end
end
remember(c.known)

-- The reply.
if #books > 40 then books = '' end -- another program's
local ticked = whole(c.ticked) or 0
local tick = c.over or not c.byAlarm and (ticked > now or now - ticked >= (busy and 1000000 or 20000000))
local out, fails, missing, parts = c.out, c.fails, c.missing, c.parts
local envelopes = #out
local numbers = {
  c.list, us(now), us(next), tick and 1 or 0, c.lost or 0, c.dropped, c.seen and 0 or 1, us(c.leaseUS),
  limit and not limit.idle and limit.text .. ' ' .. (full and '-1' or us(limit.left(c.repeated and 0 or given))) or '',
  #fails, us(whole(c.canceled) or 0), c.known .. ' ' .. books, #missing / 2, c.reserved, us(c.big),
}
for _, list in ipairs({numbers, fails, missing, parts}) do
  for i = 1, #list do out[#out + 1] = list[i] end
end
out[#out + 1] = envelopes
return out
