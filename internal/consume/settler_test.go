package consume

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestFitting: a settlement moves about 1 MB and 1,000 messages: results, what follows, and what Redis reads because
// another send may have taken a key. One outcome of any size goes alone.
func TestFitting(t *testing.T) {
	const most = script.MaxBatchBytes
	of := func(n int, o outcome, key string, payload, follows, followBytes int) (batch []outcome) {
		for range n {
			o := o
			o.d = &delivery{msg: message.Delivered{Key: key, Payload: strings.Repeat("x", payload)}}
			for range follows {
				o.follows = append(o.follows, &script.SendMessage{Text: strings.Repeat("x", followBytes)})
			}
			batch = append(batch, o)
		}
		return batch
	}
	results := func(sizes ...int) (batch []outcome) {
		for _, n := range sizes {
			batch = append(batch, of(1, outcome{result: strings.Repeat("x", n)}, "", 0, 0, 0)...)
		}
		return batch
	}
	kind := func(kind script.OutcomeKind, key string) []outcome {
		return of(20, outcome{kind: kind}, key, 300<<10, 0, 0)
	}
	for name, c := range map[string]struct {
		batch []outcome
		want  int
	}{
		"small results": {results(1, 2, 3), 3}, "a result of 1 MB": {results(most), 1},
		"and an empty one": {results(most, 0), 2},
		"and a byte":       {results(most, 1), 1}, "behind an empty one": {results(0, most, 1), 2},
		"two halves": {results(most/2, most/2, 1), 2},
		"failed":     {kind(script.OutcomeRetry, "k"), 3}, "garbage": {kind(script.OutcomeGarbage, "k"), 3},
		"released": {kind(script.OutcomeReady, "k"), 3},
		"acked":    {kind(script.OutcomeAck, "k"), 20}, "without a key": {kind(script.OutcomeRetry, ""), 20},
		"nothing follows": {of(10, outcome{}, "", 0, 0, 0), 10}, "a few follow": {of(10, outcome{}, "", 0, 3, 10), 10},
		"many follow": {of(10, outcome{}, "", 0, 100, 10), 4}, "long ones follow": {of(10, outcome{}, "", 0, 1, 300<<10), 3},
		"too long ones follow": {of(10, outcome{}, "", 0, 2, 1<<20), 1},
	} {
		if got := fitting(c.batch); got != c.want {
			t.Errorf("%s: %d of %d, want %d", name, got, len(c.batch), c.want)
		}
	}
}

// TestWhatHandlersSayInMemory: it counts as held until it is settled, a result that nobody asked for is dropped at
// once, and a handling keeps nothing afterwards.
func TestWhatHandlersSayInMemory(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	const size = 100 << 10
	said, settle := make(chan *handling, 20), make(chan struct{})
	s.over = s.Client()
	t.Cleanup(link.Interpose(s.over,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) > 1 && args[1] == script.SettleScript.SHA {
				<-settle
			}
			return next(ctx, cmd)
		})))
	text := strings.Repeat("x", size)
	s.settings.MaxBytes, s.settings.Lease = 3*size, time.Minute
	s.settings.Handle = func(ctx context.Context, msg *message.Delivered) Verdict {
		h := HandlingOf(ctx)
		s.Must(h.SetResult(text))
		if msg.Payload == "follows" {
			s.Must(h.Follow(s.message(message.Envelope{Payload: text})))
		}
		said <- h
		return Verdict{}
	}
	c := s.start()
	var all []*handling
	handle := func(payload string, held int, rest ...func(*message.Envelope)) {
		t.Helper()
		s.send(payload, rest...)
		all = append(all, queuetest.Receive(t, "it is handled", said))
		queuetest.Eventually(t, fmt.Sprint(held, " results are held"), func() bool {
			return c.leases.held.totals().bytes/size == held
		})
	}
	kept := func(e *message.Envelope) { e.Retention = time.Hour }
	handle("not kept", 0)
	handle("kept", 1, kept)
	handle("follows", 3, kept)
	if n, _ := c.poller.limit(); n != 0 {
		t.Errorf("room for %d", n)
	}
	close(settle)
	queuetest.Eventually(t, "no byte is held", func() bool { return c.leases.held.totals().bytes == 0 })
	for i, h := range all {
		if h.result != "" || h.follows != nil {
			t.Errorf("%d keeps %d bytes and %d messages", i, len(h.result), len(h.follows))
		}
	}
}

