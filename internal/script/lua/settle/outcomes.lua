-- Outcomes that are no plain acks. c is what they share (settle/scan.lua).
-- from time: us

-- outcomes(c, i, state) settles the outcomes from ARGV i on in their order, until there is no room to read what the
-- next one changes, and notes what they have done. state has the fields of state. It returns answers, stopped, overflow
-- and doneOverflow of the reply, the first instant at which any message is due that was not, and whether a message that
-- is due got a turn.
local function outcomes(c, i, state)
  -- from settle/ends: ack, fail
  -- from edit: noted, LOOKS
  -- from settle/note: note
  redis.call('ZREM', KEYS.unack, '') -- the first write, if there were no plain acks
  if KEYS.lanes or c.sends or c.counts or c.overtaken or c.grown then
    -- from settle/equip: equip
    equip(c)
  end
  local answers, stopped, sends, acks = '', '0', 0, 0 -- as in the reply; so many sends so far; the countdown of the next
  local own, counted = nil, false -- of the last ack: its message, if it is not void, and whether it may count for another
  local hold, parts, lane -- of the next outcome, if they were said
  while ARGV[i] do
    local word = ARGV[i]
    local behind = i + 1 + (c.fields[word] or c.sends[word])
    if word == 'hold' then
      hold = tonumber(ARGV[i + 1])
    elseif word == 'group' then
      parts = tonumber(ARGV[i + 1])
    elseif word == 'lane' then
      lane = ARGV[i + 1]
    elseif word == 'countdown' then
      acks = tonumber(ARGV[i + 1])
    elseif word == 'counts' then
      if counted then c.count(ARGV[i + 1]) end
    elseif not c.fields[word] then
      local answer = own and c.act(own, acks, unpack(ARGV, i, behind - 1)) or '+'
      sends, acks = sends + 1, 0
      if answer ~= '+' then answers = answers .. us(sends) .. answer .. ' ' end
    elseif noted.looked >= LOOKS then
      stopped = us(c.nth + 1)
      break
    else
      if word == 'ack' or word == 'done' then
        local fitting, never = true, false
        if c.changes or noted.spent > 0 then fitting, never = c.fits(c, behind) end
        if never or not fitting then
          stopped = us(c.nth + 1) .. (never and '!' or '')
          break
        end
        local valid, past = ack(c, hold, parts, lane, word, unpack(ARGV, i + 1, behind - 1))
        own, counted = valid and ARGV[i + 3], valid and not past
      else
        fail(c, lane, word, unpack(ARGV, i + 1, behind - 1))
      end
      hold, parts, lane = nil, nil, nil
    end
    i = behind
  end
  local overflow, doneOverflow = note(c, unpack(state, 6, 13))
  return answers, stopped, us(overflow), us(doneOverflow), noted.first, noted.given
end
