package main

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Faults of the network. Whatever they do, Redis has its data and the consumers live, so
// nothing is handled twice.
//
// A lease must be long against the 2 s in which the last consumer finds back after an outage: a
// second of the library's own patience, and one in which go-redis dials no more.
var wireFaults = []scenario{
	{
		name:  "wire: replies lost, or cut in the middle",
		holds: "of every script: no double send, no retry used, nothing stuck longer than a lease",
		setUp: wired(),
		hit:   (*trial).loseReply,
		every: 20 * time.Millisecond,
		rules: rules{late: usual.Lease + time.Second},
		check: func(t *trial, v *verdict) {
			if n := len(t.lost); n < loadScripts {
				v.problem("the replies of %d scripts were lost, want %d", n, loadScripts)
			}
		},
	},
	{
		name:  "wire: connections cut",
		holds: "consuming goes on within 2 s",
		setUp: wired(),
		load:  longLease,
		hit:   during(800*time.Millisecond, func(t *trial) { t.wire.Cut() }, func(t *trial) { t.wire.Mend() }),
		every: 2 * time.Second,
		rules: rules{resume: 2 * time.Second},
	},
	{
		name:  "wire: 200 ms latency",
		holds: "consuming goes on",
		setUp: wired(),
		load:  longLease, // a quarter of it must be enough for a new connection (docs/servers.md)
		hit: during(2*time.Second, func(t *trial) { t.wire.SetDelay(200 * time.Millisecond) }, func(t *trial) {
			t.wire.SetDelay(0)
		}),
		every: time.Second,
		rules: rules{resume: 2 * time.Second},
	},
	{
		name:  "wire: half open, 12 warm connections",
		holds: "sends return and consuming goes on within 2 s",
		setUp: wired(),
		load: func(l *load) {
			longLease(l)
			l.Warm = warmed
		},
		hit: onConnections(func(t *trial) int {
			n := t.wire.HalfOpen()
			if most := warmed * (t.load.Producers + consumers); n < most {
				t.Fatalf("there were %d connections, want %d", n, most)
			}
			return n
		}),
		times: 1, // after which no program has so many
		rules: rules{resume: 2 * time.Second, send: 2 * time.Second},
		check: wantNoRefusals,
	},
	{
		name: "wire: nothing is answered for 40 s",
		holds: "sends and consuming go on within 2 s, also sends that begin at the very end; connections stay open, and " +
			"stay dead",
		setUp: wired(),
		load: func(l *load) {
			longLease(l)
			l.Over, l.Patience = 42*time.Second, 5*time.Second
		},
		hit:   during(40*time.Second, func(t *trial) { t.wire.Darken() }, func(t *trial) { t.wire.Lighten() }),
		times: 1,
		rules: rules{resume: 2 * time.Second},
		check: func(t *trial, v *verdict) { t.wantSendsAfter(v, 2*time.Second) },
	},
	{
		name:  "wire: closed on one side",
		holds: "what was still sent has its effect once",
		setUp: wired(),
		hit:   onConnections(func(t *trial) int { return t.wire.HangUp() }),
		every: 500 * time.Millisecond,
		rules: rules{resume: 2 * time.Second, late: usual.Lease + time.Second},
	},
	{
		name:  "wire: one byte at a time",
		holds: "consuming goes on",
		setUp: wired(),
		hit:   during(2*time.Second, func(t *trial) { t.wire.SetTrickle(true) }, func(t *trial) { t.wire.SetTrickle(false) }),
		every: time.Second,
		rules: rules{resume: 2 * time.Second},
	},
	{
		name:  "handlers run through an outage shorter than their lease",
		holds: "none of them is handed to another",
		setUp: wired(),
		load: func(l *load) {
			l.Slow, l.Workers, l.Lease = 10*time.Second, 160, 6*time.Second
		},
		hit:   during(3700*time.Millisecond, func(t *trial) { t.wire.Cut() }, func(t *trial) { t.wire.Mend() }),
		every: 3 * time.Second,
		rules: rules{resume: 2 * time.Second},
		check: ranThrough,
	},
	{
		name:  "handlers run through an outage longer than their lease",
		holds: "none of them is handed to another",
		setUp: wired(),
		load: func(l *load) {
			// Their contexts end with their leases, as far as those are known in their processes; what they come to counts.
			l.Slow, l.Workers, l.Lease, l.RunOn = 10*time.Second, 160, 3*time.Second, true
		},
		hit:   during(4*time.Second, func(t *trial) { t.wire.Cut() }, func(t *trial) { t.wire.Mend() }),
		every: 4 * time.Second,
		rules: rules{resume: 2 * time.Second},
		check: ranThrough,
	},
}

