package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/outbox"
)

// Evidence is all that the judge sees, when all is over.
type evidence struct {
	entries []entry
	orders  map[string]bool // those in the database
	sends   int64           // rows of the outbox that were committed
	strikes []strike
	want    map[string]int // how often each kind must have struck
	stats   outbox.Stats
	live    int64 // messages in the queue
	missing int64 // messages that the books of the queue do not explain
}

// A verdict is what became of the orders.
type verdict struct {
	Orders     int            // that were tried
	Committed  int            // in the database
	RolledBack int            // not in the database
	Violated   int            // of those: a unique key was there
	Sent       int64          // messages, without those that were healed
	Healed     int64          // messages that were sent again
	Handled    int            // orders
	Runs       int            // of handlers
	Lost       int            // orders that were committed, and not handled
	Early      int            // orders that were handled before their time
	Twice      int            // orders with two messages or more that were handled
	Missing    int64          // messages that the books of the queue do not explain
	Gap        time.Duration  // the longest time without a handled message while orders were tried
	Strikes    map[string]int // by kind
	Seconds    float64
	Findings   []string
}

// earlySlack is how much earlier a message may be due than a delay says, because instants of Redis and of the database
// are rounded, and the database's clock is not read in one instant with the transaction's.
const earlySlack = 20 * time.Millisecond

// notNoted is how many messages Redis may forget each time that nobody knows of: a relay that was killed had sent them,
// and had not noted that yet.
const notNoted = 1000

// An account is what is known of one order.
type account struct {
	tried, due int64 // the first time it was tried, and the first instant at which a message of it is due; unix us
	told, back bool
	runs       int
	firsts     map[string]int64 // when each message was handled first, by id
}

// judge says what became of the orders, and what is wrong.
func judge(e evidence) *verdict {
	v := &verdict{Committed: len(e.orders), Sent: e.stats.Sent - e.stats.Healed, Healed: e.stats.Healed,
		Missing: e.missing, Gap: gap(e.entries), Strikes: map[string]int{}}
	all := accounts(e.entries)
	for id := range e.orders {
		if all[id] == nil {
			all[id] = &account{}
		}
	}
	for _, entry := range e.entries {
		if entry.Kind == violated {
			v.Violated++
		}
	}
	ids := 0
	for _, id := range slices.Sorted(maps.Keys(all)) {
		a := all[id]
		if a.tried > 0 {
			v.Orders++
		}
		v.Runs, ids = v.Runs+a.runs, ids+len(a.firsts)
		v.judgeOrder(id, a, e.orders[id], e.strikes)
	}
	v.RolledBack = v.Orders - v.Committed
	forgetful := 0
	for _, st := range e.strikes {
		if st.since > 0 {
			forgetful++
		}
	}
	if again := int64(ids - v.Handled); again > e.stats.Healed+int64(forgetful)*notNoted {
		v.find("%d messages more than orders were handled, and %d were healed", again, e.stats.Healed)
	}
	v.judgeState(e, forgetful > 0)
	return v
}

// gap is the longest time without a handled message, from the first to the last order that was tried.
func gap(entries []entry) time.Duration {
	var times []int64
	var last int64
	for _, e := range entries {
		switch {
		case e.Kind == handled:
			times = append(times, e.At)
		case e.Kind == tried && !e.Again:
			last = max(last, e.At)
		}
	}
	slices.Sort(times)
	longest := int64(0)
	for i := 1; i < len(times); i++ {
		if times[i-1] <= last {
			longest = max(longest, times[i]-times[i-1])
		}
	}
	return time.Duration(longest) * time.Microsecond
}

// accounts sums the entries up, by order.
func accounts(entries []entry) map[string]*account {
	all := map[string]*account{}
	for _, e := range entries {
		if e.Order == "" {
			continue
		}
		a := all[e.Order]
		if a == nil {
			a = &account{firsts: map[string]int64{}}
			all[e.Order] = a
		}
		switch e.Kind {
		case tried:
			a.tried = cmp.Or(min(a.tried, e.At), e.At)
			a.due = cmp.Or(min(a.due, e.At+e.Delay), e.At+e.Delay)
		case told:
			a.told = true
		case back:
			a.back = true
		case handled:
			a.runs++
			a.firsts[e.ID] = cmp.Or(min(a.firsts[e.ID], e.At), e.At)
		}
	}
	return all
}

func (v *verdict) judgeOrder(id string, a *account, committed bool, strikes []strike) {
	switch {
	case a.tried == 0:
		v.find("order %s was never tried", id)
	case committed && a.back:
		v.find("order %s was rolled back, and is in the database", id)
	case !committed && a.told:
		v.find("order %s was committed, and is not in the database", id)
	}
	switch {
	case a.runs == 0 && committed:
		v.Lost++
		v.find("order %s was committed, and no message of it was handled", id)
	case a.runs > 0 && !committed:
		v.find("order %s was rolled back, and a message of it was handled", id)
	}
	if a.runs == 0 {
		return
	}
	v.Handled++
	times := slices.Sorted(maps.Values(a.firsts))
	if times[0] < a.due-earlySlack.Microseconds() {
		v.Early++
		v.find("order %s was handled %v early", id, time.Duration(a.due-times[0])*time.Microsecond)
	}
	if len(times) > 1 {
		v.Twice++
	}
	if n := reasons(a.tried, times, strikes); len(times) > 1+n {
		v.find("order %s has %d messages that were handled, and Redis may have forgotten %d", id, len(times), n)
	}
}

// reasons is how many of the messages of an order Redis may have forgotten: at most one each time.
func reasons(tried int64, times []int64, strikes []strike) (n int) {
	for _, st := range strikes {
		for i := range times[1:] {
			if st.explains(tried, times[i], times[i+1]) {
				n++
				break
			}
		}
	}
	return n
}

// explains says whether Redis may have forgotten a message because of this strike: an order was tried before the
// strike was over, a message of it was handled after the state that Redis came back with, and another one when it had
// come back.
func (st strike) explains(tried, first, second int64) bool {
	return st.since > 0 && tried <= st.to && first >= st.since && second >= st.from
}

// judgeState judges the outbox, the queue, and whether all faults struck.
func (v *verdict) judgeState(e evidence, forgot bool) {
	for _, st := range e.strikes {
		v.Strikes[st.kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(e.want)) {
		if got := v.Strikes[kind]; got < e.want[kind] {
			v.find("%s: it struck %d times, and not %d", kind, got, e.want[kind])
		}
	}
	for _, left := range []struct {
		n    int64
		what string
	}{
		{e.stats.Waiting, "rows wait"}, {e.stats.Dead, "rows are dead"}, {e.stats.Refused, "messages were refused"},
		{e.live, "messages are in the queue"}, {e.missing, "messages are missing by the books of the queue"},
	} {
		if left.n != 0 {
			v.find("%d %s", left.n, left.what)
		}
	}
	if v.Sent != e.sends {
		v.find("%d messages were sent, of %d rows", v.Sent, e.sends)
	}
	if forgot && v.Healed == 0 {
		v.find("Redis forgot nothing")
	}
	if !forgot && v.Healed > 0 {
		v.find("%d messages were healed, and Redis forgot nothing", v.Healed)
	}
	if v.Violated == 0 {
		v.find("no unique key was violated")
	}
}

func (v *verdict) find(format string, args ...any) {
	v.Findings = append(v.Findings, fmt.Sprintf(format, args...))
}
