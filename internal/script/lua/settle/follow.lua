-- The followers of the acks that count are stored, in the order in which the handlers named them.
-- takes: following, FOLLOWER, refused, first
-- from time: us, whole
-- from call: mark
-- from message: SMALL, complete
-- from keys: holderof, refusal

local big, sent = unpack(redis.call('HMGET', KEYS.state, 'big', 'sent'), 1, 2)
local longest, stored = math.max(whole(big) or 0, SMALL), 0
for _, at in ipairs(following) do
  local id, key, delay, version, envelope = unpack(ARGV, at[1], at[1] + FOLLOWER - 1)
  local holder, acked
  if key ~= '' then holder, acked = holderof(key) end
  if acked and holder == at[3] then holder = nil end -- the key is held for the message that it follows, and is held on after it (freekey)
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
