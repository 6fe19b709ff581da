-- Part of settle: what follows the acks that count is stored, in the order in which their handlers named it.
-- include envelope, complete, store
local big, sent = unpack(redis.call('HMGET', KEYS.state, 'big', 'sent'), 1, 2)
local longest, stored = math.max(whole(big) or 0, SMALL), 0
for _, at in ipairs(following) do
  local _, _, id, key, delay, version, _, envelope = unpack(ARGV, at[1], at[1] + 7)
  local holder, acked
  if key ~= '' then holder, acked = holderof(key) end
  if acked and holder == at[3] then holder = nil end -- the one that it follows keeps the key taken, for it and after it (freekey)
  if holder then
    refused = refused .. refusal(at[2], holder, acked)
  else
    local due
    envelope, due = complete(tonumber(delay), version, envelope)
    redis.call('ZADD', KEYS.pending, us(due), id)
    redis.call('HSET', KEYS.msg, id, envelope)
    if key ~= '' then redis.call('HSET', KEYS.key, key, id) end
    stored, longest = stored + 1, math.max(longest, #envelope)
    if not first or due < first then first = due end
  end
end
if stored > 0 then mark('sent', us((whole(sent) or 0) + stored)) end
if longest > math.max(whole(big) or 0, SMALL) then mark('big', us(longest)) end
