package main

import (
	"slices"
	"strings"
	"time"
)

// This file judges imports: when their parents came, and what their sums are.

// An importStory is what is known of one import.
type importStory struct {
	name   string
	parent *story // nil: nothing is known of it
	rows   []*story
	sums   []*story
}

// weighImports judges imports. It returns all stories but those of sums that Redis has forgotten as a whole.
func (v *verdict) weighImports(ev *evidence, stories []*story) []*story {
	if ev.rules.imports == 0 {
		return stories
	}
	byName := map[string]*importStory{}
	for _, name := range ev.rules.outboxes() {
		byName[name] = &importStory{name: name}
	}
	var all []*story
	for _, s := range stories {
		key, _, _ := strings.Cut(s.payload, " as ")
		ofSum, isSum := strings.CutPrefix(key, sumPrefix)
		name, number := importOf(s.payload)
		im := byName[name]
		if isSum {
			im = byName[ofSum]
		}
		switch {
		case im == nil:
		case isSum && ev.forgottenSum(s):
			continue
		case isSum:
			im.sums = append(im.sums, s)
		case number == parentRow:
			im.parent = s
		default:
			im.rows = append(im.rows, s)
		}
		all = append(all, s)
	}
	for _, name := range ev.rules.outboxes() {
		im := byName[name]
		v.weighSums(ev, im)
		if im.parent != nil {
			v.weighParent(ev, im)
		}
	}
	return all
}

// undone says whether Redis may have forgotten what it did at an instant, when something later began.
func (ev *evidence) undone(at, later int64) bool {
	return slices.ContainsFunc(ev.strikes, func(st strike) bool {
		return st.who == "" && st.why != "" && at >= st.from-aftermath.Microseconds() && at <= st.to && later >= st.from
	})
}

// forgottenSum says whether Redis has forgotten a sum that was never handled to its end. It is nowhere, and its rows
// are added again.
func (ev *evidence) forgottenSum(s *story) bool {
	first, last := s.runs[0].start, s.runs[len(s.runs)-1]
	return s.lastSuccess() == nil && ev.undone(first.At, last.until()) && ev.state.Where(first.ID) == "gone"
}

// inGarbage says whether a message that was handed out lies in garbage.
func (s *story) inGarbage(ev *evidence) bool {
	return len(s.runs) > 0 && ev.state.Where(s.runs[len(s.runs)-1].start.ID) == "garbage"
}

// weighSums wants each row that was acked in the sums of its import, once, and no other row.
func (v *verdict) weighSums(ev *evidence, im *importStory) {
	times := map[string]int{}
	for _, s := range im.sums {
		for _, part := range v.partsOf(ev, s) {
			times[part]++
		}
	}
	var missing []string
	for _, s := range im.rows {
		n, acked := times[s.payload], !s.inGarbage(ev)
		delete(times, s.payload)
		switch {
		case !acked && n > 0:
			v.problem("%s: in garbage, and in the sums of its import", s.payload)
		case n > 1:
			v.problem("%s: %d times in the sums of its import", s.payload, n)
		case acked && n == 0:
			missing = append(missing, s.payload)
		}
	}
	for part := range times {
		v.problem("%s: in the sums of %s, which has no such row", part, im.name)
	}
	if n := ev.partsInGarbage(sumPrefix + im.name); len(missing) != n {
		v.problem("%s: %d rows are not in its sums, and %d are in sums that are garbage: %s", im.name, len(missing), n,
			strings.Join(missing, ", "))
	}
}

// partsOf are the parts of a sum that was acked: of the delivery which was, which is the last one, or, if Redis keeps
// sums with results, of those.
func (v *verdict) partsOf(ev *evidence, s *story) []string {
	if s.inGarbage(ev) {
		return nil
	}
	if ev.results == nil {
		var acked *run
		for i := range s.runs {
			if r := &s.runs[i]; r.word() == succeeded && (acked == nil || r.start.Delivery > acked.start.Delivery) {
				acked = r
			}
		}
		if acked == nil {
			return nil // weigh says that it is lost
		}
		return acked.start.Parts
	}
	result, kept := ev.results[s.runs[0].start.ID]
	parts := strings.Fields(result)
	if kept && !slices.ContainsFunc(s.runs, func(r run) bool {
		return r.word() == succeeded && slices.Equal(r.start.Parts, parts)
	}) {
		v.problem("%s: kept with parts that no handler had", s.payload)
	}
	return parts
}

