-- put stores messages one after the other, each if that which its sender asks for holds: send is for all others.
--
-- KEYS: pending, msg, key, wake, state, sequence
-- ARGV: 3 and on, for each message: delay us ('': the envelope has its own due instant), version of the envelope, id,
--       envelope (after a delay: only the part behind its due instant), name of its sequence ('': none), its number in
--       that, 20 digits of it and 2^63
-- Returns {now, an answer for each, with blanks between}: '+<due>' stored, due then; '=<id>' not stored, its key is held by
--       id; '#<digits>' not stored, the last number of the sequence is that.
-- Cost: 9 commands, 1 more to set the alarm; at most 6 of O(log pending) for each message, at most 100 of them.
-- Keeps: invariants 1, 6, 9 and 12 of PROTOCOL.md. The first write is a ZADD on purpose: a full server must refuse a send
--       before anything is stored. What a message finds is what those before it have written.

-- include head, call, envelope, arm
local EACH = 6 -- ARGV of a message
local saved, armed, big, pause, sent =
  unpack(redis.call('HMGET', KEYS.state, field, 'armed', 'big', 'pause', 'sent'), 1, 5)
guard(redis.call('ZCARD', KEYS.pending), redis.call('HLEN', KEYS.msg), redis.call('HLEN', KEYS.key),
  redis.call('ZCARD', KEYS.wake), redis.call('HLEN', KEYS.sequence))
local reply, at = recall(saved)
if reply then
  -- Written once more, so that a WAIT on this connection waits for it.
  redis.call('ZREM', KEYS.pending, '')
  redis.call('HSET', KEYS.state, field, saved)
  return {at, reply}
elseif reply == false then
  return STALE
end
redis.call('ZADD', KEYS.pending, 'XX', 0, '') -- changes nothing

local longest, first, stored = math.max(whole(big) or 0, 2048), nil, 0 -- what is not longer is not noted in big

-- dueof(delay, version, envelope) is when a message is due, that as text, and its whole envelope.
local function dueof(delay, version, envelope)
  if delay then
    local text = us(now + delay)
    return now + delay, text, string.char(tonumber(version)) .. text .. envelope
  end
  local text = string.sub(envelope, 2, 17)
  local due = tonumber(text)
  if due >= now then return due, text, envelope end
  return now, us(now), redue(envelope, us(now))
end

-- lastof(name) is the last number of a sequence, as 20 digits; nil if it has none.
local function lastof(name)
  local last = name ~= '' and redis.call('HGET', KEYS.sequence, name)
  return last and #last == 20 and string.match(last, '^%d+$') and last <= '18446744073709551615' and last or nil
end

-- put stores a message, if it may be, and returns the answer.
local function put(delay, version, id, envelope, name, number)
  local last = lastof(name)
  if last and last >= number then return '#' .. last end
  local due, text, all = dueof(tonumber(delay), version, envelope)
  local key = keyof(all)
  if key ~= '' then
    local holder = redis.call('HGET', KEYS.key, key)
    -- A holder without an envelope is what somebody else left behind.
    if holder and redis.call('HEXISTS', KEYS.msg, holder) == 1 then return '=' .. string.gsub(holder, '[^!-~]', '?') end
    redis.call('HSET', KEYS.key, key, id)
  end
  redis.call('ZADD', KEYS.pending, text, id)
  redis.call('HSET', KEYS.msg, id, all)
  if name ~= '' then redis.call('HSET', KEYS.sequence, name, number) end
  longest = math.max(longest, #all)
  first = math.min(first or due, due)
  stored = stored + 1
  return '+' .. text
end

local answers = {}
for i = 3, #ARGV, EACH do answers[#answers + 1] = put(unpack(ARGV, i, i + EACH - 1)) end
answers = table.concat(answers, ' ')
if first then
  first = gate(first, pause)
  if sooner(first, armed) then arm(first) end
  mark('sent', us((whole(sent) or 0) + stored))
end
if longest > math.max(whole(big) or 0, 2048) then mark('big', us(longest)) end
remember(answers)
return {us(now), answers}
