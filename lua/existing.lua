-- Shared by the scripts that change something of a queue that is there: armed is that field of state. A queue that nobody
-- has sent to or consumed has no state, and gets none: a look at a misspelt name must not make a queue of it. One whose state was
-- lost has messages.
if not armed and redis.call('HLEN', KEYS.state) == 0 and redis.call('HLEN', KEYS.msg) == 0 then
  return {err = 'DQNOQUEUE the queue has no key'}
end
