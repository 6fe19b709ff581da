-- Keys that the records may touch are read, before the first write.
-- takes: plain, before, firstHold, groups, overtaken
-- gives: FIELDS, follows, changes, counts, clearAll, unlist
-- from call: guard

local FIELDS -- how many fields each word has, but those of sends
local follows, changes, counts -- PUTS, if anything follows an ack; a send may change another message; an ack counts
local unlist, clearAll -- setleft and clear, if there are groups
if #ARGV > before + plain then
  FIELDS = {ack = 4, done = 9, ready = 7, garbage = 9, retry = 8, throttle = 8, hold = 1, group = 1, counts = 1, countdown = 1, lane = 1}
  guard(redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.retry), redis.call('LLEN', KEYS.ready),
    redis.call('ZCARD', KEYS.garbage), redis.call('ZCARD', KEYS.wake))
  local keeps, keyed, grown, i = overtaken, firstHold, groups, before + plain + 1
  while ARGV[i] do
    local word = ARGV[i]
    if FIELDS[word] then
      keeps, keyed, counts = keeps or word == 'done', keyed or word == 'hold', counts or word == 'counts'
      grown = grown or word == 'group' or word == 'countdown'
      i = i + 1 + FIELDS[word]
    else
      if not follows then
        -- from put: PUTS
        follows = PUTS
      end
      changes, grown = changes or word ~= 'refuse', grown or word == 'append'
      local head = ARGV[i + 1] ~= '' and 0 or 17 -- bytes before the length of the key
      keyed = keyed or string.sub(ARGV[i + 4], head + 1, head + 2) ~= '\0\0'
      i = i + 1 + follows[word]
    end
  end
  if follows or counts or KEYS.lanes then guard(redis.call('ZCARD', KEYS.pending)) end
  if KEYS.lanes then guard(redis.call('ZCARD', KEYS.lanes), redis.call('ZCARD', KEYS.waiting)) end
  if keeps or changes then guard(redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result)) end
  if keyed then guard(redis.call('ZCARD', KEYS.held)) end
  if grown or counts then guard(redis.call('HLEN', KEYS.parts)) end
  if grown then
    -- from group: clear, setleft
    unlist, clearAll = setleft, clear
  end
end
