package delayqueue

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestSilenceTeachesNothing: however many attempts were in vain, the next one waits no longer for a connection, and no
// longer in all if none of them was written.
func TestSilenceTeachesNothing(t *testing.T) {
	producer := &store{attemptTimeout: attemptTimeout}
	consumer := &store{attemptTimeout: attemptTimeout, lease: 10 * time.Second}
	for name, s := range map[string]*store{"producer": producer, "consumer": consumer} {
		p, e := new(promptness), effort{bytes: attemptBytesPerSecond / 2}
		want := p.bounds(s, e)
		if want.first != attemptTimeout || want.whole != attemptTimeout*3/2 {
			t.Fatalf("%s: the first attempt has %+v", name, want)
		}
		for range 40 {
			p.inVain(p.bounds(s, e), false)
		}
		if got := p.bounds(s, e); got != want {
			t.Errorf("%s: after 40 attempts without a connection %+v, want %+v", name, got, want)
		}
		for range 40 {
			p.inVain(p.bounds(s, effort{}), true)
		}
		if got := p.bounds(s, effort{}); got.first != attemptTimeout || got.whole != attemptTimeout {
			t.Errorf("%s: after 40 small calls that were written in vain %+v", name, got)
		}
	}
}

// TestAnswersTeach: a late answer makes later attempts wait for the like, until an answer comes in time; a large call that
// was written in vain has more time for its bytes; and of a server that stood still the last attempt tells how it is.
func TestAnswersTeach(t *testing.T) {
	s, p, large := &store{attemptTimeout: attemptTimeout}, new(promptness), effort{bytes: attemptBytesPerSecond}
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	p.inVain(p.bounds(s, large), true)
	if got := p.bounds(s, large).whole; got != attemptTimeout+2*time.Second {
		t.Errorf("after a large call in vain %v", got)
	}
	together := p.bounds(s, large)
	p.inVain(together, true)
	p.inVain(together, true)
	if got := p.bounds(s, large).whole; got != attemptTimeout+4*time.Second {
		t.Errorf("after two at a time %v", got)
	}
	p.answered(s, effort{}, ago(3*time.Second))
	if got := p.bounds(s, effort{}).first; got < 6*time.Second || got > 7*time.Second || !p.uneasy.Load() {
		t.Errorf("after an answer that took 3 s %v", got)
	}
	p.answered(s, effort{}, ago(20*time.Second)) // of an attempt that began before
	if got := p.bounds(s, effort{}).first; got > 7*time.Second {
		t.Errorf("after the answer to an earlier attempt %v", got)
	}
	p.answered(s, effort{}, time.Now().Add(time.Hour))
	if got := p.bounds(s, effort{}).whole; got != attemptTimeout || p.uneasy.Load() {
		t.Errorf("after an answer in time %v", got)
	}
}

// TestSlowConnectionsTeach: an attempt that gets its connection too late says that the way is long, however long the call could have
// taken. Otherwise no later attempt would get one.
func TestSlowConnectionsTeach(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ack  time.Duration
		size int
	}{
		"small, no time for replicas": {10 * time.Millisecond, 1}, "small": {time.Second, 1},
		"large": {10 * time.Millisecond, 600 << 10}, "large, no replicas": {0, 600 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := wired(t)
			q := f.queueOn(cli, nil)
			if c.ack > 0 {
				q.WithReplicaAck(1, c.ack)
			}
			q.store.attemptTimeout = minAttemptTimeout
			wire.SetDelay(4 * minAttemptTimeout)
			info, err := q.Send(withTimeout(t), strings.Repeat("x", c.size), inAnHour)
			if info.ID == "" || err != nil && !errors.Is(err, ErrNotReplicated) {
				t.Errorf("%+v, %v", info, err)
			}
			if n, err := NewMonitor(f.name, f.cli).Counts(ctxB); err != nil || n.Pending != 1 {
				t.Errorf("stored %+v, %v", n, err)
			}
		})
	}
}

