-- lanes reads a page of the lanes, in the order of their names, or one lane with all its turns.
--
-- KEYS: pending, ready, retry, garbage, msg, fail, done, lanes, waiting
-- ARGV: 1 name of a lane, '' for a page; 2 of a page the lane behind which it begins, '' for the first; of one lane the due us and the id
--       of a message that waits, '' for none; 3 how many lanes (1 to 100)
-- Returns {now, last, then for each lane: name, width, turns, waits, due, n, and for each of the first n turns: id, state, at, record}
--       last: the lane behind which the next page begins, '' if this page is the last
--       width: the smallest of the messages that have a turn, and of the next
--       turns: how many messages have one; waits: how many wait, before that message only if there is one; due: when the first of these is due, '0' if none waits
--       n: on a page 1 at most, of one lane all; fewer if the search in ready would take too long
--       state, at: where the message is, and since when it is due, or when it will be ('pending' and 'retry': not yet; 'ready'), '0' if it is
--       being handled ('unack') or was released; 'gone': another program deleted it, and a fetch will end the turn
--       record: the fail record; '' if there is none. Without lanes after last, and if the lane is not there, nothing follows
-- Cost: at most 14 commands of O(log n) for each lane, and 8 more for each further turn; 1,000,000 entries of ready. Writes nothing.

-- from time: now, us, scored
-- from record: split, tagof
-- from place: locate
-- from lane: WIDTH, inlane, turnsof
local only, from, want = ARGV[1], ARGV[2], tonumber(ARGV[3])
local out = {us(now), ''}
local searches = math.floor(1000000 / math.max(redis.call('LLEN', KEYS.ready), 1)) -- in ready

-- turn(tag) adds what is known of a message that has a turn. It returns false if nothing is added, because ready is too long.
local function turn(tag)
  local _, id = split(tag)
  local record = redis.call('HGET', KEYS.fail, id) or ''
  tag = tagof(id, record)
  if tag ~= id then searches = searches - 1 end
  if searches < 0 then return false end
  local state, at = 'gone', '0'
  if redis.call('HEXISTS', KEYS.msg, id) == 1 then state, at = locate(tag, id) end
  at = at ~= '' and scored(at) or 0
  if (state == 'pending' or state == 'retry') and at <= now then state = 'ready' end
  out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = id, state or 'gone', us(at), record
  return true
end

-- add(lane, most) adds a lane, with at most so many of its turns.
local function add(lane, most)
  local n, least, next = inlane(lane)
  if n == 0 and not next then return end
  local turns = turnsof(lane, most)
  local width = math.min(least, next and next.width or WIDTH)
  local to = only ~= '' and from ~= '' and '(' .. lane .. '\0' .. from or '(' .. lane .. '\1'
  local all = redis.call('ZLEXCOUNT', KEYS.lanes, '[' .. lane .. '\0', to)
  local at = #out
  out[at + 1], out[at + 2], out[at + 3], out[at + 4], out[at + 5] = lane, width, n, all - n, us(next and next.due or 0)
  out[at + 6] = 0
  for i = 1, #turns do
    if turn(turns[i].tag) then out[at + 6] = i else return end
  end
end

if only ~= '' then
  add(only, WIDTH)
  return out
end
local min = from == '' and '-' or '(' .. from .. '\1'
for _ = 1, want do
  local member = redis.call('ZRANGEBYLEX', KEYS.lanes, min, '+', 'LIMIT', 0, 1)[1]
  if not member then
    out[2] = ''
    break
  end
  local lane = string.sub(member, 1, (string.find(member, '\0', 1, true) or 0) - 1)
  if lane ~= '' then -- else another program wrote it
    add(lane, 1)
    out[2] = lane
  end
  min = '(' .. lane .. '\1'
end
return out
