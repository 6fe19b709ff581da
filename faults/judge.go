package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A strike is one time that a fault struck.
type strike struct {
	from, to int64           // unix us
	who      string          // the consumer that it struck; "": all
	killed   bool            // that consumer ended, and others went on
	why      string          // a message may be handled twice because of it; "": it may not
	wiped    bool            // Redis came back with less than it had…
	kept     map[string]bool // …which is these ids
	loses    time.Duration   // Redis may have lost what is so old
}

// Evidence is all that the judge sees.
type evidence struct {
	entries []entry
	strikes []strike
	state   *whole // when all is over
	rules   rules
	clock   func(at int64) int64 // what the server's clock said, nil where it is this machine's
	results map[string]string    // of the sums that Redis keeps, by id; nil: it keeps none
	gauge   *gauge
	firsts  []lateness // of first deliveries, in order of their starts; nil: not yet asked for
}

// Rules are what a scenario allows and asks for.
type rules struct {
	lease     time.Duration
	duplicate string        // why a message may be handled twice because of a strike; "": it may not
	lossy     string        // why Redis may lose what it accepted; "": it may not
	late      time.Duration // from the due instant to the first start, 0: not asked
	resume    time.Duration // from the end of a strike on all until a handler starts; 0: not asked
	send      time.Duration // how long a send takes at most; 0: not asked
	tolerated []string      // parts of breaches of the state that the scenario itself made
	links     int           // messages that follow each one, after the other
	maxWait   time.Duration // of changes; 0: producers send messages of their own
	parts     int           // that a group may have; 0: nothing is appended to
	rows      int           // of each outbox, whose numbers are each one message
	imports   int           // which those outboxes are; 0: none is
	instants  []string      // of schedules, which are each one message
	lanes     bool          // messages have lanes
	names     bool          // messages share keys
	killsOne  int           // one message of so many kills its consumer, and no other may be poison; 0: none does
	grows     int           // goroutines that a consumer may have more in the end
}

// A verdict is what became of the messages.
type verdict struct {
	struck, accepted, handled, lost, early, duplicated int

	unaccounted int // messages that are missing by the books; less than 0: that are too many

	gap     time.Duration // the longest without the start of a handler, while messages were sent
	gapFrom int64         // unix us
	allowed time.Duration // beyond a bound, at most, because the machine was slow
	garbage int           // of those handled: given up for a reason of their own

	turns  []int // first starts in lanes that were judged, between failovers
	beside int   // messages of a lane that had a turn at a time, at most

	superseded int // of those handled: ended because a later send took their key while they were handed out

	notes    []string // what else there is to say of it
	poison   []string // each with its kills
	causes   []string // of the duplicates, each once
	problems []string
}

// A run is one start of a handler, with its end.
type run struct {
	start entry
	end   *entry // nil: its program ended first
}

// until is when the program had done with it, for all the judge knows.
func (r run) until() int64 {
	if r.end == nil {
		return r.start.At
	}
	return r.end.At
}

func (r run) word() string {
	if r.end == nil {
		return "never ended"
	}
	return r.end.Word
}

// A story is all that is known of one payload.
type story struct {
	payload string
	sent    *entry // nil: never accepted
	refused bool
	runs    []run    // in order of their starts
	changes []*entry // of the payload of one message, by those who have its key; in no order
	unsure  []*entry // such that are not confirmed
	ended   bool     // superseded while it was handed out: a later change of its key is a message of its own
}

// aftermath is how long after the end of a handler a strike may still keep its settlement
// from Redis, or lose it there: what everysec may lose.
const aftermath = 2 * time.Second

