-- Leases. A lease is what one fetch handed out: a member of unack, whose score is its end. Its name is '<caller>:<call
-- number>' of that fetch. Two fields of the hash lease belong to it: '<name>' has the tags that were handed out, with
-- blanks between, which a settlement does not rewrite; '<name>#' counts those that the holder has not let go of yet. A
-- tag of the list is held if its message is in msg and has no later delivery. Other tags were settled, or their
-- messages were canceled. state.canceled is when a held message was canceled or deleted last, or a lease was parted
-- (keep.lua), so a holder knows whether it must look at each.
--
-- Its length is the queue's (state.lease). The holder renews it every third of that (extend). No tick takes it back
-- before its end, and a settlement counts also after that, if no tick came. It ends when its count is 0. An end of more
-- than a lease ahead is not believed: the clock was stepped back, and the next tick sets it to a lease from now.
-- from time: whole
-- from record: delivery

-- lend(name, ends, tags) gives deliveries a lease, and returns its list.
local function lend(name, ends, tags)
  local list = table.concat(tags, ' ')
  redis.call('ZADD', KEYS.unack, ends, name)
  redis.call('HSET', KEYS.lease, name, list, name .. '#', #tags)
  return list
end

-- lendrest(name, ends, tags) gives what is left of a lease to one of another name, which its holder does not know.
local function lendrest(name, ends, tags)
  name = string.gsub(name, '~+$', '')
  repeat name = name .. '~' until redis.call('HEXISTS', KEYS.lease, name) == 0
  lend(name, ends, tags)
end

-- isheld(id, n) says whether the nth delivery of a message, which some lease lists, is held.
local function isheld(id, n)
  return redis.call('HEXISTS', KEYS.msg, id) == 1 and tonumber(delivery(redis.call('HGET', KEYS.fail, id))) <= n
end

-- leaseof(tag) is the end of the lease that lists a tag; nil if none does; '0' if more than 5,000 leases or 4 MB would
-- have to be read.
local function leaseof(tag)
  local leases, bytes = redis.call('ZRANGE', KEYS.unack, 0, 5000, 'WITHSCORES'), 0
  for i = 1, #leases, 2 do
    if i > 10000 or bytes > 4194304 then return '0' end
    local tags = redis.call('HGET', KEYS.lease, leases[i]) or ''
    if string.find(' ' .. tags .. ' ', ' ' .. tag .. ' ', 1, true) then return leases[i + 1] end
    bytes = bytes + #tags
  end
end

-- howmanyheld() is how many messages are held: those that are in no other structure.
local function howmanyheld()
  if redis.call('HLEN', KEYS.lease) == 0 then return 0 end
  local held = redis.call('HLEN', KEYS.msg) - redis.call('ZCARD', KEYS.pending) - redis.call('LLEN', KEYS.ready)
    - redis.call('ZCARD', KEYS.retry) - redis.call('ZCARD', KEYS.garbage) - redis.call('ZCARD', KEYS.done)
    - redis.call('ZCARD', KEYS.waiting)
  return math.max(held, 0)
end

-- howmanylent(most) is how many deliveries are held by the counts of leases, which count what was canceled until its
-- holder has noticed, two leases at most. What another program has put into msg or retry does not matter to it. It
-- reads no more than 2 * most leases.
local function howmanylent(most)
  local lent = 0
  for i = 0, 2 * most - 1, 1000 do
    local names = redis.call('ZRANGE', KEYS.unack, i, math.min(i + 999, 2 * most - 1))
    if not names[1] then break end
    for j = 1, #names do names[j] = names[j] .. '#' end
    for _, left in ipairs(redis.call('HMGET', KEYS.lease, unpack(names))) do lent = lent + (whole(left) or 0) end
  end
  return lent
end
