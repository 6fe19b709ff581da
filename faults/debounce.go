package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// Debounce: all producers change the same documents, again and again. Each change replaces the message that waits
// (Replace) or puts it off (Reschedule), up to WithMaxWait.
var debounce = []scenario{
	{
		name: "debounce: consumers killed, replies lost",
		holds: "four producers change 20 keys all the while: what is handled is the last change before, none is left " +
			"unhandled, and none waits beyond WithMaxWait, a lease and a second for each consumer that it was lost with",
		setUp: wired(),
		load:  edited,
		hit:   losing(often, (*trial).killConsumer),
		every: 20 * time.Millisecond,
		rules: rules{maxWait: maxWait},
	},
	{
		name:  "debounce: Sentinel: primary killed, WithReplicaAck(1)",
		holds: "and the same of each change that returned nil, beside consumers that are killed",
		setUp: sentinel,
		load:  confirmed(1, edited),
		hit:   (*trial).failOverAmongKills,
		times: 1,
		rules: rules{maxWait: maxWait, resume: 5 * time.Second, duplicate: unheard},
	},
}

const (
	documents = 20
	editors   = 4
	maxWait   = 600 * time.Millisecond
	minQuiet  = 100 * time.Millisecond // without a change, after which one is handled; up to three times as much
)

func edited(l *load) {
	l.Keys, l.Messages, l.Producers, l.Over = documents, 40*documents, editors, 7*time.Second
}

// edit changes all documents.
func edit(ctx context.Context, q *delayqueue.DelayQueue, book ledger, o order) {
	onKeys(ctx, o, "document%02d", func(key string, n int) int {
		change(ctx, q, book, key, fmt.Sprintf("%s/%s-%05d", key, o.Name, n), o.Load.Patience)
		return n + 1
	})
}