// TestSpeedOfALine: on a line of 0.3 MB/s a send of 4 MB has its time in the third attempt, whatever is answered beside it, and the
// next one in its first. A fast answer to a large call, or a while without one, ends that.
func TestSpeedOfALine(t *testing.T) {
	const took = 13 * time.Second
	s, p, large := &store{attemptTimeout: attemptTimeout}, new(promptness), effort{bytes: 4 << 20}
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	small := func() {
		p.answered(s, effort{bytes: 200}, time.Now())
		p.answered(s, effort{bytes: 1 << 20}, ago(time.Second)) // less than half of the bytes
	}
	slowly := func() time.Duration {
		t.Helper()
		for range 2 {
			b := p.bounds(s, large)
			if b.whole >= took {
				t.Errorf("an attempt has %v too early", b.whole)
			}
			small()
			p.inVain(b, true)
			small()
		}
		return p.bounds(s, large).whole
	}
	if got := slowly(); got < took {
		t.Errorf("the third attempt has %v, want %v", got, took)
	}
	if small := p.bounds(s, effort{bytes: 200}).whole; small > attemptTimeout+50*time.Millisecond {
		t.Errorf("a small call has %v", small)
	}
	p.answered(s, large, ago(took))
	if got := p.bounds(s, large).whole; got < took || got > 2*took || p.uneasy.Load() {
		t.Errorf("the next one has %v", got)
	}
	p.answered(s, large, ago(60*time.Second)) // of an attempt that began before
	p.answered(s, large, ago(4*time.Second))
	const first = attemptTimeout + 4*time.Second
	if got := p.bounds(s, large).whole; got != first {
		t.Errorf("after a fast answer %v", got)
	}
	small()
	slowly()
	p.speed.forgotten = ago(0)
	if got := p.bounds(s, large).whole; got != first {
		t.Errorf("after a while %v", got)
	}
}

// TestLargeSendBesideSmallOnes: on a line on which a large send needs many times what an attempt has, it gets through while small
// ones are answered at once.
func TestLargeSendBesideSmallOnes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := redis.NewClient(&redis.Options{Addr: slowLine(t, shared.Addr(), attemptBytesPerSecond/8), ReadTimeout: minAttemptTimeout})
	t.Cleanup(func() { _ = cli.Close() })
	q := f.queueOn(cli, nil)
	large := make(chan error, 1)
	go func() {
		_, err := q.Send(within(t, patience), strings.Repeat("x", attemptBytesPerSecond/16), inAnHour) // 0.5 s
		large <- err
	}()
	small := 0
	for sent := false; !sent; small++ {
		select {
		case err := <-large:
			if sent = true; err != nil {
				t.Error(err)
			}
		default:
			f.send(q, "small", inAnHour)
		}
	}
	if n := len(f.check().Pending); n != small {
		t.Errorf("%d messages, want %d", n, small)
	}
}

// TestScriptOfALargeCall: it goes with the text of its script, for all its bytes would have to be repeated if the server did not
// know that.
func TestScriptOfALargeCall(t *testing.T) {
	for size, want := range map[int][]string{100: {"evalsha", "eval"}, attemptBytesPerSecond: {"eval"}} {
		var got []string
		keys := keysOf("dq", "q")
		err := sendScript.evaluate(&keys, []any{strings.Repeat("x", size)}, func(command []any) error {
			if got = append(got, command[0].(string)); command[0] == "evalsha" {
				return answer("NOSCRIPT No matching script.")
			}
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d bytes: %v, %v", size, got, err)
		}
	}
}

// TestFewAreListenedTo: three attempts of a server are listened to at most, and one of them ends soon.
func TestFewAreListenedTo(t *testing.T) {
	p := new(promptness)
	var lives []time.Duration
	var ends []func()
	put := 0
	listen := func() (time.Duration, func()) {
		a := &stray{put: func() { put++ }}
		defer p.leave(a)
		return p.listen(a, attemptTimeout)
	}
	for range 5 {
		life, end := listen()
		lives, ends = append(lives, life), append(ends, end)
	}
	for i, want := range []time.Duration{strayLives[0], strayLives[1], strayLives[2], attemptTimeout, attemptTimeout} {
		if lives[i] != want {
			t.Errorf("attempt %d lives %v, want %v", i, lives[i], want)
		}
	}
	ends[2]()
	if life, _ := listen(); life != strayLives[2] {
		t.Errorf("when one has ended the next lives %v", life)
	}
	if p.answered(&store{attemptTimeout: attemptTimeout}, effort{}, time.Now()); put != len(strayLives) {
		t.Errorf("after an answer in time %d of them are given up for good, want all", put)
	}
}

// TestSilentOutage: connections are dead without a word, and so is what is dialled meanwhile. What waits, and what is
// begun afterwards, gets through.
func TestSilentOutage(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	var got tally
	q := f.queueOn(cli, func(payload string) bool { got.add(payload); return true })
	q.store.attemptTimeout = minAttemptTimeout
	q.StartConsume()
	f.send(q, "before")
	eventually(t, "it is handled", func() bool { return got.of("before") == 1 })
	wire.Darken()
	waits := make(chan error, 1)
	go func() { _, err := q.Send(within(t, patience), "while"); waits <- err }()
	eventually(t, "some attempts were in vain", func() bool { return f.log.count("no answer on a new connection") > 0 })
	_, err := q.Send(within(t, 20*minAttemptTimeout), "given up")
	notStored := f.fate(err) == StoredNo // it may be unknown, on a machine so slow that the first attempt was not over
	wire.Lighten()
	if err := receive(t, "what waited is sent", waits); err != nil {
		t.Error(err)
	}
	f.send(q, "after")
	eventually(t, "consuming goes on", func() bool { return got.of("while") == 1 && got.of("after") == 1 })
	eventually(t, "all is acked", func() bool { return len(f.check().Messages) == 0 })
	if notStored && got.of("given up") != 0 {
		t.Error("a message that was not stored is handled")
	}
}

// TestSlowLine: a line on which no attempt is answered in time still brings sends, deliveries and outcomes through, once each.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	var got tally
	q := f.queueOn(cli, func(payload string) bool { got.add(payload); return true })
	q.store.attemptTimeout = minAttemptTimeout
	wire.SetDelay(4 * minAttemptTimeout)
	q.StartConsume()
	for _, payload := range []string{"a", "b"} {
		if _, err := q.Send(within(t, patience), payload); err != nil {
			t.Fatal(err)
		}
	}
	ids := newIDSource()
	gone := ids.next()
	eventually(t, "a look is answered", func() bool {
		r, err := q.Intercept(ctxB, gone) // what is no id would be an error
		return err == nil && !r.Intercepted
	})
	eventually(t, "both are handled", func() bool { return got.of("a") == 1 && got.of("b") == 1 })
	wire.SetDelay(0)
	eventually(t, "all is acked", func() bool { return len(f.check().Messages) == 0 })
	if _, total := got.counts(); total != 2 {
		t.Errorf("handled %d times", total)
	}
}