// judge says what became of each message.
func judge(ev evidence) *verdict {
	v := &verdict{struck: len(ev.strikes)}
	entries := slices.Clone(ev.entries)
	slices.SortStableFunc(entries, func(a, b entry) int { return int(a.At - b.At) })
	stories := tell(entries, v)
	v.link(&ev, stories)
	stories = v.weighImports(&ev, stories)
	v.number(&ev, stories)
	stories = v.keyed(&ev, entries, stories)
	for _, s := range stories {
		v.weigh(&ev, s)
	}
	v.weighSuperseded(&ev)
	v.weighLanes(&ev, stories)
	v.weighNames(&ev, stories)
	v.weighState(&ev, stories)
	v.weighProgress(&ev, entries)
	return v
}

// tell puts entries together into stories, in order of payload.
func tell(entries []entry, v *verdict) []*story {
	byPayload := map[string]*story{}
	var all []*story
	for i := range entries {
		e := &entries[i]
		if e.Payload == "" || e.Kind == taken {
			continue
		}
		s := byPayload[e.Payload]
		if s == nil {
			s = &story{payload: e.Payload}
			byPayload[e.Payload] = s
			all = append(all, s)
		}
		switch e.Kind {
		case sent:
			if s.sent != nil {
				v.problem("%s: accepted twice", e.Payload)
			}
			s.sent = e
		case refused, told:
			s.refused = true
		case started:
			s.runs = append(s.runs, run{start: *e})
		case ended:
			if r := s.running(e); r != nil {
				r.end = e
			} else {
				v.problem("%s: ended in %s without a start", e.Payload, e.who)
			}
		}
	}
	slices.SortFunc(all, func(a, b *story) int { return strings.Compare(a.payload, b.payload) })
	return all
}

// running is the run that an end belongs to.
func (s *story) running(end *entry) *run {
	for i := range s.runs {
		r := &s.runs[i]
		if r.end == nil && r.start.who == end.who && r.start.ID == end.ID && r.start.Delivery == end.Delivery {
			return r
		}
	}
	return nil
}

// count says how many runs of the first n ended with a word.
func (s *story) count(n int, word string) (found int) {
	for _, r := range s.runs[:n] {
		if r.word() == word {
			found++
		}
	}
	return found
}

// weigh judges one message.
func (v *verdict) weigh(ev *evidence, s *story) {
	if s.sent == nil && !s.refused {
		v.problem("%s: handled, but never sent", s.payload)
		return
	}
	for i, r := range s.runs {
		if s.sent != nil && r.start.ID != s.sent.ID {
			v.problem("%s: accepted as %s, handed out as %s", s.payload, s.sent.ID, r.start.ID)
		}
		if s.sent != nil && ev.server(r.start.At) < s.sent.Due && !ev.sentAnew(s.sent, r) {
			v.early++
			v.problem("%s: handed out %v early", s.payload, us(s.sent.Due-ev.server(r.start.At)))
		}
		if s.sent != nil && i == 0 {
			late := us(ev.server(r.start.At) - s.sent.Due)
			if ev.rules.late > 0 {
				v.inTime(ev.gauge, r.start.At-late.Microseconds(), late, ev.rules.late, "%s: stuck after it was due", s.payload)
			}
		}
		if n := s.count(i, failed); r.start.Failures > n {
			v.problem("%s: delivery %d has %d failures behind it, and its handlers made %d", s.payload, r.start.Delivery,
				r.start.Failures, n)
		}
		if i > 0 {
			v.weighAgain(ev, s, s.runs[:i], r)
		}
	}
	if s.sent == nil {
		return
	}
	v.accepted++
	switch {
	case s.count(len(s.runs), succeeded) > 0:
		v.handled++
	case v.inGarbage(ev, s):
		v.handled++
		v.garbage++
	case s.ended:
		v.handled++
		v.superseded++
	default:
		v.lost++
		if why := ev.wipedOut(s.sent); why == "" {
			v.problem("%s: lost: accepted as %s, started %d times, now %s", s.payload, s.sent.ID, len(s.runs),
				ev.state.Where(s.sent.ID))
		}
	}
}

