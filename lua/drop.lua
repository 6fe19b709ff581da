-- drop deletes a queue. It does it again if it is sent again, so its caller does not repeat it.
--
-- KEYS: 1 pending, 2 ready, 3 unack, 4 retry, 5 garbage, 6 msg, 7 fail, 8 key, 9 wake, 10 state, 11 consumers, 12 history
-- ARGV: 1 '1': although consumers are alive
-- Returns {how many consumers are alive}: if there are any, nothing was deleted, unless ARGV 1 says so.
-- Cost: O(consumers); memory is freed in the background.
local alive, said = 0, redis.call('HVALS', KEYS[11])
for i = 1, #said do
  local heard, lease = string.match(said[i], '^(%d+) (%d+) ')
  if heard and now - heard <= math.max(lease, 3000000) then alive = alive + 1 end
end
if alive > 0 and ARGV[1] ~= '1' then return {alive} end
redis.call('UNLINK', KEYS[1])
redis.call('UNLINK', KEYS[2])
redis.call('UNLINK', KEYS[3])
redis.call('UNLINK', KEYS[4])
redis.call('UNLINK', KEYS[5])
redis.call('UNLINK', KEYS[6])
redis.call('UNLINK', KEYS[7])
redis.call('UNLINK', KEYS[8])
redis.call('UNLINK', KEYS[9])
redis.call('UNLINK', KEYS[10])
redis.call('UNLINK', KEYS[11])
redis.call('UNLINK', KEYS[12])
return {alive}
