-- Lanes. At most so many messages of a lane (its width) are handled at a time, in order of the instants at which they are due. A message with
-- a lane has field 136 in its envelope: the width in 3 digits, and the name. It lies in pending, or where a later delivery lies, only
-- while it has a place of its lane. Else it lies in waiting, due or not, with the instant as its score. All members of lanes have the score 0:
--   <lane> NUL NUL <tag> <blank> <width>           a place: who has it, by the tag that it had when it got the place
--   <lane> NUL <us, 16 digits><tag> <blank> <width>   a message in waiting
-- So one read gives the places of a lane and the message that is next. A place is kept until the message ends: also while it is retried.
-- Only a message that was not handed out since it got its place, and is due after the next one, gives it up.
-- from time: us, whole, scored
-- from message: fieldat
-- from record: split
-- from edit: noted

local WIDTH = 100 -- places at most

-- laneof(envelope) is the lane of a message, and its width; nil if it has none.
local function laneof(envelope)
  if string.byte(envelope, 1) ~= 2 then return nil end -- nearly all
  local i, size = fieldat(envelope, 136)
  local width = i and size > 3 and whole(string.sub(envelope, i, i + 2)) or 0
  local lane = i and string.sub(envelope, i + 3, i + size - 1)
  if width >= 1 and width <= WIDTH and not string.find(lane, '\0', 1, true) then return lane, width end
end

-- hasplace(lane, tag, width) and waits(lane, us, tag, width) are members of lanes.
local function hasplace(lane, tag, width) return lane .. '\0\0' .. tag .. string.format(' %03d', width) end
local function waits(lane, due, tag, width) return lane .. '\0' .. us(due) .. tag .. string.format(' %03d', width) end

-- inlane(lane, n) reads the first n members of a lane. It returns its places, and the message that is next, if it is among them.
local function inlane(lane, n)
  local places = {}
  for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS.lanes, '[' .. lane .. '\0', '(' .. lane .. '\1', 'LIMIT', 0, n)) do
    local text, width = string.sub(member, #lane + 2, -5), tonumber(string.sub(member, -3)) or 1
    if string.byte(text, 1) ~= 0 then
      return places, {tag = string.sub(text, 17), width = width, due = tonumber(string.sub(text, 1, 16)) or 0, member = member}
    end
    places[#places + 1] = {tag = string.sub(text, 2), width = width, member = member}
  end
  return places
end

-- moveto(tag, due) lays a message down where a delivery waits, and moveout(tag) takes it up from there.
local function moveto(tag, due)
  if (split(tag)) == 1 then redis.call('ZADD', KEYS.pending, us(due), tag) else redis.call('ZADD', KEYS.retry, us(due), tag) end
  noted.first = math.min(noted.first or due, due)
end
local function moveout(tag)
  if (split(tag)) == 1 then redis.call('ZREM', KEYS.pending, tag) else redis.call('ZREM', KEYS.retry, tag) end
end

-- yields(places, due) is the place of the message that is due last of those that were not handed out since they got theirs, and when, if that
-- is after due.
local function yields(places, due)
  local last, at, tags = nil, due, {}
  for i = 1, #places do tags[i] = places[i].tag end
  local firsts, others = redis.call('ZMSCORE', KEYS.pending, unpack(tags)), redis.call('ZMSCORE', KEYS.retry, unpack(tags))
  for i = 1, #places do
    local score = scored(firsts[i] or others[i])
    if score and score > at then last, at = i, score end
  end
  return last, at
end

-- fill(lane, places, next) gives places to those that are next.
local function fill(lane, places, next)
  while next do
    local most = next.width
    for i = 1, #places do most = math.min(most, places[i].width) end
    local full, i, at = #places >= most, nil, nil
    if full then i, at = yields(places, next.due) end
    if full and not i then return end
    if full then
      local other = table.remove(places, i)
      moveout(other.tag)
      redis.call('ZREM', KEYS.lanes, other.member)
      redis.call('ZADD', KEYS.lanes, 0, waits(lane, at, other.tag, other.width))
      redis.call('ZADD', KEYS.waiting, us(at), other.tag)
    else
      redis.call('ZREM', KEYS.lanes, next.member)
      redis.call('ZREM', KEYS.waiting, next.tag)
      next.member = hasplace(lane, next.tag, next.width)
      redis.call('ZADD', KEYS.lanes, 0, next.member)
      moveto(next.tag, next.due)
      places[#places + 1] = next
      if #places >= most then return end
      places, next = inlane(lane, WIDTH + 1)
    end
  end
end

-- enter(lane, width, tag, due) lays down a message that is due at an instant: it has a place, or waits.
local function enter(lane, width, tag, due)
  local places, next = inlane(lane, width + 1)
  if not places[1] and not next then
    redis.call('ZADD', KEYS.lanes, 0, hasplace(lane, tag, width))
    return moveto(tag, due)
  end
  local me = {tag = tag, width = width, due = due, member = waits(lane, due, tag, width)}
  redis.call('ZADD', KEYS.lanes, 0, me.member)
  redis.call('ZADD', KEYS.waiting, us(due), tag)
  if next and places[1] and (next.due < due or next.due == due and next.width >= width) then return end
  if next and next.due <= due or #places > width then
    places, me = inlane(lane, WIDTH + 1) -- who had the places may have been deleted, and at one instant an id goes first
  end
  fill(lane, places, me)
end

-- vacate(lane, width, id) frees the place of a message, if it has one.
local function vacate(lane, width, id)
  local places, next = inlane(lane, width + 1)
  if #places > width then places, next = inlane(lane, WIDTH + 1) end -- its width was another when it got its place
  for i = 1, #places do
    local _, holder = split(places[i].tag)
    if holder == id then
      redis.call('ZREM', KEYS.lanes, table.remove(places, i).member)
      return fill(lane, places, next)
    end
  end
end
