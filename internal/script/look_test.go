package script

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// looked is what look and list say of a message, read.
type looked struct {
	*lookReply
	message.Delivered // as its next delivery has it, or the current one
	message.FailRecord
	broken error
}

// readOf reads an envelope and a fail record.
func readOf(l *lookReply) *looked {
	m := &looked{lookReply: l, FailRecord: message.FailRecord{Delivery: 1}}
	e, err := message.DecodeEnvelope(l.Text)
	if l.Record != "" {
		var bad error
		m.FailRecord, bad = message.ParseFail(l.Record)
		err = errors.Join(err, bad)
	}
	m.Delivered = e.Delivered(l.ID, m.FailRecord.Delivery, m.FailRecord.Failures)
	if err == nil && e.Group.Count > 0 && l.Parts != nil {
		if err = e.Group.Fill(l.Parts); err == nil {
			m.Delivered.Parts = append([]string{m.Payload}, l.Parts...)
		}
	}
	m.broken = err
	return m
}

// looks finds a message by "id" or "key"; nil if it is nowhere, or if its key is held.
func (r *rig) looks(by, what string) *looked {
	r.t.Helper()
	l, err := r.Store.Look(queuetest.CtxB, by, what, 0)
	r.equal("look", err, nil)
	if err != nil || l == nil || l.Held {
		return nil
	}
	return readOf(l)
}

// A taken delivery is what a fetch hands out, read.
type taken struct {
	lease  *Lease
	tag    string
	msg    message.Delivered
	losses int
	errors string
	broken error

	ttl, keyHold, retention time.Duration
	since                   int64
	counts                  string
	countdown               bool
	lane                    string
}

// takenOf reads the deliveries of a fetch.
func takenOf(f FetchReply) (all []taken) {
	for i, tag := range f.Tags {
		e, broken := message.DecodeEnvelope(f.Envelopes[i])
		var record message.FailRecord
		if i < len(f.Fails) && f.Fails[i] != "" {
			var err error
			record, err = message.ParseFail(f.Fails[i])
			broken = errors.Join(broken, err)
		}
		if broken == nil && (e.Group.Count > 0 || f.Parts[i] != nil) {
			broken = e.Group.Fill(f.Parts[i])
		}
		id, n := message.SplitTag(tag)
		all = append(all, taken{f.Lease, tag, e.Delivered(id, n, record.Failures), record.Losses, record.Errors, broken,
			e.TTL, e.KeyHold, e.Retention, e.Since, e.Counts, e.Countdown > 0, e.Lane.Text()})
		all[i].msg.CountdownLeft = f.Missing[i]
	}
	return all
}

// ends is the settlement of a delivery. An ack is made as the message wants it.
func (d *taken) ends(kind OutcomeKind) Settlement {
	s := Settlement{Lease: d.lease, Tag: d.tag, ID: d.msg.ID, Key: d.msg.Key, Number: d.msg.Delivery, Kind: kind,
		Failures: d.msg.Failures, Losses: d.losses, Errors: d.errors, Lane: d.lane}
	if kind != OutcomeAck {
		return s
	}
	s.Counts, s.Countdown = d.counts, d.countdown
	if s.Parts = len(d.msg.Parts); s.Key != "" {
		s.Hold = d.keyHold
	}
	if d.retention > 0 {
		s.Kind, s.Delay = OutcomeDone, d.retention
	}
	return s
}

// fails makes a settlement that of a failure.
func (s Settlement) fails(text string) Settlement {
	s.Failed, s.Failures, s.Losses, s.Text = true, s.Failures+1, 0, text
	return s
}

