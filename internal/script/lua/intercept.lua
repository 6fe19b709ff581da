-- intercept takes out a message that is not done. It takes out one that is being handled only if ARGV 5 says so.
--
-- KEYS: pending, ready, unack, retry, garbage, msg, fail, key, wake, state, done, result, holds, parts, lanes,
--       waiting
-- ARGV: 3 'id' or 'key', 4 the id or the message key, 5 '1': also while it is being handled
--       A key may name several messages: the message that has it, then the groups that left it, the newest first (lib/group.lua). The
--       first that may be taken out is taken out. If none may be, the reply is about the first.
-- Returns {the state it was in, its id}: 'gone', 'pending', 'ready', 'unack' (it stays, unless ARGV 5 says so),
--       'retry', 'garbage' or 'done' (it stays); the id is '' if it is gone. A message in pending that is due counts as 'ready'.
-- Cost: O(log n), and O(ready) if it is there (2 ms in 50,000); it reads the envelope if any message has a key or
--       there are groups; O(parts); at most 8 commands for each group that left the key, up to the first that is taken out.
-- Keeps: invariants 1 and 6 of internal/check; reads every key first. A handler that runs notices when it renews its lease. Its place
--       is free at once.

-- from time: now, us, whole, scored
-- from call: field, STALE, recall, guard, mark, remember
-- from queue: missing
-- from message: keyof
-- from record: tagof
-- from place: locate, remove, takenOut
-- from keys: erase
-- from edit: noted
-- from leavelane: relanes
local out = ARGV[5] == '1' and 'out:canceled' or 'out:intercepted'
local saved, armed, pause, groups, limited, firstHold, canceledBefore, outBefore =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'pause', 'parts', 'limited', 'holds', 'canceled', out), 1, 8)
local reply = recall(saved)
if reply then
  local where, id = string.match(reply, '^(%a+) (.*)$')
  return {where or reply, id or ''}
elseif reply == false then
  return {err = STALE}
end
local refusal = missing(armed)
if refusal then return refusal end
guard(redis.call('ZCARD', KEYS.pending), redis.call('LLEN', KEYS.ready), redis.call('ZCARD', KEYS.unack),
  redis.call('ZCARD', KEYS.retry), redis.call('ZCARD', KEYS.garbage), redis.call('HLEN', KEYS.msg),
  redis.call('HLEN', KEYS.fail), redis.call('ZCARD', KEYS.done), redis.call('HLEN', KEYS.result), redis.call('ZCARD', KEYS.holds),
  redis.call('ZCARD', KEYS.wake))
local laned = redis.call('ZCARD', KEYS.lanes) + redis.call('ZCARD', KEYS.waiting) > 0
if groups then guard(redis.call('HLEN', KEYS.parts)) end
local keyed, bykey = redis.call('HLEN', KEYS.key) > 0, ARGV[3] == 'key'
local holds = (whole(firstHold) or 0) > 0 -- some key has a hold
local drop, nameof, unlist -- as in steer
local ids = {not bykey and ARGV[4] or redis.call('HGET', KEYS.key, ARGV[4]) or nil}
if groups then
  -- from group: dropall, leftkey, left, setleft
  drop, nameof, unlist = dropall, leftkey, setleft
  for _, id in ipairs(bykey and left(ARGV[4]) or {}) do ids[#ids + 1] = id end
end
redis.call('ZREM', KEYS.unack, '') -- the first write

-- take(id, reads) takes out a message, if that may be. It returns the state in which the message was, and whether it is taken out; nil
-- if the message is nowhere, or has another key than ARGV 4 (another program wrote that entry).
local function take(id, reads)
  local envelope = reads and redis.call('HGET', KEYS.msg, id)
  if redis.call('HEXISTS', KEYS.msg, id) == 0 then return nil end
  local tag = tagof(id, redis.call('HGET', KEYS.fail, id))
  local where, score = locate(tag, id)
  local may = where ~= 'done' and (where ~= 'unack' or ARGV[5] == '1')
  if may and not reads and (keyed or groups or laned) then envelope = redis.call('HGET', KEYS.msg, id) end
  local key = envelope and keyof(envelope) or ''
  if key == '' and envelope and nameof then key = nameof(envelope) end
  if bykey and envelope and key ~= ARGV[4] then return nil end
  if not where or not may then return where, false end
  remove(where, tag, id)
  if laned then relanes().outof(envelope, where, tag, id, score) end
  if drop then drop(id, envelope) end
  erase(id, key, holds, unlist)
  return where == 'pending' and scored(score) <= now and 'ready' or where, true
end

local where, id = 'gone', ''
for i = 1, #ids do
  local state, taken = take(ids[i], i == 1 and (keyed or groups))
  if state and (taken or where == 'gone') then where, id = state, ids[i] end
  if taken then
    mark(out, us((whole(outBefore) or 0) + 1))
    break
  end
end
if noted.first then
  -- from alarm: gate, sooner, arm
  local first = gate(noted.first, pause)
  if sooner(first, armed) then
    arm(first)
    armed = us(first)
  end
end
if takenOut > 0 then
  mark('canceled', us(math.max(now, (whole(canceledBefore) or 0) + 1)))
  -- from alarm: freed
  local putOff = limited and freed(limited, armed)
  if putOff then mark('limited', putOff) end
end
remember(where .. ' ' .. id)
return {where, id}
