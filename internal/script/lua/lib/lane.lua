-- Lanes. A message with a lane has field 136 in its envelope: a width in 3 digits, and the name of the lane. It may be
-- handled if it has a turn. A lane has as many turns as its width says, for those of its messages that are due first.
-- Without a turn a message lies in waiting, due or not. With a turn it lies in pending, or where its later deliveries
-- lie. All members of lanes have the score 0:
--   <lane> NUL NUL <width, 3 digits><tag>                              a turn, by the tag that its message had when it got the turn
--   <lane> NUL <us, 16 digits><id> <blank> <delivery> <blank> <width>  a message in waiting
-- So the first turn of a lane has its smallest width, and the first of those that wait is next: by its due instant,
-- then by its id. A turn lasts until the message ends, over all its retries, or Again or steer makes it due later. A
-- message that is not due, and was not handed out since it got its turn, loses it to one before it that enters.
-- from time: whole
-- from message: fieldat

local WIDTH = 100 -- most turns
local NAME = 200 -- most bytes of a name

-- laneof(envelope) is the lane of a message, and its width; nil if it has none.
local function laneof(envelope)
  if string.byte(envelope, 1) ~= 2 then return nil end -- nearly all
  local i, size = fieldat(envelope, 136)
  local width = i and size > 3 and size <= 3 + NAME and whole(string.sub(envelope, i, i + 2)) or 0
  local lane = i and string.sub(envelope, i + 3, i + size - 1)
  if width >= 1 and width <= WIDTH and not string.find(lane, '\0', 1, true) then return lane, width end
end

-- readlane(lane, member) is what a member of lanes says; nil of nil.
local function readlane(lane, member)
  local text = member and string.sub(member, #lane + 2)
  if not text then return nil end
  if string.byte(text, 1) == 0 then
    return {turn = true, width = math.max(whole(string.sub(text, 2, 4)) or 1, 1), tag = string.sub(text, 5), member = member}
  end
  local id, n, width = string.match(text, '^(.*) (%d+) (%d%d%d)$', 17)
  if not id then id, n = '', '1' end -- another program wrote it
  local due = whole(string.sub(text, 1, 16)) or 0
  return {due = due, id = id, tag = n == '1' and id or n .. ':' .. id, width = math.max(whole(width) or 1, 1), member = member}
end

-- inlane(lane) is how many turns a lane has, the smallest of their widths, and the message that is next.
local function inlane(lane)
  local all, waits, to = '[' .. lane .. '\0', '[' .. lane .. '\0\1', '(' .. lane .. '\1'
  local found = redis.call('ZRANGEBYLEX', KEYS.lanes, all, to, 'LIMIT', 0, 2)
  local first, second = readlane(lane, found[1]), readlane(lane, found[2])
  if not first or not first.turn then return 0, WIDTH, first end
  if not second or not second.turn then return 1, first.width, second end
  found = redis.call('ZRANGEBYLEX', KEYS.lanes, waits, to, 'LIMIT', 0, 1)
  return redis.call('ZLEXCOUNT', KEYS.lanes, all, '(' .. lane .. '\0\1'), first.width, readlane(lane, found[1])
end

-- turnsof(lane, most) reads the turns of a lane, or so many of them.
local function turnsof(lane, most)
  local turns = redis.call('ZRANGEBYLEX', KEYS.lanes, '[' .. lane .. '\0', '(' .. lane .. '\0\1', 'LIMIT', 0, most or 2 * WIDTH)
  for i = 1, #turns do turns[i] = readlane(lane, turns[i]) end
  return turns
end
