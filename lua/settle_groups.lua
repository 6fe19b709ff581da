-- Part of settle: what is done to groups.
-- include parts, dropparts, clear
group = {
  drop = dropparts,
  clear = clear,
}