// weighAgain judges a run that follows others of the same message.
func (v *verdict) weighAgain(ev *evidence, s *story, before []run, r run) {
	prev := before[len(before)-1]
	if prev.word() == failed && len(s.changes) > 0 &&
		(s.changedBetween(prev, r) || ev.changedAnew(s, r) || r.start.Failures == prev.start.Failures+1) {
		return // it is due when who changes it says
	}
	if prev.word() == failed && r.start.Failures == prev.start.Failures+1 {
		// Where two primaries handed it out, the first failure is the one that it is retried for.
		soonest := prev.end.At + retryDelay.Microseconds()
		for _, b := range before {
			if b.word() == failed && b.start.Failures == prev.start.Failures {
				soonest = min(soonest, b.end.At+retryDelay.Microseconds())
			}
		}
		if r.start.At < soonest && ev.clock == nil { // a clock that is set now and then goes in jumps
			v.early++
			v.problem("%s: retried %v early", s.payload, us(soonest-r.start.At))
		}
		return
	}
	v.duplicated++
	what := fmt.Sprintf("%s: delivery %d in %s from %s to %s %s, delivery %d in %s from %s", s.payload,
		prev.start.Delivery, prev.start.who, clock(prev.start.At), clock(prev.until()), prev.word(),
		r.start.Delivery, r.start.who, clock(r.start.At))
	st := ev.blame(prev, r)
	if st == nil && ev.tooSlowForLease(prev, r) {
		st = &strike{why: "this machine was too slow for its lease"}
	}
	if st == nil {
		v.problem("%s: handled twice, and no fault explains it", what)
		return
	}
	if !slices.Contains(v.causes, st.why) {
		v.causes = append(v.causes, st.why)
	}
	if !st.killed || prev.end != nil {
		return
	}
	for _, other := range ev.strikes {
		if other.who == "" && other.to > st.from && other.from < r.start.At {
			return // an outage came in between
		}
	}
	limit := ev.rules.lease + time.Second + ev.backlog(r.start.At)
	if r.start.Delivery >= maxLosses {
		// It is on its last chance: the consumer that has reserved it may have been killed, and the next one, too. Each
		// time it is due again after two leases. The third waits for its handlers, at most a lease.
		limit += 5 * ev.rules.lease
	}
	took := us(r.start.At - st.from)
	if ev.gauge.allowance(st.from, took) >= ev.rules.lease/2 { // consumers that are cut off so long give leases a grace
		limit += 2 * ev.rules.lease
	}
	v.inTime(ev.gauge, st.from, took, limit, "%s: came back after the kill", what)
}

// server is what the server's clock said at an instant of this machine's.
func (ev *evidence) server(at int64) int64 {
	if ev.clock == nil {
		return at
	}
	return ev.clock(at)
}

// blame finds the strike that made a message come again: it struck everybody or the program
// that had the message, after that one's start and not long after its end.
func (ev *evidence) blame(prev, r run) *strike {
	for i := range ev.strikes {
		st := &ev.strikes[i]
		if st.why == "" {
			continue
		}
		ours := st.who == "" || st.who == prev.start.who
		open := prev.end == nil || us(st.from-prev.until()) <= aftermath+ev.gauge.allowance(prev.until(), aftermath)
		if ours && open && st.to >= prev.start.At && st.from <= r.start.At {
			return st
		}
	}
	return nil
}

// wipedOut says whether Redis itself has lost an accepted message.
func (ev *evidence) wipedOut(e *entry) string {
	for _, st := range ev.strikes {
		wiped := st.wiped && e.At < st.to && !st.kept[e.ID]
		if wiped || e.At < st.to && e.At > st.from-st.loses.Microseconds() && st.loses > 0 {
			return ev.rules.lossy
		}
	}
	return ""
}

