package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
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
	{
		name: "messages that kill their consumers",
		holds: "30 of 600 messages kill each process that handles them, and another one starts at once: these messages " +
			"are in garbage after three losses, and no others are",
		load: func(l *load) {
			l.Messages, l.Over, l.MaxDelay, l.Slow = 600, 4*time.Second, time.Second, 300*time.Millisecond
			l.KillsOne = killsOne
		},
		rules: rules{killsOne: killsOne},
		check: (*trial).weighKillers,
	},
}

// killsOne is how many messages there are for each one that kills its consumer.
const killsOne = 20

// isKiller reports whether a message kills its consumer, if one of so many does; 0: none does.
func isKiller(payload string, one int) bool {
	n, err := strconv.Atoi(payload[strings.LastIndexByte(payload, '-')+1:])
	return one > 0 && err == nil && n%one == one/2
}

// replaceKilled starts a consumer in place of each one that a message has killed.
func (t *trial) replaceKilled() {
	if t.load.KillsOne == 0 {
		return
	}
	for _, c := range slices.Clone(t.consumers) {
		if !c.process.Ended() {
			continue
		}
		t.readBooks() // what it wrote last
		all := t.books.all()
		i := slices.IndexFunc(all, func(e entry) bool {
			return e.Kind == started && e.who == c.name && isKiller(e.Payload, t.load.KillsOne)
		})
		if i < 0 {
			continue // nothing says why: wantQuits has it
		}
		t.strike(strike{from: all[i].At, who: c.name, why: "a message killed its consumer"}, func() {})
		t.replace(c)
	}
}

// weighKillers wants all killers to have become poison, beside other messages that were on their last chance too.
func (t *trial) weighKillers(v *verdict) {
	if n := t.load.Messages / t.load.KillsOne; v.garbage != n {
		v.problem("%d messages are in garbage, want the %d that kill", v.garbage, n)
	}
	last := 0
	for _, e := range t.books.all() {
		if e.Kind == started && e.Delivery == maxLosses && !isKiller(e.Payload, t.load.KillsOne) {
			last++
		}
	}
	if last == 0 {
		v.problem("no harmless message was on its last chance")
	}
	v.notes = append(v.notes, fmt.Sprintf("%d processes were killed; %d harmless messages were on their last chance",
		v.struck, last))
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