// onKeys calls change again and again for each key, until the time of the trial is over. It says the number of the
// change, and change returns that of the next. Every second key now and then has a quiet time.
func onKeys(ctx context.Context, o order, format string, change func(key string, n int) (next int)) {
	end := time.UnixMicro(o.Begun).Add(o.Load.Over)
	var all sync.WaitGroup
	for i := range o.Load.Keys {
		key := fmt.Sprintf(format, i)
		all.Go(func() {
			for n := 0; time.Now().Before(end) && ctx.Err() == nil; {
				n = change(key, n)
				pause := rand.N(60 * time.Millisecond)
				if i%2 == 0 && rand.IntN(30) == 0 {
					pause = rand.N(2 * time.Second)
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	all.Wait()
}

// change sends one change of a document.
func change(ctx context.Context, q *delayqueue.DelayQueue, book ledger, key, payload string, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e := entry{Kind: sent, Payload: payload, Word: replaced}
	on := delayqueue.Replace
	if rand.IntN(3) == 0 {
		on, e.Word = delayqueue.Reschedule, postponed
	}
	begun := time.Now()
	info, err := q.Send(ctx, payload, delayqueue.WithKey(key, on), delayqueue.WithMaxWait(maxWait),
		delayqueue.WithDelay(minQuiet+rand.N(2*minQuiet)))
	book.writeKeyed(e, begun, info, err)
}

// writeKeyed adds what came of a send that began then, to a key that others send to.
func (l ledger) writeKeyed(e entry, begun time.Time, info *delayqueue.MessageInfo, err error) {
	e.At = time.Now().UnixMicro()
	e.Took = e.At - begun.UnixMicro()
	if info != nil { // also if it is not confirmed
		e.ID, e.Due = info.ID, info.Due.UnixMicro()
	}
	switch {
	case err != nil:
		e.Kind, e.Word = refused, err.Error()
	case !info.Existed:
		e.Word = stored
	}
	l.write(e)
}

// begun is when the send began that an entry is about.
func (e *entry) begun() int64 { return e.At - e.Took }

// after says that a send was carried out after another one, and before an instant.
func (e *entry) after(other *entry, before int64) bool { return e.begun() > other.At && e.At < before }

// keyed judges messages that others change or append to, and returns their stories in place of those of payloads.
func (v *verdict) keyed(ev *evidence, entries []entry, payloads []*story) []*story {
	if ev.rules.maxWait == 0 {
		return payloads
	}
	byID := map[string]*story{}
	sends, unsure := map[string][]*entry{}, map[string][]*entry{} // by id; unsure are those that are not confirmed
	anywhere := map[string]*entry{}                               // by payload
	var all []*story
	of := func(e *entry) *story {
		s := byID[e.ID]
		if s == nil {
			key, _, _ := strings.Cut(e.Payload, "/")
			s = &story{payload: key + " as " + e.ID}
			byID[e.ID], all = s, append(all, s)
		}
		return s
	}
	for i := range entries {
		e := &entries[i]
		if e.Kind != refused && e.Kind != sent {
			continue
		}
		anywhere[e.Payload] = e
		if e.Kind == refused {
			unsure[e.ID] = append(unsure[e.ID], e)
		} else {
			sends[e.ID] = append(sends[e.ID], e)
			if s := of(e); e.Word != postponed {
				s.changes = append(s.changes, e)
			}
		}
	}
	for _, p := range payloads {
		for _, r := range p.runs {
			s := of(&r.start)
			s.runs = append(s.runs, r)
			unknown := p.sent == nil && p.refused || p.sent != nil && ev.sentAnew(p.sent, r)
			s.refused = s.refused || unknown
			if !unknown && (p.sent == nil || p.sent.ID != r.start.ID || p.sent.Word == postponed) {
				v.problem("%s: handed out %s, which is no change of it", s.payload, p.payload)
			}
		}
	}
	for id, s := range byID {
		slices.SortFunc(s.runs, func(a, b run) int { return cmp.Compare(a.start.At, b.start.At) })
		s.unsure = unsure[id]
		if ev.rules.parts > 0 {
			v.weighParts(ev, s, anywhere)
		} else {
			s.ended = ev.supersededBy(s, entries)
			v.weighChanges(ev, s)
		}
		v.weighWaits(ev, s, sends[id], unsure[id])
	}
	return all
}

// weighChanges wants what was handed out to be the last change before, and the last one of all to be handled.
func (v *verdict) weighChanges(ev *evidence, s *story) {
	handled := false // the last change
	for _, r := range s.runs {
		newest := true
		for _, c := range s.changes {
			if c.begun() > r.start.At {
				newest = false
			}
			if c.Payload != r.start.Payload {
				continue
			}
			for _, later := range s.changes {
				if later.after(c, r.start.At) {
					v.problem("%s: handed out %s, though %s came after it", s.payload, c.Payload, later.Payload)
				}
			}
		}
		handled = handled || newest && (r.word() == succeeded || ev.state.Where(r.start.ID) == "garbage")
	}
	if len(s.runs) > 0 && !handled && !s.ended {
		v.problem("%s: its last change was not handled", s.payload)
	}
}

// supersededBy says whether a later change of a document became a message of its own, with no handler of this one's
// last change that ended well: its key was taken, so it ends, and the later one is to be handled in its place. That
// may be so before its handler starts, because it was handed out before. What was lost for another reason is found by
// weighSuperseded.
func (ev *evidence) supersededBy(s *story, entries []entry) bool {
	key, id, _ := strings.Cut(s.payload, " as ")
	last := int64(0)
	for _, c := range s.changes {
		last = max(last, c.begun())
	}
	if slices.ContainsFunc(s.runs, func(r run) bool { return r.start.At >= last && r.word() == succeeded }) {
		return false
	}
	return slices.ContainsFunc(entries, func(e entry) bool {
		return e.Kind == sent && e.Word == stored && e.ID != id && strings.HasPrefix(e.Payload, key+"/") && e.At > last
	})
}

// weighSuperseded wants no more messages to have ended in that way than the scripts have counted.
func (v *verdict) weighSuperseded(ev *evidence) {
	counted := 0
	for field, text := range ev.state.History {
		if numbers := strings.Fields(text); strings.HasPrefix(field, "d") && len(numbers) > 6 {
			n, _ := strconv.Atoi(numbers[6]) // what is no number counts nothing, and internal/check says so
			counted += n
		}
	}
	n, _ := strconv.Atoi(ev.state.Fields["superseded"])
	if counted += n; v.superseded > counted && ev.rules.resume == 0 { // a failover may forget some
		v.problem("%d messages ended because their keys were taken, and %d were counted", v.superseded, counted)
	}
}

// weighWaits wants a message to be handed out when its last send said, and to be put off no longer than it may be.
func (v *verdict) weighWaits(ev *evidence, s *story, sends, unsure []*entry) {
	if len(sends) == 0 {
		return // weigh says so
	}
	first := slices.MinFunc(sends, func(a, b *entry) int { return cmp.Compare(a.At, b.At) })
	accepted := *first
	accepted.Due = 0
	s.sent = &accepted
	latest := first.At + ev.rules.maxWait.Microseconds()
	deliveries := 0
	for i, r := range s.runs {
		if i == 0 {
			s.sent.Due = min(latest, r.start.At) // weigh notes how late it was
		}
		if i == 0 && r.start.Delivery == 1 {
			if last := soonest(sends, unsure, r.start.At); last != nil && r.start.At < last.Due && !ev.changedAnew(s, r) {
				v.early++
				v.problem("%s: handed out %v early at %s, after %s was sent from %s to %s", s.payload, us(last.Due-r.start.At),
					clock(r.start.At), last.Payload, clock(last.begun()), clock(last.At))
			}
		}
		// Each delivery before this one was lost with its consumer, unless its handler ended.
		limit := us(latest) + time.Duration(max(r.start.Delivery-deliveries, 1))*(ev.rules.lease+time.Second)
		limit += ev.outages(first.At, r.start.At)
		v.inTime(ev.gauge, first.At, us(r.start.At-first.At), limit-us(first.At), "%s: delivery %d was put off", s.payload,
			r.start.Delivery)
		deliveries = r.start.Delivery
		latest = r.until() + (retryDelay + ev.rules.maxWait).Microseconds()
	}
}

// outages are how long nothing was handed out between two instants, because Redis was not there.
func (ev *evidence) outages(from, to int64) (d time.Duration) {
	for _, st := range ev.strikes {
		if st.who == "" && st.why != "" && st.from < to && st.to > from {
			d += us(st.to-st.from) + ev.rules.resume
		}
	}
	return d
}

// changedAnew says whether a send that was carried out twice may have changed a message the first time, when a run of
// it began: its answer may name another message.
func (ev *evidence) changedAnew(s *story, r run) bool {
	key, _, _ := strings.Cut(s.payload, " ")
	return slices.ContainsFunc(ev.entries, func(e entry) bool {
		return (e.Kind == sent || e.Kind == refused) && strings.HasPrefix(e.Payload, key+"/") && ev.sentAnew(&e, r)
	})
}

// soonest is, of the sends that may have been the last one before a message was handed out at an instant, the one
// that made it due soonest. Redis may have forgotten those that are unsure.
func soonest(sends, unsure []*entry, at int64) (found *entry) {
	for _, e := range slices.Concat(sends, unsure) {
		last := e.begun() <= at && !slices.ContainsFunc(sends, func(later *entry) bool { return later.after(e, at) })
		if last && (found == nil || e.Due < found.Due) {
			found = e
		}
	}
	return found
}

// changedBetween says whether a message may have been changed between two of its runs, which forgets its failures.
func (s *story) changedBetween(prev, r run) bool {
	return slices.ContainsFunc(slices.Concat(s.changes, s.unsure),
		func(c *entry) bool { return c.At >= prev.until() && c.begun() <= r.start.At })
}
