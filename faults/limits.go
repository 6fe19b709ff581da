package main

import (
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/ops"
)

// Limits of the whole queue, which all consumers ask for.
var limits = []scenario{
	{
		name: "limits: consumers killed",
		holds: "600 a second, 20 at once, 16 at a time: never over by the server's clock, and what a dead consumer held " +
			"is free with its lease",
		load: func(l *load) {
			l.Messages, l.Over, l.MaxDelay = 4_200, 8*time.Second, time.Second
			l.Limits = ops.Limits{Rate: 600, Per: time.Second, Burst: 20, Concurrency: 16}
		},
		hit: func(t *trial) {
			t.look()
			t.killNowAndThen(often, (*trial).killConsumer)
		},
		every: 20 * time.Millisecond,
		check: func(t *trial, v *verdict) {
			v.weighRate(t.readings, t.load.Limits)
			v.weighPlaces(t.books.all(), t.load.Limits.Concurrency)
		},
	},
}

// A reading is what the server said at an instant of its clock.
type reading struct{ at, delivered, held int64 }

// What is held is in msg and nowhere else.
const readingScript = `
local time, delivered = redis.call('TIME'), tonumber(redis.call('HGET', KEYS[1], 'delivered') or 0)
local history = redis.call('HGETALL', KEYS[2])
for i = 1, #history, 2 do
  if string.sub(history[i], 1, 1) ~= 'd' then delivered = delivered + string.match(history[i + 1], '^%d+ (%d+)') end
end
local held = redis.call('HLEN', KEYS[3]) - redis.call('ZCARD', KEYS[4]) - redis.call('LLEN', KEYS[5])
  - redis.call('ZCARD', KEYS[6]) - redis.call('ZCARD', KEYS[7]) - redis.call('ZCARD', KEYS[8])
return {time[1] * 1000000 + time[2], delivered, held}`

func (t *trial) look() {
	var keys []string
	for _, structure := range []string{"state", "history", "msg", "pending", "ready", "retry", "garbage", "done"} {
		keys = append(keys, key(structure))
	}
	n, err := t.admin.Eval(t.ctx, readingScript, keys).Int64Slice()
	if err != nil {
		t.Fatal(err)
	}
	t.readings = append(t.readings, reading{n[0], n[1], n[2]})
}

// weighRate wants no time in which more was handed out than a rate allows, and no more with consumers than there may
// be.
func (v *verdict) weighRate(readings []reading, l ops.Limits) {
	for i, a := range readings {
		if a.held > int64(l.Concurrency) {
			v.problem("%d were with consumers, at most %d may be", a.held, l.Concurrency)
		}
		for _, b := range readings[i+1:] {
			most := int64(l.Burst) + (b.at-a.at)*int64(l.Rate)/l.Per.Microseconds()
			if n := b.delivered - a.delivered; n > most {
				v.problem("%d were handed out in %v, at most %d may be", n, us(b.at-a.at), most)
				return
			}
		}
	}
	if len(readings) < 2 {
		v.problem("nobody looked at the server")
	}
}

// weighPlaces wants no more handlers at a time than there may be, but for those of killed consumers.
func (v *verdict) weighPlaces(entries []entry, most int) {
	type step struct {
		at int64
		by int
	}
	var steps []step
	for _, s := range tell(slices.SortedStableFunc(slices.Values(entries), func(a, b entry) int {
		return int(a.At - b.At)
	}), v) {
		for _, r := range s.runs {
			if r.end != nil {
				steps = append(steps, step{r.start.At, 1}, step{r.end.At, -1})
			}
		}
	}
	slices.SortFunc(steps, func(a, b step) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.by - b.by
	})
	now := 0
	for _, s := range steps {
		if now += s.by; now > most {
			v.problem("%d handlers at a time, at most %d may run", now, most)
			return
		}
	}
}
