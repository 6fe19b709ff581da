-- Shared by the scripts that end deliveries whose handlers run on. In a queue whose concurrency is bounded such a handler keeps
-- its place: the member 'overrun:<tag>' of unack, until a lease ends that its process renews.
local OVERRUN = 'overrun:'
-- even(ends) is the end of its lease, as text: a fetch finds what it handed out by ends that are odd.
local function even(ends) return us(ends - ends % 2) end
-- placesOf(limits, override) is how many places there are, by these fields of state; 0: any number.
local function placesOf(limits, override)
  local function fourth(text) return whole(string.match(text or '', '^%d+ %d+ %d+ (%d+)')) or 0 end
  return fourth(override) > 0 and fourth(override) or fourth(limits)
end