// warmed is how many idle connections are in a program's pool when all of them die.
const warmed = 12

func longLease(l *load) { l.Lease = 6 * time.Second }

// confirmed is a load with a long lease, whose sends wait until so many replicas have the message.
func confirmed(replicas int, by ...func(*load)) func(*load) {
	return func(l *load) {
		longLease(l)
		for _, set := range by {
			set(l)
		}
		l.Replicas = replicas
	}
}

// Why a message may be handled twice after a failover, and why it may be lost.
const (
	unheard     = "the promoted replica had not heard of its ack"
	notThereYet = "the promoted replica did not have it yet"
)

// during strikes all for a while.
func during(d time.Duration, begin, end func(*trial)) func(*trial) {
	return func(t *trial) {
		t.strike(strike{}, func() {
			begin(t)
			t.wait(d)
			end(t)
		})
	}
}

// onConnections strikes all connections at once, of which there must be some.
func onConnections(hit func(*trial) int) func(*trial) {
	return func(t *trial) {
		t.strike(strike{}, func() {
			if hit(t) == 0 {
				t.Fatal("there were no connections")
			}
		})
	}
}

// loadScripts is how many scripts producers and consumers call: send, fetch, settle and extend.
const loadScripts = 4

func (t *trial) loseReply() { t.loseReplyWithin(3 * time.Second) }

// loseReplyWithin loses the reply of the script that has lost the fewest so far, or, if that does not come within d, of
// any: some are called seldom.
func (t *trial) loseReplyWithin(d time.Duration) {
	var mu sync.Mutex
	patience := time.Now().Add(d)
	match := func(cmd []string) bool {
		if len(cmd) < 3 || !strings.EqualFold(cmd[0], "EVALSHA") {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if t.lost == nil {
			t.lost = map[string]int{}
		}
		if time.Now().Before(patience) {
			if _, again := t.lost[cmd[1]]; again && len(t.lost) < loadScripts {
				return false // each once, to begin with
			}
			for _, n := range t.lost {
				if t.lost[cmd[1]] > n {
					return false
				}
			}
		}
		t.lost[cmd[1]]++
		return true
	}
	t.strike(strike{}, func() {
		lose := t.wire.DropReply
		if len(t.strikes)%2 == 0 {
			lose = t.wire.CutReply
		}
		struck := lose(match)
		select {
		case <-struck:
		case <-time.After(5 * time.Second):
			t.Fatal("no reply was lost")
		}
	})
}

// throughStrikes counts the handlers that began before a strike and ended after it.
func (t *trial) throughStrikes() (found int) {
	began := map[string]int64{}
	for _, e := range t.books.all() {
		name := e.who + e.ID
		switch e.Kind {
		case started:
			began[name] = e.At
		case ended:
			if slices.ContainsFunc(t.strikes, func(st strike) bool { return began[name] < st.from && e.At > st.to }) {
				found++
			}
		}
	}
	return found
}

// ranThrough wants handlers that ran right through an outage.
func ranThrough(t *trial, v *verdict) {
	if n := t.throughStrikes(); n < 10 {
		v.problem("%d handlers ran right through an outage, want 10", n)
	}
}
