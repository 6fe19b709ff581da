-- Keys that the records may touch are read, before the first write.
-- takes: plain, before, firstHold, groups, overtaken
-- gives: FIELDS, FOLLOWER, clearAll, unlist
-- from call: guard

local FIELDS, FOLLOWER -- how many fields the record of each word has, and each of its followers
local unlist, clearAll -- setleft and clear, if there are groups
if #ARGV > before + plain then
  FIELDS = {ack = 5, done = 9, ready = 7, garbage = 8, retry = 8, throttle = 8, hold = 1, group = 1, overrun = 1}
  FOLLOWER = 5
  guard(redis.call('HLEN', KEYS.fail), redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.retry), redis.call('LLEN', KEYS.ready),
    redis.call('ZCARD', KEYS.garbage), redis.call('ZCARD', KEYS.wake))
  local follows = false
  local keeps, keyed, grown, i = overtaken, firstHold, groups, before + plain + 1
  while ARGV[i] do
    local word = ARGV[i]
    local behind = i + 1 + FIELDS[word]
    if word == 'ack' or word == 'done' then
      keeps = keeps or word == 'done'
      if ARGV[i + 5] ~= '0' then
        follows = true
        for _ = 1, tonumber(ARGV[i + 5]) do
          keyed, behind = keyed or ARGV[behind + 1] ~= '', behind + FOLLOWER
        end
      end
    else
      keyed, grown = keyed or word == 'hold', grown or word == 'group'
    end
    i = behind
  end
  if follows then guard(redis.call('ZCARD', KEYS.pending)) end
  if keeps then guard(redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result)) end
  if keyed then guard(redis.call('ZCARD', KEYS.held)) end
  if grown then
    guard(redis.call('HLEN', KEYS.parts))
    -- from group: clear, setleft
    unlist, clearAll = setleft, clear
  end
end
