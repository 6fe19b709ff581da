package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// Groups: all producers append to the same groups (Append), which grow until they are due, or full.
var groups = []scenario{
	{
		name: "groups: consumers killed, replies lost",
		holds: "four producers append to 10 groups: each part is in one message, once, in the order of the sends; and " +
			"each message is handled with all of its parts",
		setUp: wired(),
		load:  grouped,
		hit:   losing(often, (*trial).killConsumer),
		every: 20 * time.Millisecond,
		rules: rules{maxWait: maxWait, parts: groupParts},
		check: func(t *trial, v *verdict) {
			full := slices.ContainsFunc(t.books.all(), func(e entry) bool { return len(e.Parts) == groupParts })
			if !full {
				v.problem("no group was full")
			}
		},
	},
	{
		name:  "groups: Sentinel: primary killed, WithReplicaAck(1)",
		holds: "and the same of each part whose send returned nil, beside consumers that are killed",
		setUp: sentinel,
		load:  confirmed(1, grouped),
		hit:   (*trial).failOverAmongKills,
		times: 1,
		rules: rules{maxWait: maxWait, parts: groupParts, resume: 5 * time.Second, duplicate: unheard},
	},
}

const (
	groupKeys  = 10
	groupParts = 40
)

func grouped(l *load) {
	edited(l)
	l.Keys, l.Parts = groupKeys, groupParts
}

// appendParts appends to all groups, one part or several at a time.
func appendParts(ctx context.Context, q *delayqueue.DelayQueue, book ledger, o order) {
	onKeys(ctx, o, "group%02d", func(key string, n int) int {
		var payloads []string
		for range 1 + rand.IntN(2)*rand.IntN(5) {
			payloads = append(payloads, fmt.Sprintf("%s/%s-%05d", key, o.Name, n))
			n++
		}
		appendTo(ctx, q, book, key, payloads, o.Load)
		return n
	})
}

// appendTo appends parts to a group.
func appendTo(ctx context.Context, q *delayqueue.DelayQueue, book ledger, key string, payloads []string, l load) {
	ctx, cancel := context.WithTimeout(ctx, l.Patience)
	defer cancel()
	options := []delayqueue.MsgOption{
		delayqueue.WithKey(key, delayqueue.Append), delayqueue.WithMaxParts(l.Parts), delayqueue.WithMaxWait(maxWait),
		delayqueue.WithDelay(minQuiet + rand.N(2*minQuiet)),
	}
	e := entry{Kind: sent, Word: appended}
	begun := time.Now()
	if len(payloads) == 1 {
		e.Payload = payloads[0]
		info, err := q.Send(ctx, e.Payload, options...)
		book.writeKeyed(e, begun, info, err)
		return
	}
	var batch []delayqueue.Outgoing
	for _, payload := range payloads {
		batch = append(batch, delayqueue.Outgoing{Payload: payload, Options: options})
	}
	results, _ := q.SendBatch(ctx, batch) // each result has its own error
	for i, r := range results {
		e.Payload = payloads[i]
		book.writeKeyed(e, begun, r.Info, r.Err)
	}
}

// precedes says that a part was sent before another one: before the send of that began, or by the same sender.
func (e *entry) precedes(other *entry) bool {
	mine, _, _ := strings.Cut(e.Payload, "-")
	theirs, _, _ := strings.Cut(other.Payload, "-")
	return e.At < other.begun() || mine == theirs && e.Payload < other.Payload
}

// weighParts wants each delivery of a group to have all parts that were sent to it by then, once and in order, and
// one that had all of them to have been handled.
func (v *verdict) weighParts(ev *evidence, s *story, sends map[string]*entry) {
	handled := false // with all parts
	for _, r := range s.runs {
		has := map[string]bool{}
		for i, part := range r.start.Parts {
			e := sends[part]
			switch {
			case has[part]:
				v.problem("%s: part %s is there twice", s.payload, part)
			case e == nil, e.Kind == sent && e.ID != r.start.ID && !ev.sentAnew(e, r):
				v.problem("%s: part %s was not sent to it", s.payload, part)
			default:
				for _, before := range r.start.Parts[:i] {
					if b := sends[before]; b != nil && e.precedes(b) {
						v.problem("%s: part %s stands before %s, which was sent before it", s.payload, before, part)
					}
				}
			}
			has[part] = true
		}
		if len(has) > ev.rules.parts {
			v.problem("%s: %d parts, at most %d", s.payload, len(has), ev.rules.parts)
		}
		all := true
		for _, e := range s.changes {
			if all = all && has[e.Payload]; !has[e.Payload] && e.At < r.start.At {
				v.problem("%s: handed out without part %s", s.payload, e.Payload)
			}
		}
		handled = handled || all && (r.word() == succeeded || ev.state.Where(r.start.ID) == "garbage")
	}
	if len(s.runs) > 0 && !handled {
		v.problem("%s: not handled with all of its parts", s.payload)
	}
}
