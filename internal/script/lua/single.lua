-- single does what send does, with the fewest commands, for one message of at most 2 KB without a key, in version 1. Most sends are of
-- that kind. It leaves everything unusual to send, also a repeat.
--
-- KEYS: pending, msg, wake, state
-- ARGV: 1 caller, 2 number of the call (as in lib/call.lua), 3 delay us ('': the envelope has its own due instant), 4 id,
--       5 envelope (after a delay: only the part behind its due instant), 6 how many shards the queue has (none: 1)
-- Returns now, unix us, or 0 if it did nothing: send must be called with the same number.
-- Cost: 5 commands, 6 if it sets the alarm; O(log pending).
-- Keeps: invariants 1, 6 and 9 of internal/check. The first write is a ZADD on purpose: a full server must refuse a send
--       before anything is stored. If a key belongs to another program, a write fails, and those before it are undone.
--       Instants are written by '%d', as by us(), which would be one function more to make.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local field = 'call:' .. ARGV[1]
local state = redis.call('HMGET', KEYS.state, field, 'armed', 'in:stored', 'pause', 'shards')
if (state[5] or '1') ~= (ARGV[6] or '1') then return 0 end
if state[4] then
  local pause = tonumber(state[4])
  if not (pause and pause <= now) then return 0 end -- the field stays after the end of a pause
end
-- The record of the caller's last call is its number, a blank, 16 digits, a blank, and what was refused. If anything was refused, no
-- number is left here.
local last = state[1] and tonumber(string.sub(state[1], 1, -19))
if state[1] and not (last and last < tonumber(ARGV[2])) then return 0 end -- a repeat, or too late
local stored = tonumber(state[3] or '') -- of state, as lib/books.lua says; without it send opens the books
if not (stored and stored >= 0 and stored < 1e15 and stored % 1 == 0) then return 0 end

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
    text = string.format('%d', now)
    envelope = string.sub(envelope, 1, 1) .. text .. string.sub(envelope, 18)
  end
end
local armed = state[2] -- as text: instants have 16 digits, and it takes a tenth of the time to compare them so
local wake = not (armed and #armed == 16 and armed > '1' and armed <= text)
redis.call('ZADD', KEYS.pending, text, ARGV[4])
local new = redis.pcall('HSET', KEYS.msg, ARGV[4], envelope)
local failed = new
if wake and type(failed) == 'number' then failed = redis.pcall('ZADD', KEYS.wake, text, 'w') end
if type(failed) ~= 'number' then
  redis.call('ZREM', KEYS.pending, ARGV[4])
  redis.pcall('HDEL', KEYS.msg, ARGV[4])
  return failed
end
local record = string.format('%s %016d ', ARGV[2], now)
local count = string.format('%d', stored + new)
if wake then
  redis.call('HSET', KEYS.state, field, record, 'in:stored', count, 'armed', text)
else
  redis.call('HSET', KEYS.state, field, record, 'in:stored', count)
end
return now
