-- send stores a batch of messages in pending. single stores most messages that are sent alone.
--
-- KEYS: pending, msg, key, wake, state, holds
-- ARGV: 3 how many shards the queue has, with '+' behind it if any message has a key; then runs of messages: delay us
--       ('': each envelope has its own due instant), how many messages, version of their envelopes, and for each message:
--       id, envelope (after a delay: only the part behind the due instant)
-- Returns {now, refused}: now of the call that stored them; refused is '' or a list '<i>=<id> ': message i (from 1) was not stored, the
--       message id has its key; '<i>=acked:<id> ': the message id was acked, and keeps the key.
-- Cost: O(log pending) for each message; 6 commands a batch, 8 if it sets the alarm; one or two more for each key, and one more for all
--       keys.
-- Keeps: invariants 1, 6 and 9 of internal/check. The first write is a ZADD on purpose: a full server must
--       refuse a send before anything is stored.

-- from time: now, us, whole
-- from call: field, again, guard, mark, remember
-- from message: SMALL, redue
local saved, armed, big, pause, total, shards =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'big', 'pause', 'in:stored', 'shards'), 1, 6)
local keyed = ARGV[3] == (shards or '1') .. '+'
if not keyed and ARGV[3] ~= (shards or '1') then
  -- from queue: othershards
  local n = string.match(ARGV[3], '%d+')
  keyed = n ~= ARGV[3]
  local other = othershards(shards, n)
  if other then return other end
end
total = whole(total)
guard(redis.call('HLEN', KEYS.msg))
local answer = again(saved)
if answer then return answer end

local adds, claims, ARGV = {}, {}, ARGV -- ARGV has from 7 on what goes to msg: id and envelope of each message stored
big = whole(big) or SMALL
local first, refused, longest = nil, '', big
local claim -- if any message has a key
if keyed then
  -- from message: keyof
  -- from keys: holderof, refusal
  local taken = {}
  -- claim(i, id, envelope) gives message i its key, if it has one; false: another message has that key.
  claim = function(i, id, envelope)
    local key, acked = keyof(envelope), nil
    if key == '' then return true end
    local holder = taken[key]
    if not holder then holder, acked = holderof(key) end
    if holder then
      refused = refused .. refusal(i, holder, acked)
      return false
    end
    taken[key] = id
    claims[#claims + 1] = key
    claims[#claims + 1] = id
    return true
  end
end
local run, n, stored = 4, 0, 0 -- where the run begins; messages seen; twice those stored
while ARGV[run] do
  local delay, last = tonumber(ARGV[run]), run + 1 + 2 * ARGV[run + 1]
  local due, text, head
  if delay then
    due = now + delay
    text = us(due)
    head = string.char(tonumber(ARGV[run + 2])) .. text
  end
  if delay and not claim and run == 4 and last > run + 1 then -- most batches are one such run: the envelopes stay where they are
    adds = {text, unpack(ARGV, 7, last)} -- due, id, envelope, id, envelope ... id: each envelope gives way to a due instant
    for i = 8, last + 1, 2 do
      local envelope = head .. ARGV[i]
      if #envelope > longest then longest = #envelope end
      adds[i - 7], ARGV[i] = text, envelope
    end
    stored, first = last - 5, due
  else
    for i = run + 3, last, 2 do
      local id, envelope = ARGV[i], ARGV[i + 1]
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
      if not claim or claim(n, id, envelope) then
        if #envelope > longest then longest = #envelope end
        if not first or due < first then first = due end
        adds[stored + 1], adds[stored + 2] = text, id
        ARGV[stored + 7], ARGV[stored + 8] = id, envelope
        stored = stored + 2
      end
    end
  end
  run = last + 2
end

if first then
  -- from alarm: gate, sooner, arm
  first = gate(first, pause)
  local wakes = sooner(first, armed)
  if wakes then guard(redis.call('ZCARD', KEYS.wake)) end
  redis.call('ZADD', KEYS.pending, unpack(adds))
  if not total then
    -- from books: openbooks
    openbooks()
  end
  mark('in:stored', us((total or 0) + redis.call('HSET', KEYS.msg, unpack(ARGV, 7, stored + 6))))
  if claims[1] then redis.call('HSET', KEYS.key, unpack(claims)) end
  if wakes then arm(first) end
end
if longest > big then mark('big', longest) end
remember(refused)
return {us(now), refused}