// TestSettleUnreadableReply: it is not asked for again for ever, for then no other settlement would get out;
// and there is an error in the log.
func TestSettleUnreadableReply(t *testing.T) {
	t.Parallel()
	s, wire := wiredServing(t)
	s.settings.Callback = func(string) bool { return true }
	c := s.start()
	struck, release := wire.HoldReply(redistest.Script(script.SettleScript.SHA))
	defer release()
	s.send("a")
	queuetest.Receive(t, "the answer is held", struck)
	wire.Cut() // before the call is repeated
	call := "call:" + c.settler.caller.ID
	queuetest.Eventually(t, "the settler's call is recorded", func() bool { return s.Check().Fields[call] != "" })
	s.Must(s.Cli.HSet(queuetest.CtxB, s.Key("state"), call, fmt.Sprintf("1 %d 0 1.0 ", time.Now().UnixMicro())).Err())
	wire.Mend()
	queuetest.Eventually(t, "the log says so", func() bool { return s.Log.Count("unexpected reply") > 0 })
	b := s.send("b")
	queuetest.Eventually(t, "settling goes on", func() bool { return s.Where(b) == "gone" })
	s.CheckEmpty()
}

// TestCallNumberThatIsNotOurs: somebody else has written a later call of this consumer into state.
func TestCallNumberThatIsNotOurs(t *testing.T) {
	t.Parallel()
	s, got := newServing(t), make(chan string, 1)
	s.settings.Callback = func(payload string) bool { got <- payload; return true }
	s.settings.FetchInterval = 50 * time.Millisecond
	c := s.start()
	queuetest.Eventually(t, "it has called", func() bool { return s.Check().Fields["seen"] != "" })
	for field := range s.Check().Fields {
		if strings.HasPrefix(field, "call:") {
			s.Must(s.Cli.HSet(queuetest.CtxB, s.Key("state"), field, "999999999 1700000000000000 ").Err())
		}
	}
	queuetest.Eventually(t, "it says so", func() bool { return s.Log.Count("changed what this queue remembers") == 1 })
	for _, forged := range []string{"999999999 1700000000000000 ",
		"%d 1700000000000000 rubbish "} { // of the settler's next call
		if n := c.settler.caller.N + 1; strings.Contains(forged, "%d") {
			forged = fmt.Sprintf(forged, n)
		}
		s.Must(s.Cli.HSet(queuetest.CtxB, s.Key("state"), "call:"+c.settler.caller.ID, forged).Err())
		s.send("x")
		queuetest.Receive(t, "it goes on", got)
		queuetest.Eventually(t, "it is acked", func() bool {
			return len(s.Check().Messages) == 0 && c.leases.held.totals().deliveries == 0
		})
	}
}

// TestLogOfVoidSettlements: after a failover there may be hundreds.
func TestLogOfVoidSettlements(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	c := s.start()
	var batch []outcome
	var ds []*delivery
	for _, id := range []string{"a", "b", "c"} {
		d := &delivery{consumer: c, lease: unknownLease(), tag: id, msg: message.Delivered{ID: id, Delivery: 1},
			terms: &noTerms}
		ds, batch = append(ds, d), append(batch, outcome{d: d, kind: script.OutcomeGarbage, err: queuetest.ErrBoom})
	}
	c.leases.held.add(ds...)
	c.settler.finish(batch, script.SettleReply{Void: []int{0, 2}}, nil)
	s.Log.Says(t, 1, "came too late", `messages=2 message.ids="[a c]"`)
	s.Log.Says(t, 1, "came too late")
	s.Log.Says(t, 1, "gave up on a message")
}

