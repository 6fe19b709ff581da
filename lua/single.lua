-- single is send for one message of at most 2 KB without a key, which is what most processes send most of the
-- time. It does what send does for such a message, with the fewest commands, and leaves to send whatever is out of the ordinary.
--
-- KEYS: pending, msg, wake, state
-- ARGV: 1 caller, 2 number of the call (as in call.lua), 3 delay us ('': the envelope has its own due instant), 4 id,
--       5 envelope (after a delay: only the part behind its due instant)
-- Returns {now}, or {} if it did nothing: this call must be made by send.
-- Cost: 5 commands, 6 if it sets the alarm; O(log pending).
-- Keeps: invariants 1, 6 and 9 of PROTOCOL.md. The first write is a ZADD on purpose: a full server must refuse a send before anything is
--       stored. A key that somebody else has shows in the write that fails, which is then undone. Instants are written
--       by '%d' here, which takes a third of the time of us() and all servers of 64 bits do right.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local field = 'call:' .. ARGV[1]
local state = redis.call('HMGET', KEYS.state, field, 'armed', 'sent', 'pause')
local pause = tonumber(state[4])
if state[4] and not (pause and pause <= now) then return {} end -- one that is over stays there
local last = state[1] and tonumber(string.match(state[1], '^%d+'))
if last and last >= tonumber(ARGV[2]) then return {} end -- a repeat, or too late
local sent = tonumber(state[3] or 0) -- as tally.lua says
if not (sent and sent >= 0 and sent < 1e15 and sent % 1 == 0) then return {} end

local due, text, envelope
if ARGV[3] ~= '' then
  due = now + ARGV[3]
  text = string.format('%d', due)
  envelope = '\1' .. text .. ARGV[5]
else
  envelope = ARGV[5]
  text = string.sub(envelope, 2, 17)
  due = tonumber(text)
  if due < now then
    due, text = now, string.format('%d', now)
    envelope = '\1' .. text .. string.sub(envelope, 18)
  end
end
local armed = tonumber(state[2])
local wake = not (armed and armed > 0 and armed <= due)
redis.call('ZADD', KEYS.pending, text, ARGV[4])
local failed = redis.pcall('HSET', KEYS.msg, ARGV[4], envelope)
if wake and type(failed) == 'number' then failed = redis.pcall('ZADD', KEYS.wake, text, 'w') end
if type(failed) ~= 'number' then
  redis.call('ZREM', KEYS.pending, ARGV[4])
  redis.pcall('HDEL', KEYS.msg, ARGV[4])
  return failed
end
local at = string.format('%d', now)
local record = ARGV[2] .. ' ' .. at .. ' '
if wake then
  redis.call('HSET', KEYS.state, field, record, 'sent', string.format('%d', sent + 1), 'armed', text)
else
  redis.call('HSET', KEYS.state, field, record, 'sent', string.format('%d', sent + 1))
end
return {at}
