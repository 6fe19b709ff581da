-- What the outcomes are that are no plain acks, and what they share: the table c.
-- from time: whole
-- from call: guard

-- scan(at, state, left, settled, lists) reads the keys that the outcomes from ARGV at on may touch, before the first
-- write. state has the fields of state, which say what there may be; the others are of settle/leases.lua. It returns c.
-- What only some outcomes need is not in it yet (settle/equip.lua).
local function scan(at, state, left, settled, lists)
  local fields = {ack = 4, done = 9, ready = 7, garbage = 9, retry = 8, throttle = 8, hold = 1, group = 1, counts = 1, countdown = 1, lane = 1}
  guard(redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.retry), redis.call('LLEN', KEYS.ready),
    redis.call('ZCARD', KEYS.garbage), redis.call('ZCARD', KEYS.wake))
  local firstHold, groups, changed, overtaken = unpack(state, 6, 9)
  local keeps, keyed, grown, sends, changes, counts = overtaken, firstHold, groups, nil, false, false
  while ARGV[at] do
    local word = ARGV[at]
    if fields[word] then
      keeps, keyed, counts = keeps or word == 'done', keyed or word == 'hold', counts or word == 'counts'
      grown = grown or word == 'group' or word == 'countdown'
      at = at + 1 + fields[word]
    else
      if not sends then
        -- from put: PUTS
        sends = PUTS
      end
      changes, grown = changes or word ~= 'refuse', grown or word == 'append'
      local head = ARGV[at + 1] ~= '' and 0 or 17 -- bytes before the length of the key
      keyed = keyed or string.sub(ARGV[at + 4], head + 1, head + 2) ~= '\0\0'
      at = at + 1 + sends[word]
    end
  end
  if sends or counts or KEYS.lanes then guard(redis.call('ZCARD', KEYS.pending)) end
  if KEYS.lanes then guard(redis.call('ZCARD', KEYS.lanes), redis.call('ZCARD', KEYS.waiting)) end
  if keeps or changes then guard(redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result)) end
  if keyed then guard(redis.call('ZCARD', KEYS.holds)) end
  if grown or counts then guard(redis.call('HLEN', KEYS.parts)) end
  return { -- of 16 fields at most in most calls, because more cost another table
    fields = fields, sends = sends, -- how many fields each word has, but those of sends; the same of sends, if anything follows an ack
    changes = changes, counts = counts, grown = grown, -- a send may change another message, an ack counts for one, parts may be touched
    left = left, settled = settled, lists = lists, -- of the leases
    changed = changed, overtaken = overtaken, holds = (whole(firstHold) or 0) > 0, -- of state, and whether any key has a hold
    nth = 0, acked = 0, void = '', ended = '', -- so many so far; so many acks count; as in the reply
    -- And if any did so, how many failed, are dead, were kept as done (ackedKept of these by acks), replaced
    -- (superseded), or unkept (superseded and deleted); garbageRoom and doneRoom, how many there may be, as the records
    -- say; holdEnds, the first end of a hold that begins; pause, us for which nothing is handed out.
  }
end