// TestSlowGarbageHandler: what it is too slow for is dropped and counted, and settling goes on.
func TestSlowGarbageHandler(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	var told atomic.Int64
	s.settings.Workers = 4
	s.settings.Handle = func(context.Context, *message.Delivered) Verdict {
		return Verdict{Err: queuetest.ErrBoom, SkipRetry: true}
	}
	s.settings.OnGarbage = func(context.Context, *message.Delivered, error) {
		told.Add(1)
		select {
		case entered <- struct{}{}:
		default:
		}
		<-release
	}
	c := s.start()
	s.send("first")
	queuetest.Receive(t, "the garbage handler is at it", entered)
	const n = maxNotices + 100
	s.backlog(n)
	dropped := func() (total int) {
		for _, m := range regexp.MustCompile(`garbage handler is too slow.* messages=(\d+)`).FindAllStringSubmatch(
			s.Log.String(), -1) {
			k, err := strconv.Atoi(m[1])
			s.Must(err)
			total += k
		}
		return total
	}
	queuetest.Eventually(t, "all are garbage", func() bool { return len(s.Check().Garbage) == n+1 })
	queuetest.Eventually(t, "the consumer knows it", func() bool {
		return c.leases.held.totals().deliveries == 0 && dropped() >= 100
	})
	c.Stop()
	close(release)
	queuetest.Receive(t, "the stop has waited for the rest", c.Done())
	if told.Load() != maxNotices+1 || dropped() != 100 {
		t.Errorf("told of %d, %d are said to be dropped, want %d and 100", told.Load(), dropped(), maxNotices+1)
	}
}

// TestSettlementOfTheSameReason: what is put off again and again, for a reason that is no failure and no loss, is one
// error.
func TestSettlementOfTheSameReason(t *testing.T) {
	for name, c := range map[string]struct {
		o    outcome
		text string
	}{
		"throttled":          {outcome{kind: script.OutcomeRetry, throttle: true, text: "429"}, ""},
		"set aside":          {outcome{kind: script.OutcomeRetry, losses: 1, text: "429"}, ""},
		"for another reason": {outcome{kind: script.OutcomeRetry, throttle: true, text: "428"}, "428"},
		"a failure":          {outcome{kind: script.OutcomeRetry, failures: 1, text: "429"}, "429"},
		"a loss":             {outcome{kind: script.OutcomeRetry, losses: 2, text: "429"}, "429"},
		"garbage":            {outcome{kind: script.OutcomeGarbage, throttle: true, leaves: true, text: "429"}, "429"},
	} {
		c.o.d = &delivery{lease: unknownLease(), losses: 1, terms: &terms{errors: "\x1e5 2 429\x1e4 1 428"}}
		if s := c.o.settlement(&Settings{}); s.Text != c.text || s.Errors != c.o.d.errors || s.Leaves ||
			(s.Kind == script.OutcomeGarbage) != (name == "garbage") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestSettlementOfWhatIsKept: what an ack does beside is done as well if the message is kept.
func TestSettlementOfWhatIsKept(t *testing.T) {
	for _, d := range []time.Duration{0, time.Hour} {
		o := outcome{follows: []*script.SendMessage{{}}, d: &delivery{lease: unknownLease(), msg: message.Delivered{Key: "k"},
			terms: &terms{retention: d, keyHold: time.Minute, counts: "c", lane: "001l"}}}
		s := o.settlement(&Settings{})
		if len(s.Follows) != 1 || s.Hold != time.Minute || s.Counts != "c" || s.Lane != "001l" {
			t.Errorf("kept for %v: %+v", d, s)
		}
	}
}

// TestNoticeOfPoison: the garbage handler gets a group that is poison with all its parts, or is told that some are
// missing.
func TestNoticeOfPoison(t *testing.T) {
	e := message.Envelope{Payload: "a", Due: time.Now().UnixMicro()}
	e.Group.Count, e.Group.Bytes = 3, 1
	e.Countdown = 5
	got := &script.TickReply{
		Dead: []script.DeadMessage{{ID: "id", Envelope: e.Encode(message.When{Us: e.Due, Absolute: true}),
			Fail: "3 1 2 5 lost"}},
		Extras: script.Extras{Parts: map[int][]string{-1: {"b", ""}}, Missing: map[int]int{-1: 3}}}
	if n := noticeOfPoison(got, 0); n.err != ErrPoison || !reflect.DeepEqual(n.msg.Parts, []string{"a", "b", ""}) ||
		n.failures != 1 || n.msg.Delivery != 2 || n.msg.CountdownLeft != 3 {
		t.Errorf("%+v, %+v", n, n.msg)
	}
	got.Parts[-1], got.Missing = []string{"b"}, nil // and the reply does not say how many acks are missing
	if n := noticeOfPoison(got, 0); n.err == ErrPoison || n.msg.Parts != nil || n.msg.CountdownLeft != 5 {
		t.Errorf("with one part less: %+v, %+v", n, n.msg)
	}
}