// TestScriptLook: a look by id finds a message in every state, with its instant.
func TestScriptLook(t *testing.T) {
	onBoth(t, func(r *rig) {
		everywhere(r)
		r.put(msg("far", time.Hour))
		for name, want := range map[string]struct {
			state string
			at    time.Duration
		}{
			"far": {statePending, time.Hour + r.since(r.now)}, "due": {stateReady, r.since(0)},
			"ready": {stateReady, r.since(0)},
			"retry": {stateReady, r.since(0)}, "lost": {stateUnack, 10 * time.Second}, "dead": {stateGarbage, 0},
		} {
			if got := r.looks("id", queuetest.IDOf(name)); got == nil || got.State != want.state || r.since(got.At) != want.at ||
				got.Payload != name {
				r.t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	})
}

// TestScriptList: a list returns each message once, forwards and backwards, in pages of any size, also if the last
// message of a page is deleted meanwhile.
func TestScriptList(t *testing.T) {
	onBoth(t, func(r *rig) {
		var all []string
		for i := range 9 { // three at each instant
			name := fmt.Sprint("m", i)
			all = append(all, name)
			r.put(msg(name, time.Duration(1+i/3)*time.Second))
		}
		p := wholeList(statePending)
		p.Part = "later"
		walk := func(want ...string) {
			r.t.Helper()
			r.equal(fmt.Sprintf("%+v", p), r.walk(p, nil), want)
		}
		for p.Limit = 1; p.Limit < 11; p.Limit++ {
			p.Back = false
			walk(all...)
			p.Back = true
			walk(reversed(all)...)
		}
		p.Limit, p.Back = 2, false
		r.at(2 * time.Second)
		walk("m6", "m7", "m8")
		p.Part = "due"
		walk("m0", "m1", "m2", "m3", "m4", "m5")
		p.Part, p.From, p.To = "", rigBase+2_000_000, rigBase+2_000_001
		walk("m3", "m4", "m5")
		p = wholeList(statePending)
		p.Limit = 2
		got := r.walk(p, func(page []string) {
			r.steers(SteerDelete, 0, page[len(page)-1])
		})
		r.equal("while each page's last one is deleted", got, all)
		p.Back = true
		walk("m6", "m4", "m2", "m0")
	})
}

// TestScriptReadLimit: of an envelope that is longer than the bound, look and list return the length alone.
func TestScriptReadLimit(t *testing.T) {
	onBoth(t, func(r *rig) {
		for i, name := range []string{"small", strings.Repeat("large", 400)} {
			m := msg(name, time.Duration(1+i)*time.Second)
			r.put(m)
		}
		large := queuetest.IDOf(strings.Repeat("large", 400))
		for most, read := range map[int]bool{0: true, 1000: false, 1 << 20: true, -5: true} {
			got, err := r.Store.Look(queuetest.CtxB, "id", large, most)
			if err != nil || got == nil || got.State != statePending || got.ID != large || isLarge(got.Text) == read {
				r.t.Errorf("within %d: %+v, %v", most, got, err)
			}
			p := ListRequest{In: statePending, From: math.MinInt64, To: math.MaxInt64, Most: most, Limit: 10}
			page, err := r.Store.List(queuetest.CtxB, p)
			if err != nil || len(page.Entries) != 2 || r.payload(page.Entries[0]) != "small" ||
				isLarge(page.Entries[1].Text) == read || page.Entries[1].Tag != large {
				r.t.Errorf("a list within %d: %+v, %v", most, page, err)
			}
		}
		// What another program wrote is text like another, also if it reads like that answer.
		for _, text := range []string{"\x00large 5", "\x00large x", "\x00large " + strings.Repeat("9", 500)} {
			r.do("HSET", r.Keys.msg, large, text)
			for _, most := range []int{0, 400, 1000} {
				got, err := r.Store.Look(queuetest.CtxB, "id", large, most)
				if err != nil || got == nil || readOf(got).broken == nil || most == 0 && got.Text != text {
					r.t.Errorf("%.20q within %d: %+v, %v", text, most, got, err)
				}
			}
		}
		r.do("HDEL", r.Keys.msg, large)
		r.do("ZREM", r.Keys.of("pending"), large)
		r.do("HDEL", r.Keys.msg, large)
	})
}

func isLarge(text string) bool {
	_, large := Unread(text)
	return large
}

// payload is that of a listed message.
func (r *rig) payload(l Listed) string {
	r.t.Helper()
	e, err := message.DecodeEnvelope(l.Text)
	r.equal("envelope", err, nil)
	return e.Payload
}

func TestScriptCounts(t *testing.T) {
	onBoth(t, func(r *rig) {
		want := func(what string, want QueueCounts) {
			r.t.Helper()
			r.equal(what, r.queueCounts(), want)
		}
		at := func(d time.Duration) time.Time { return time.UnixMicro(rigBase).Add(d) }
		want("nothing", QueueCounts{})
		r.put(msg("a", 2*time.Second), msg("b", 2*time.Second), msg("c", 3*time.Second), msg("d", 3*time.Second),
			msg("e", time.Hour))
		r.equal("books", r.counts().BooksSince.Equal(at(0)), true)
		want("pending", QueueCounts{Counts: Counts{Pending: 5, NextDue: at(2 * time.Second)}})
		r.at(2*time.Second - time.Microsecond)
		want("not yet due", QueueCounts{Counts: Counts{Pending: 5, NextDue: at(2 * time.Second)}})
		r.at(2100 * time.Millisecond)
		want("due", QueueCounts{Counts: Counts{Pending: 3, Ready: 2, Behind: 100 * time.Millisecond,
			NextDue: at(3 * time.Second)}})
		r.take("a b")
		want("handed out", QueueCounts{Counts: Counts{Pending: 3, Unack: 2, NextDue: at(3 * time.Second)}})
		r.done(ends(OutcomeReady, "a", 0, 0, ""), ends(OutcomeRetry, "b", 1, 0, ""))
		want("released and failed", QueueCounts{Counts: Counts{Pending: 3, Ready: 1, Retry: 1, NextDue: at(3 * time.Second)}})
		r.at(3*time.Second - time.Microsecond)
		want("waiting since it was released",
			QueueCounts{Counts: Counts{Pending: 3, Ready: 1, Retry: 1, Behind: 900*time.Millisecond - time.Microsecond,
				NextDue: at(3 * time.Second)}})
		r.at(4 * time.Second)
		want("retry due",
			QueueCounts{Counts: Counts{Pending: 1, Ready: 4, Behind: 1900 * time.Millisecond, NextDue: at(time.Hour)}})
		r.equal("handed out", len(r.fetch(NewCaller(), 10).Tags), 4)
		r.done(ends(OutcomeGarbage, "2:a", 1, 0, ""), ends(OutcomeGarbage, "c", 1, 0, ""))
		want("garbage", QueueCounts{Counts: Counts{Pending: 1, Unack: 2, Garbage: 2, NextDue: at(time.Hour)}})
		r.done(ack("2:b"), ack("d"))
		r.equal("intercept", r.intercept(NewCaller(), "id", queuetest.IDOf("e")), statePending)
		want("all settled", QueueCounts{Counts: Counts{Garbage: 2}})
		r.read()
	})
}

// TestScriptForecast: each message counts in one span, whatever score another program gave it, and a span has its first
// instant and not its last.
func TestScriptForecast(t *testing.T) {
	onBoth(t, func(r *rig) {
		counted := func(what string, from int64, step time.Duration, n int, want ...int64) ForecastReply {
			r.t.Helper()
			got, err := r.Store.Forecast(queuetest.CtxB, from, step, n)
			var dues []int64 // before, in each, after; pending and retry of each
			for _, d := range got.Due {
				dues = append(dues, d.Pending, d.Retry)
			}
			if err != nil || !slices.Equal(dues, want) || got.Now != r.now {
				r.t.Errorf("%s: %+v, %v; want %v at %d", what, got, err, want, r.now)
			}
			return got
		}
		counted("an empty queue", 0, time.Second, 2, 0, 0, 0, 0, 0, 0, 0, 0)
		add := func(key string, scores ...string) {
			for i, score := range scores {
				r.do("ZADD", key, score, fmt.Sprint(i))
			}
		}
		at := func(d time.Duration) string { return fmt.Sprint(rigBase + d.Microseconds()) }
		add(r.Keys.of("pending"), at(-time.Microsecond), at(0), at(time.Second-time.Microsecond), at(time.Second),
			at(2*time.Second-time.Microsecond), at(2*time.Second), "+inf")
		add(r.Keys.of("retry"), "-inf", at(-time.Hour), at(time.Second), at(time.Second)+".5", "1e300")
		got := counted("from now on", 0, time.Second, 2, 1, 2, 2, 0, 2, 2, 2, 1)
		r.equal("from", got.From, rigBase)
		counted("from elsewhere", rigBase+1_000_000, time.Second, 1, 3, 2, 2, 2, 2, 1)
		counted("from the beginning", 1, time.Hour, 1, 0, 1, 0, 0, 7, 4)
		counted("to the end", rigBase, message.MaxDelay, 1, 1, 2, 5, 2, 1, 1)
		queuetest.Must(r.t, queuetest.Failure(r.Store.Forecast(queuetest.CtxB, message.Forever, message.MaxDelay, 500)))
		r.do("DEL", r.Keys.of("pending"), r.Keys.of("retry"))
	})
}
