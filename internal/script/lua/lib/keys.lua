-- Message keys. A key is taken while a live message has it, and after an ack with a key hold until its score in holds.
-- A script that gives a key to a message, or takes it from one, asks here first.
-- from time: now, us

-- holdends(key) is when the hold of a key ends (WithKeyHold); nil if it has none. A score of more than 365 days ahead is
-- another program's.
local function holdends(key)
  local ends = math.floor(tonumber(redis.call('ZSCORE', KEYS.holds, key) or 0) or 0)
  if ends > now and ends <= now + 31536000000000 then return ends end
end

-- holderof(key) is the id of the live message that has a key, false, and the bytes of its envelope; or the id of the
-- acked message that keeps the key by a hold, and true; else false or nil. Any other id without an envelope is another
-- program's.
local function holderof(key)
  local holder = redis.call('HGET', KEYS.key, key)
  if not holder then return nil end
  local size = redis.call('HSTRLEN', KEYS.msg, holder)
  if size > 0 then return holder, false, size end
  if string.sub(holder, 1, 6) == 'acked:' and holdends(key) then return string.sub(holder, 7), true end
  return false
end

-- named(holder, acked) says which message has a key: '=<id>', or '=acked:<id>'. Another program may have written the
-- id.
local function named(holder, acked) return '=' .. (acked and 'acked:' or '') .. string.gsub(holder, '[^!-~]', '?') end

-- refusal(i, holder, acked) says that message i is not stored, because its key is taken.
local function refusal(i, holder, acked) return us(i) .. named(holder, acked) .. ' ' end

-- freekey(id, key, holds, unlist) frees the key of a message ('': it has none), unless another message has the key by
-- now. In that case the message may be a group that has left the key, so it is taken out of the list (unlist is
-- setleft, nil without groups). The hold of a key goes on if the message got the key during it, because the message follows
-- the acked one. holds says whether any key has a hold.
local function freekey(id, key, holds, unlist)
  if key == '' then return end
  if redis.call('HGET', KEYS.key, key) ~= id then
    if unlist then unlist(key, id) end
    return
  end
  if holds and holdends(key) then
    redis.call('HSET', KEYS.key, key, 'acked:' .. id)
  else
    redis.call('HDEL', KEYS.key, key)
  end
end

-- erase(id, key, holds, unlist) frees the key of a message, and deletes its envelope and its fail record.
local function erase(id, key, holds, unlist)
  freekey(id, key, holds, unlist)
  redis.call('HDEL', KEYS.msg, id)
  redis.call('HDEL', KEYS.fail, id)
end

-- lastof(name) is the last number of a sequence, in 20 digits of it and 2^63, which compare as texts. It is nil if the
-- sequence has none, or another program has written it.
local function lastof(name)
  local last = redis.call('HGET', KEYS.sequence, name)
  return last and #last == 20 and string.match(last, '^%d+$') and last <= '18446744073709551615' and last or nil
end