// partsInGarbage is how many parts the groups have that had a key and are garbage.
func (ev *evidence) partsInGarbage(key string) (n int) {
	for id, e := range ev.state.Messages {
		if (e.Key == key || e.Group.Key == key) && ev.state.Where(id) == "garbage" {
			n += e.Group.Count
		}
	}
	return n
}

// weighParent wants a parent when all rows of its import are acked, or at its limit with as many as are missing, and
// not later.
func (v *verdict) weighParent(ev *evidence, im *importStory) {
	p, rows := im.parent, ev.rules.rows-1
	for i, r := range p.runs {
		left := r.start.Left
		before, after, acked, last := 0, 0, 0, int64(0)
		for _, s := range im.rows {
			if end := s.handledBy(r.start.At); end > 0 {
				before, last = before+1, max(last, end)
			}
			if slices.ContainsFunc(s.runs, func(row run) bool {
				return row.start.At > r.start.At && !ev.undone(r.start.At, row.start.At)
			}) {
				after++
			}
			if s.ackedBy(ev, r.start.At) {
				acked++
			}
		}
		if before < rows-left {
			v.early++
			v.problem("%s: handed out at %s, when %d rows were handled, with CountdownLeft %d of %d", p.payload,
				clock(r.start.At), before, left,
				rows)
		}
		if left > 0 && p.sent != nil && r.start.At < p.sent.Due && !ev.sentAnew(p.sent, r) {
			v.early++
			v.problem("%s: handed out %v before its limit with CountdownLeft %d", p.payload, us(p.sent.Due-r.start.At), left)
		}
		if after > left {
			v.problem("%s: %d rows were handled after it came at %s with CountdownLeft %d", p.payload, after, clock(r.start.At),
				left)
		}
		if acked > rows-left {
			v.problem("%s: handed out at %s with CountdownLeft %d, though %d rows of %d had been acked", p.payload,
				clock(r.start.At),
				left, acked, rows)
		}
		if i == 0 {
			v.weighLate(ev, p, r, last)
		}
	}
	if p.sent != nil && len(p.runs) > 0 { // weigh is not to judge by the limit
		accepted := *p.sent
		accepted.Due = min(accepted.Due, p.runs[0].start.At)
		p.sent = &accepted
	}
}

// weighLate wants the first run of a parent no later than the last ack, if that made it due, and than its limit.
func (v *verdict) weighLate(ev *evidence, p *story, r run, lastAck int64) {
	due := int64(0)
	if p.sent != nil {
		due = p.sent.Due
	}
	if r.start.Left == 0 && (due == 0 || lastAck < due) {
		due = lastAck
	}
	// Each delivery before this one was lost with its consumer. It waits behind messages that were due earlier.
	limit := time.Duration(r.start.Delivery)*(ev.rules.lease+time.Second) + ev.outages(due, r.start.At) +
		ev.backlog(r.start.At)
	if due > 0 {
		v.inTime(ev.gauge, due, us(r.start.At-due), limit, "%s: delivery %d came after it was due", p.payload,
			r.start.Delivery)
	}
}

// handledBy is the last instant up to another at which a handler ended well; 0: there is none.
func (s *story) handledBy(at int64) (last int64) {
	for _, r := range s.runs {
		if r.word() == succeeded && r.end.At <= at {
			last = max(last, r.end.At)
		}
	}
	return last
}

// ackTakes is how long an ack takes at most if Redis is there.
const ackTakes = 4 * time.Second

// ackedBy says whether a message was certainly acked at an instant: its last handler had ended well long before.
func (s *story) ackedBy(ev *evidence, at int64) bool {
	if len(s.runs) == 0 || s.inGarbage(ev) {
		return false
	}
	last := s.runs[len(s.runs)-1]
	takes := ackTakes + ev.outages(last.end.At, at) + ev.gauge.allowance(last.end.At, ackTakes)
	return last.word() == succeeded && us(at-last.end.At) > takes
}
