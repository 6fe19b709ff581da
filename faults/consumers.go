package main

import (
	"math/rand/v2"
	"time"
)

// Faults of consumers.
var consumerFaults = []scenario{
	{
		name:  "none",
		holds: "nothing is handled twice",
	},
	{
		name:  "consumer killed",
		holds: "its messages are back within a lease and a second; no retry is used",
		hit:   (*trial).killConsumer,
		every: time.Second,
	},
	{
		name:  "consumer frozen past its lease",
		holds: "its late settlements are void; its handlers' contexts have ended",
		load:  func(l *load) { l.Slow, l.Workers = 6*time.Second, 96 },
		// One and the same: a message that is lost twice waits for all others of its kind.
		hit:   func(t *trial) { t.freeze(t.consumers[0]) },
		every: 2 * time.Second,
		check: func(t *trial, v *verdict) {
			if n := t.books.count(cutOff); n == 0 {
				v.problem("no handler's context ended")
			}
			if n := t.logged("its result is void"); n == 0 {
				v.problem("no late settlement was void")
			}
		},
	},
}

func (t *trial) anyConsumer() *program { return t.consumers[rand.IntN(len(t.consumers))] }

func (t *trial) killConsumer() {
	c := t.anyConsumer()
	t.strike(strike{who: c.name, killed: true, why: "its consumer was killed"}, c.process.Kill)
	t.replace(c)
}

// often is how long nothing is killed where much is.
const often = 500 * time.Millisecond

// killNowAndThen kills what is next in turn if nothing was killed for a while.
func (t *trial) killNowAndThen(while time.Duration, kills ...func(t *trial)) {
	killed, last := 0, t.begun
	for _, st := range t.strikes {
		if st.killed {
			killed, last = killed+1, st.to
		}
	}
	if us(time.Now().UnixMicro()-last) > while {
		kills[killed%len(kills)](t)
	}
}

// losing loses a reply, and now and then kills what is next in turn.
func losing(while time.Duration, kills ...func(t *trial)) func(t *trial) {
	return func(t *trial) {
		t.loseReplyWithin(100 * time.Millisecond)
		t.killNowAndThen(while, kills...)
	}
}

// freeze lets a consumer stand still until others have its messages.
func (t *trial) freeze(c *program) {
	t.strike(strike{who: c.name, why: "its consumer stood still"}, func() {
		c.process.Pause()
		t.wait(t.load.Lease + time.Second)
		c.process.Resume()
	})
}