// inGarbage says whether a message lies in garbage for a reason: its handler's own, or as
// poison with as many kills.
func (v *verdict) inGarbage(ev *evidence, s *story) bool {
	if ev.state.Where(s.sent.ID) != "garbage" {
		return false
	}
	fail := ev.state.Fail[s.sent.ID]
	if strings.Contains(fail.Error, "lost with its consumer") {
		if one := ev.rules.killsOne; one > 0 {
			return isKiller(s.payload, one) && fail.Losses == maxLosses && len(s.runs) <= maxLosses
		}
		var kills []string
		for _, st := range ev.strikes {
			if st.who != "" && st.from > s.sent.At {
				kills = append(kills, st.who+" at "+clock(st.from))
			}
		}
		var holders []string
		for _, r := range s.runs {
			holders = append(holders, r.start.who)
		}
		if len(holders) >= maxLosses { // no need to guess who had it in a buffer
			kills = slices.DeleteFunc(kills, func(k string) bool {
				who, _, _ := strings.Cut(k, " ")
				return !slices.Contains(holders, who)
			})
		}
		v.poison = append(v.poison, fmt.Sprintf("%s: poison, started in %s; killed: %s", s.payload,
			strings.Join(holders, ", "), strings.Join(kills, ", ")))
		return len(kills) >= maxLosses
	}
	return s.count(len(s.runs), gaveUp) > 0 || s.count(len(s.runs), failed) > retries
}

// weighState judges what is left in Redis.
func (v *verdict) weighState(ev *evidence, stories []*story) {
	missing, _ := ev.state.Unaccounted()
	v.unaccounted = int(missing)
	for _, breach := range ev.state.Breaches() {
		if !slices.ContainsFunc(ev.rules.tolerated, func(part string) bool { return strings.Contains(breach, part) }) {
			v.problem("%s", breach)
		}
	}
	for _, s := range stories {
		if s.sent == nil {
			continue
		}
		if where := ev.state.Where(s.sent.ID); where != "gone" && where != "garbage" && where != "done" {
			v.problem("%s: still in %s", s.payload, where)
		}
	}
}

// weighProgress judges when handlers started, and what programs take up in the end.
func (v *verdict) weighProgress(ev *evidence, entries []entry) {
	var starts []int64
	lastSent := int64(0)
	counts := map[string][]int{} // of goroutines
	for _, e := range entries {
		switch e.Kind {
		case started:
			starts = append(starts, e.At)
		case sent, refused, taken, told:
			if e.Kind != refused && e.Kind != taken {
				lastSent = e.At
			}
			if ev.rules.send > 0 {
				v.inTime(ev.gauge, e.begun(), us(e.Took), ev.rules.send, "%s: its send was %s", e.Payload, e.Kind)
			}
		case standing:
			counts[e.who] = append(counts[e.who], e.Count)
		case quit:
			if e.Count > 0 {
				v.problem("%s: %d goroutines were left when it had closed everything", e.who, e.Count)
			}
			c := counts[e.who]
			if len(c) < 2 || strings.HasPrefix(e.who, producer) {
				continue
			}
			// A tick makes some for a moment, and on a slow machine for longer.
			if more := slices.Min(c[max(len(c)-3, 1):]) - c[0]; more > goroutineSlack+ev.rules.grows {
				v.problem("%s: %d goroutines more in the end than in the beginning", e.who, more)
			}
		}
	}
	for i := 1; i < len(starts) && starts[i-1] < lastSent; i++ {
		if gap := us(starts[i] - starts[i-1]); gap > v.gap {
			v.gap, v.gapFrom = gap, starts[i-1]
		}
	}
	for _, st := range ev.strikes {
		i, _ := slices.BinarySearch(starts, st.to)
		if st.who != "" || st.to > lastSent || i == len(starts) {
			continue
		}
		if ev.rules.resume > 0 {
			v.inTime(ev.gauge, st.to, us(starts[i]-st.to), ev.rules.resume, "no handler started after the strike at %s",
				clock(st.from))
		}
	}
}

// goroutineSlack is what an idle program's goroutines vary by: calls that are under way.
const goroutineSlack = 8
