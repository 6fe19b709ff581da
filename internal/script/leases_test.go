package script

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// lease is what Redis has of the lease under which a delivery was handed out; the zero value if it is over.
func (r *rig) lease(name string) check.Lease {
	r.t.Helper()
	return r.read().Leases[r.leases[tagFor(name)].Name]
}

// TestLeaseTakenBackByParts: a large lease that is over is taken back 100 deliveries a call. Its holder has none of
// it from the first of these calls on.
func TestLeaseTakenBackByParts(t *testing.T) {
	onBoth(t, func(r *rig) {
		const n = 250
		sendDue(r, "m", n)
		f := r.fetch(NewCaller(), n)
		r.equal("lost", r.lapse(11*time.Second).Lost, 100)
		for left := 150; left > 0; {
			s := r.read()
			rest, there := s.Leases[f.Lease.Name+"~"]
			r.equal("leases, and what is left", []any{len(s.Leases), there, int(rest.Left), rest.Held, len(rest.Tags)},
				[]any{1, true, left, left, left})
			for _, name := range []string{"m0000", "m0249"} { // of which the second is in the rest
				r.equal("a late ack is void", r.settle(NewCaller(), ack(name)), []int{0})
				r.equal("a late retry is void", r.settle(NewCaller(), fails(name)), []int{0})
				r.equal("a late renewal", r.extend(name), []string{lost})
			}
			got := r.fetch(NewCaller(), 0)
			r.equal("lost, at once more", []any{got.Lost, got.more()}, []any{min(left, 100), left > 100})
			left -= got.Lost
		}
		s := r.read()
		r.equal("leases, retry", []int{len(s.Leases), len(s.Retry)}, []int{0, n})
		for id, record := range s.Fail {
			if record.Delivery != 2 || record.Losses != 1 {
				r.t.Errorf("%s: %+v", names(id), record)
			}
		}
	})
}

// TestLeaseGivenBackTwice: each repeat of a fetch whose reply has less room gives back more. The lease has the rest.
func TestLeaseGivenBackTwice(t *testing.T) {
	runScripts(t, map[string]scriptCase{"": {func(r *rig) {
		c := r.hand(msg("a", 0, sized(100)), msg("b", 0, sized(300)), msg("c", 0, sized(100)), msg("d", 0, sized(300)))
		for _, step := range []struct {
			bytes int
			want  string
		}{{600, "a b c"}, {300, "a c"}, {300, "a c"}} {
			r.equal("the repeat", handed(r.ask(c, FetchRequest{Want: 4, Bytes: step.bytes})), step.want)
			l, n := r.lease("a"), len(strings.Fields(step.want))
			r.equal("left, held, listed", []int{int(l.Left), l.Held, len(l.Tags)}, []int{n, n, n})
		}
		r.expect("ready 2:d 2:b unack a@10s c@10s fail b=2/0/0@0s d=2/0/0@0s wake 0s")
		r.done(ack("a"), ack("c"))
		r.equal("leases", len(r.read().Leases), 0)
		r.equal("the repeat", handed(r.ask(c, FetchRequest{Want: 4})), "")
	}, "ready 2:d 2:b fail b=2/0/0@0s d=2/0/0@0s wake 0s"}})
}

// TestLeaseWithoutACallRecord: a fetch that is repeated after the record of its call was lost gives the same again.
func TestLeaseWithoutACallRecord(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.put(msg("a", 0), msg("b", 0))
		c := NewCaller()
		r.equal("handed out", handed(r.fetch(c, 1)), "a")
		r.do("DEL", r.Keys.State)
		r.equal("again", handed(r.fetchAgain(c, 2)), "a")
		r.equal("then", handed(r.fetch(c, 2)), "b")
		r.done(ack("a"), ack("b"))
	})
}

// TestLeaseSettledTwice: a settlement that comes again after its record was forgotten takes nothing off the count of
// its lease.
func TestLeaseSettledTwice(t *testing.T) {
	t.Parallel()
	for name, outcomes := range map[string][]Settlement{
		"acks": {ack("a"), ack("b")}, "an ack and a failure": {ack("a"), fails("b")}, "failures": {fails("a"), fails("b")},
		"another key": {ack("a", "k"), ack("b")},
	} {
		subtest(t, name, onBoth, func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0))
			c := newCall()
			r.equal("void", r.settleAgain(c, slices.Clone(outcomes)...), []int(nil))
			r.equal("left", int(r.lease("c").Left), 2)
			r.do("HDEL", r.Keys.State, "call:"+c.ID)
			r.settleAgain(c, slices.Clone(outcomes)...)
			r.equal("left", int(r.lease("c").Left), 2)
			r.done(ack("c"), ack("d"))
			r.equal("leases", len(r.read().Leases), 0)
		})
	}
}

