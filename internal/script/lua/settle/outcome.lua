-- An outcome begins: is its delivery held, and was it superseded?
-- takes: known, left, settled, lists, overtaken, changes, isvoid, ended, replaced, outcomes
-- gives: finishes, holds, begin, errorsOf
-- from time: us
-- from record: split, failure
-- from lease: isheld
-- from edit: noted

local isOver, finishes -- superseded and finish, if any delivery may be superseded
if overtaken or changes then
  -- from record: superseded, finish
  isOver, finishes = superseded, finish
end

-- holds(lease, tag, id) says whether a delivery is held under the lease of that number, and counts it if so.
local function holds(lease, tag, id)
  local there = left[lease] and (known or lists(lease, tag)) and isheld(id, (split(tag)))
  if there then settled[lease] = settled[lease] + 1 end
  return there
end

-- begin(there, tag, id) numbers an outcome. It returns whether the outcome counts, and whether the delivery was superseded.
local function begin(there, tag, id)
  outcomes = outcomes + 1
  if not there then isvoid(outcomes) return false end
  if not ((overtaken or noted.overtaken) and isOver(redis.call('HGET', KEYS.fail, id))) then return true, false end
  replaced, ended = replaced + 1, ended .. us(outcomes) .. ' '
  return true, true
end

-- errorsOf(id, number) are the errors of the record before; '' of a first delivery, which has no record.
local function errorsOf(id, number)
  local _, _, errors = failure(number ~= '2' and redis.call('HGET', KEYS.fail, id))
  return errors
end
