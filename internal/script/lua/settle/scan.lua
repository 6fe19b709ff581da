-- Keys that the records may touch are read, before the first write.
-- takes: plain, before, firstHold, groups, overtaken
-- gives: FIELDS, follows, clearAll, unlist
-- from call: guard
-- from message: keyof

local FIELDS -- how many fields each word has
local follows = false -- something is to be sent
local unlist, clearAll -- setleft and clear, if there are groups
if #ARGV > before + plain then
  -- from put: PUTS
  FIELDS = {ack = 4, done = 8, ready = 7, garbage = 8, retry = 8, throttle = 8, hold = 1, group = 1, overrun = 1, counts = 1, countdown = 1}
  for word, fields in pairs(PUTS) do FIELDS[word] = fields end
  guard(redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.retry), redis.call('LLEN', KEYS.ready),
    redis.call('ZCARD', KEYS.garbage), redis.call('ZCARD', KEYS.wake))
  local keeps, keyed, grown, counts, i = overtaken, firstHold, groups, false, before + plain + 1
  while ARGV[i] do
    local word = ARGV[i]
    keeps, keyed, counts = keeps or word == 'done', keyed or word == 'hold', counts or word == 'counts'
    if PUTS[word] and not (follows and keyed) then
      follows, keyed = true, keyed or keyof(ARGV[i + 4], ARGV[i + 1] ~= '' and 0 or nil) ~= ''
    end
    grown = grown or word == 'group' or word == 'append' or word == 'countdown'
    i = i + 1 + FIELDS[word]
  end
  if follows or counts then guard(redis.call('ZCARD', KEYS.pending)) end
  if keeps or follows and keyed then guard(redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result)) end
  if keyed then guard(redis.call('ZCARD', KEYS.held)) end
  if grown or counts then guard(redis.call('HLEN', KEYS.parts)) end
  if grown then
    -- from group: clear, setleft
    unlist, clearAll = setleft, clear
  end
end