// beforeRead does something between a fetch and the call that reads its envelopes, and says how many such calls there
// were.
func (r *rig) beforeRead(do func() error) (reads *int) {
	reads = new(int)
	r.t.Cleanup(link.Interpose(r.Cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "hmget" {
				if *reads++; *reads == 1 {
					if err := do(); err != nil {
						return err
					}
				}
			}
			return next(ctx, cmd)
		})))
	return reads
}

func (r *rig) cancelAll(all ...string) {
	r.t.Helper()
	for _, name := range all {
		r.equal("cancel", r.cancel("id", queuetest.IDOf(name)), stateUnack)
	}
}

// TestLeaseWithoutACount: another program deleted the count of a lease. In a queue with places fetches go on, and
// what is held comes back at the end of the lease.
func TestLeaseWithoutACount(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.limits = RateLimits{Concurrency: 3}
		r.hand(msg("a", 0))
		r.do("HDEL", r.Keys.of("lease"), r.leases[tagFor("a")].Name+"#")
		r.put(msg("b", 0), msg("c", 0), msg("d", 0))
		r.take("b c")
		r.equal("lost", r.lapse(11*time.Second).Lost, 3)
	})
}

// TestLeaseWithoutARecord: another program deleted the fail record of what is held. Its ack counts, and what is not
// acked is lost.
func TestLeaseWithoutARecord(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0), msg("b", 0))
		r.done(ends(OutcomeReady, "a", 0, 0, ""), ends(OutcomeReady, "b", 0, 0, ""))
		r.take("2:a 2:b")
		r.do("DEL", r.Keys.of("fail"))
		r.done(ack("2:a"))
		r.equal("lost", r.lapse(11*time.Second).Lost, 1)
		r.equal("messages in retry", len(r.read().Retry), 1)
	})
}

// TestCancelForgotten: a failover forgets a Cancel that the holder was told of, and another Cancel follows. The
// holder is told of that, too.
func TestCancelForgotten(t *testing.T) {
	onReal(t, func(r *rig) {
		r.hand(msg("a", 0), msg("b", 0))
		before := r.snapshot()
		r.at(time.Second)
		r.cancelAll("a")
		l := r.leases[tagFor("a")]
		told := func() int64 {
			got, err := r.Store.Extend(queuetest.CtxB, r.with.Lease, []string{l.Name}, nil)
			r.equal("extend", err, nil)
			return got.Canceled
		}
		l.Canceled.Store(told())
		r.restore(before)
		r.at(2 * time.Second)
		r.cancelAll("b")
		if told() == l.Canceled.Load() {
			r.t.Error("the holder does not learn that b is canceled")
		}
		r.equal("void", r.settle(NewCaller(), ack("a"), ack("b")), []int{1})
	})
}

// TestFetchApart: a fetch of many messages reads their envelopes by a call of its own. If that call fails, or a
// message is gone by then, a repeat of the fetch brings what is held.
func TestFetchApart(t *testing.T) {
	t.Parallel()
	errCut := errors.New("cut")
	for name, c := range map[string]struct {
		between func(r *rig) error
		fails   bool // the first attempt
		want    string
	}{
		"whole":            {func(*rig) error { return nil }, false, "a b c"},
		"canceled between": {func(r *rig) error { r.cancelAll("b"); return nil }, true, "a c"},
		"all are canceled": {func(r *rig) error { r.cancelAll("a", "b", "c"); return nil }, true, ""},
		"deleted by another": {func(r *rig) error { r.do("HDEL", r.Keys.msg, queuetest.IDOf("b")); return nil }, true,
			"a c"},
		"the reply is lost":   {func(*rig) error { return errCut }, true, "a b c"},
		"lost, then canceled": {func(r *rig) error { r.cancelAll("a"); return errCut }, true, "b c"},
	} {
		subtest(t, name, onBoth, func(r *rig) {
			r.put(msg("a", 0), msg("b", 0), msg("c", 0))
			reads, by := r.beforeRead(func() error { return c.between(r) }), newCall()
			ask := FetchRequest{Want: 3, Apart: 2, Settings: &r.with}
			f, err := r.Store.Fetch(queuetest.CtxB, by, ask)
			if (err != nil) != c.fails || err != nil && !errors.Is(err, link.ErrCarriedOut) {
				r.t.Fatalf("%+v, %v", f, err)
			}
			if err != nil {
				f = r.askFirst(by, FetchRequest{Want: 3, Apart: 2}) // a repeat has the envelopes
			}
			r.equal("reads", *reads, 1)
			r.gave(f)
			r.equal("handed out", handed(taking{FetchReply: f}), c.want)
			var payloads []string
			for _, d := range takenOf(f) {
				payloads = append(payloads, d.msg.Payload)
			}
			r.equal("payloads", strings.Join(payloads, " "), c.want)
			for _, name := range strings.Fields(c.want) {
				r.done(ack(name))
			}
			r.lapse(11 * time.Second)
			r.equal("leases, messages", []int{len(r.read().Leases), len(r.read().Messages)}, []int{0, 0})
		})
	}
	subtest(t, "few", onBoth, func(r *rig) {
		r.put(msg("a", 0))
		reads := r.beforeRead(func() error { return nil })
		r.equal("handed out, reads", []any{handed(r.ask(newCall(), FetchRequest{Want: 3, Apart: 2})), *reads}, []any{"a", 0})
	})
}

