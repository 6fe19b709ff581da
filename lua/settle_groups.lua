-- Part of settle: what is done to groups.
-- include parts, dropparts, clear, left, setleft
unlist = setleft
group = {
  drop = dropparts,
  clear = clear,
  grown = function(id, n) return partsof(redis.call('HGET', KEYS.msg, id) or '') > n end, -- since it was handed out
}
