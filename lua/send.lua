-- send stores a batch of messages in pending. What is sent alone goes by single, for the most part.
--
-- KEYS: pending, msg, key, wake, state, held
-- ARGV: 3 '1' if any message has a key; then runs of messages: delay us ('': each has its own
--       due instant), how many, version of their envelopes, and for each: id, envelope (what has a delay: only
--       the part behind its due instant)
-- Returns {now, refused}: now of the call that stored them; refused is '' or a list
--       '<i>=<id> ', message i (from 1) was not stored, its key is held by id; '<i>=acked:<id> ': that was acked, and keeps it.
-- Cost: O(log pending) per message; 6 commands a batch, 8 if it sets the alarm; one or two more for
--       each key, and one more for all of them.
-- Keeps: invariants 1, 6 and 9 of PROTOCOL.md. The first write is a ZADD on purpose: a full server must
--       refuse a send before anything is stored.

-- include head, call, envelope, store
local saved, armed, big, pause, sent =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'big', 'pause', 'sent'), 1, 5)
guard(redis.call('HLEN', KEYS.msg))
-- include repeated

local keyed = ARGV[3] == '1'
local adds, sets, claims, taken = {}, {}, {}, {}
big = whole(big) or SMALL
local first, refused, longest = nil, '', big
local run, n, stored = 4, 0, 0 -- where the run begins; messages seen; twice those stored
while ARGV[run] do
  local delay, last = tonumber(ARGV[run]), run + 1 + 2 * ARGV[run + 1]
  local due, text, head
  if delay then
    due = now + delay
    text = us(due)
    head = string.char(tonumber(ARGV[run + 2])) .. text
  end
  for i = run + 3, last, 2 do
    local id, envelope = ARGV[i], ARGV[i + 1]
    local key, holder, acked = '', false, false
    n = n + 1
    if delay then
      envelope = head .. envelope
    else
      text = string.sub(envelope, 2, 17)
      due = tonumber(text)
      if due < now then
        due, text = now, us(now)
        envelope = redue(envelope, text)
      end
    end
    if keyed then key = keyof(envelope) end
    if key ~= '' then
      holder = taken[key]
      if not holder then holder, acked = holderof(key) end
    end
    if holder then
      refused = refused .. refusal(n, holder, acked)
    else
      if key ~= '' then
        taken[key] = id
        claims[#claims + 1] = key
        claims[#claims + 1] = id
      end
      if #envelope > longest then longest = #envelope end
      if not first or due < first then first = due end
      adds[stored + 1], adds[stored + 2] = text, id
      sets[stored + 1], sets[stored + 2] = id, envelope
      stored = stored + 2
    end
  end
  run = last + 2
end

if first then
  -- include arm
  first = gate(first, pause)
  local wakes = sooner(first, armed)
  if wakes then guard(redis.call('ZCARD', KEYS.wake)) end
  redis.call('ZADD', KEYS.pending, unpack(adds))
  redis.call('HSET', KEYS.msg, unpack(sets))
  if claims[1] then redis.call('HSET', KEYS.key, unpack(claims)) end
  if wakes then arm(first) end
  mark('sent', us((whole(sent) or 0) + stored / 2))
end
if longest > big then mark('big', longest) end
remember(refused)
return {us(now), refused}
