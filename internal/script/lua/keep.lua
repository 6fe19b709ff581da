-- keep parts a lease whose count is more than its holder holds: a settlement was forgotten in a failover, or given up, or a message was
-- canceled; or shortens its list. What the holder holds stays. What else is held goes on as a lease of another name, which nobody renews.
--
-- KEYS: unack, lease, msg, fail, state
-- ARGV: 1 the name of the lease, then the tags that its holder holds
-- Returns {how many messages go on without the holder}
-- Cost: 7 commands, at most 2 for each tag of the list that the holder does not hold, and 5 if any of these is held. A call may come twice or late.
-- Keeps: invariants 1 and 3 of internal/check. The first write is a ZREM: a full server lets the rest pass.

-- from time: now, us, whole
-- from record: split
-- from lease: lend, lendrest, isheld
local name, mine, rest, own = ARGV[1], {}, {}, {}
for i = 2, #ARGV do own[ARGV[i]] = true end
local ends, list = redis.call('ZSCORE', KEYS.unack, name), redis.call('HGET', KEYS.lease, name)
local canceled = redis.call('HGET', KEYS.state, 'canceled')
redis.call('HLEN', KEYS.msg)
redis.call('HLEN', KEYS.fail)
redis.call('ZREM', KEYS.unack, '')
for tag in string.gmatch(ends and list or '', '%S+') do
  local n, id = split(tag)
  if own[tag] then
    mine[#mine + 1] = tag
  elseif isheld(id, n) then
    rest[#rest + 1] = tag
  end
end
if not mine[1] then return {0} end
lend(name, ends, mine)
if rest[1] then
  lendrest(name, ends, rest)
  redis.call('HSET', KEYS.state, 'canceled', us(math.max(now, (whole(canceled) or 0) + 1))) -- a late settlement may have these
end
return {#rest}