// TestKeepBeforeSettlement: a settlement that comes after its lease was parted ends nothing that has left it, and the
// lease lasts.
func TestKeepBeforeSettlement(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]Settlement{"plain": ack("a"), "with a key": ack("b", "k"),
		"a failure": fails("a")} {
		subtest(t, name, onBoth, func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0, keyed("k")), msg("c", 0))
			l, held := r.leases[tagFor("a")], r.leased([]Settlement{late})
			r.equal("others", r.keeps(l.Name, "c"), 2)
			r.equal("void", r.settle(NewCaller(), held...), []int{0})
			s := r.read()
			r.equal("counts", []int64{s.Leases[l.Name].Left, s.Leases[l.Name+"~"].Left}, []int64{1, 2})
		})
	}
}

// keeps parts a lease, of which its holder holds these.
func (r *rig) keeps(lease string, names ...string) int {
	r.t.Helper()
	tags := make([]string, len(names))
	for i, name := range names {
		tags[i] = tagFor(name)
	}
	n, err := r.Store.Keep(queuetest.CtxB, lease, tags)
	queuetest.Must(r.t, err)
	return n
}

// TestListHeld: a list of what is held returns each message once, or twice while Redis resizes a table, in pages of any
// size, also if leases are renewed, or the last message of a page is settled, meanwhile.
func TestListHeld(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
		r.hand(msg("d", 0), msg("e", 0))
		r.hand(msg("f", 0))
		r.at(time.Second)
		r.hand(msg("g", 0), msg("h", 0), msg("i", 0))
		r.done(fails("h"))
		r.at(2 * time.Second)
		r.take("2:h")
		p, all := wholeList(stateUnack), "2:h a b c d e f g i"
		listed := func(what string, meanwhile func(page []string)) {
			r.t.Helper()
			got := r.walk(p, meanwhile)
			slices.Sort(got)
			r.equal(what, strings.Join(got, " "), all)
		}
		for p.Limit = 1; p.Limit < 12; p.Limit++ {
			listed(fmt.Sprint("pages of ", p.Limit), nil)
		}
		count, err := r.Store.List(queuetest.CtxB, wholeList(stateUnack))
		queuetest.Must(r.t, err)
		r.equal("a page of none counts", []int{count.Left, len(count.Entries)}, []int{9, 0})
		p.Limit = 2
		settled := 0
		listed("while the last one of pages is settled", func(page []string) {
			if last := page[len(page)-1]; r.lease(last).Left > 1 {
				r.done(ack(last))
				settled++
			}
		})
		r.equal("some are settled", settled > 0, true)
	})
	subtest(t, "renewed meanwhile", onReal, func(r *rig) {
		var all []string
		for i := range 300 { // so many that Redis keeps a table
			all = append(all, fmt.Sprint("m", i))
			r.hand(msg(all[i], 0))
		}
		p := wholeList(stateUnack)
		p.Limit = 7
		got := r.walk(p, func(page []string) {
			r.at(r.since(r.now) + 10*time.Millisecond)
			r.extend(page...)
		})
		slices.Sort(got)
		slices.Sort(all)
		for i := 2; i < len(got); i++ {
			r.equal("more than twice", got[i] == got[i-2], false)
		}
		r.equal("listed", slices.Compact(got), all)
	})
	subtest(t, "leases end meanwhile", onBoth, func(r *rig) {
		r.hand(msg("a", 0), msg("b", 0))
		r.hand(msg("c", 0), msg("d", 0))
		p := wholeList(stateUnack)
		p.Limit = 2
		got := r.walk(p, func(page []string) { r.done(ack(page[0]), ack(page[1])) })
		slices.Sort(got)
		r.equal("listed", strings.Join(got, " "), "a b c d")
		r.expect("")
	})
}

// walk lists all pages. If meanwhile is not nil, it is called after each page.
func (r *rig) walk(p ListRequest, meanwhile func(page []string)) (got []string) {
	r.t.Helper()
	for more := true; more && len(got) < 1000; {
		page, err := r.Store.List(queuetest.CtxB, p)
		queuetest.Must(r.t, err)
		more = page.Left > len(page.Entries)
		for _, e := range page.Entries {
			got, p.After = append(got, names(e.Tag)), e.Next
		}
		if n := len(page.Entries); meanwhile != nil && n > 0 {
			meanwhile(got[len(got)-n:])
		}
	}
	return got
}

func reversed(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// wholeList is a list of all that is in a structure.
func wholeList(in string) ListRequest {
	return ListRequest{In: in, From: math.MinInt64, To: math.MaxInt64}
}