type openBreaker struct{}

func (openBreaker) Allow() error       { return errBoom }
func (openBreaker) ReportResult(error) {}

// TestStopWithoutAConnection: a queue for which no connection can be made stops without waiting for a lease, whatever keeps
// the connection from being made: nothing was written.
func TestStopWithoutAConnection(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]redis.Options{
		"credentials": {CredentialsProviderContext: func(context.Context) (string, string, error) { return "", "", errBoom }},
		"limiter":     {Limiter: openBreaker{}},
		"OnConnect":   {OnConnect: func(context.Context, *redis.Conn) error { return errBoom }},
		"dialer":      {Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errBoom }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			opt.Addr = shared.Addr()
			cli := redis.NewClient(&opt)
			t.Cleanup(func() { _ = cli.Close() })
			q := noLease(f.queueOn(cli, func(string) bool { return true }))
			done := q.StartConsume()
			eventually(t, "attempts fail", func() bool { return q.current().lifecycle.outage.cause() != nil })
			if _, err := q.Send(within(t, time.Second), "x"); f.fate(err) != StoredNo {
				t.Errorf("Send: %v", err)
			}
			q.StopConsume()
			receive(t, "it stops", done)
			f.checkEmpty()
		})
	}
}

// TestLateErrorSaysHowLongItTook: a dial that gives up at once is not said to have taken as long as an attempt may.
func TestLateErrorSaysHowLongItTook(t *testing.T) {
	err := late(context.DeadlineExceeded, nil, nil, 3*time.Millisecond)
	if timeout := new(timeoutError); !errors.As(err, &timeout) || timeout.limit != 3*time.Millisecond || !noEffect(err) {
		t.Errorf("%v", err)
	}
}

// TestDeadBesideAlive: an attempt whose connection was never answered is given up after its second also if it waits for replicas,
// which takes longer, and while other connections to that server are answered.
func TestDeadBesideAlive(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	startReplica(t, primary)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	var dials atomic.Int64
	dialed := newSignal()
	f := fixtureOn(t, patientClient(primary.Addr()))
	f.send(f.queue(nil).WithReplicaAck(1, patience), "first", inAnHour) // waits for the replica
	cli := redis.NewClient(&redis.Options{Addr: primary.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			addr = silent.Addr().String()
			defer dialed.send()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	t.Cleanup(func() { _ = cli.Close() })
	q := f.queueOn(cli, nil).WithReplicaAck(1, 2*patience)
	dead := make(chan error, 1)
	go func() { _, err := q.Send(within(t, patience), "dead", inAnHour); dead <- err }()
	receive(t, "the first connection is made", dialed)
	if _, err := q.Send(within(t, patience), "alive", inAnHour); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the other send goes on", dead); err != nil {
		t.Error(err)
	}
	if n := len(f.check().Pending); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
}
