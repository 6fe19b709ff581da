-- What only some outcomes need.

-- equip(c) gives c the functions that only some outcomes need, so that the others do not pay for them.
local function equip(c)
  -- from leavelane: leavelane
  c.leavelane = leavelane
  if not (c.sends or c.counts or c.overtaken or c.grown) then return end
  -- from record: superseded, finish
  -- from group: setleft, clear, dropparts
  c.superseded, c.finish = superseded, finish
  if c.grown then c.unlist, c.clear, c.dropparts = setleft, clear, dropparts end
  if c.sends or c.counts then
    -- from settle/follow: fits, count
    c.fits, c.count = fits, count
    if c.sends then
      -- from put: store
      c.act = store
      if c.changes then
        -- from put: send
        c.act = send
      end
    end
  end
end
