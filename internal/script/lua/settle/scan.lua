-- Keys that the records may touch are read, before the first write.
-- takes: plain, firstHold, groups, overtaken
-- gives: FIELDS, FOLLOWER, clearAll, unlist
-- from call: guard

local FIELDS, FOLLOWER -- how many fields the record of each word has, and each of its followers
local unlist, clearAll -- setleft and clear, if there are groups
if #ARGV > 3 + plain then
  FIELDS = {ack = 4, done = 8, ready = 6, garbage = 7, retry = 7, throttle = 7, hold = 1, group = 1, overrun = 1}
  FOLLOWER = 5
  guard(redis.call('HLEN', KEYS.key), redis.call('ZCARD', KEYS.retry), redis.call('LLEN', KEYS.ready),
    redis.call('ZCARD', KEYS.garbage), redis.call('ZCARD', KEYS.wake))
  local keeps, keyed, grown, i = overtaken, firstHold, groups, 4 + plain
  while ARGV[i] do
    local word = ARGV[i]
    local behind = i + 1 + FIELDS[word]
    if word == 'ack' or word == 'done' then
      keeps = keeps or word == 'done'
      if ARGV[i + 4] ~= '0' then
        for _ = 1, tonumber(ARGV[i + 4]) do
          keyed, behind = keyed or ARGV[behind + 1] ~= '', behind + FOLLOWER
        end
      end
    else
      keyed, grown = keyed or word == 'hold', grown or word == 'group'
    end
    i = behind
  end
  if keeps then guard(redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result)) end
  if keyed then guard(redis.call('ZCARD', KEYS.held)) end
  if grown then
    guard(redis.call('HLEN', KEYS.parts))
    -- from group: clear, setleft
    unlist, clearAll = setleft, clear
  end
end
