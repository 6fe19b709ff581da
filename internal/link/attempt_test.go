package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestAttemptBound: an attempt has a second, less if the client's ReadTimeout or a quarter of a lease is less, a
// second for each MB, and what the server may take.
func TestAttemptBound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		read, lease time.Duration
		effort      Effort
		want        time.Duration
	}{
		"the default":            {want: time.Second},
		"a patient client":       {read: time.Minute, want: time.Second},
		"a hasty client":         {read: 300 * time.Millisecond, want: 300 * time.Millisecond},
		"one that is too hasty":  {read: time.Millisecond, want: minAttemptTimeout},
		"a short lease":          {lease: 2 * time.Second, want: 500 * time.Millisecond},
		"a long lease":           {lease: time.Minute, want: time.Second},
		"4 MB":                   {effort: Effort{Bytes: 4 << 20}, want: 5 * time.Second},
		"4 MB, a short lease":    {lease: 2 * time.Second, effort: Effort{Bytes: 4 << 20}, want: 4500 * time.Millisecond},
		"1 MB, and for replicas": {effort: Effort{Bytes: 1 << 20, Extra: time.Minute}, want: 62 * time.Second},
	} {
		cli := redis.NewClient(&redis.Options{Addr: "nowhere:1", ReadTimeout: c.read})
		defer cli.Close()
		s := NewServer(cli, "q")
		if c.lease > 0 {
			s = s.ForConsumer(c.lease)
			defer s.Release()
		}
		if got := s.limit(c.effort); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestResultIsWaitedFor: a call that has ended in time has its result, however long the way to who waits for it takes.
func TestResultIsWaitedFor(t *testing.T) {
	t.Parallel()
	_, server := queuetest.OwnBase(t)
	s := NewServer(queuetest.RedisClient(t, server.Addr()), "q")
	s.AttemptTimeout = queuetest.Patience
	ctx := queuetest.Within(t, 2*queuetest.Patience)
	err := s.Attempt(ctx, Effort{Call: func(context.Context, redis.UniversalClient) error {
		s.Link.mu.Lock() // a pool that has failed cannot be put back
		time.AfterFunc(10*callGrace, s.Link.mu.Unlock)
		return io.EOF
	}})
	if !errors.Is(err, io.EOF) {
		t.Errorf("a call that ended with EOF: %v", err)
	}
}

// TestSilenceMakesNoBoundLonger: however many attempts were in vain, the next one is as long as the first, and goes
// over a new connection.
func TestSilenceMakesNoBoundLonger(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	queuetest.Must(t, err)
	defer silent.Close()
	cli := redis.NewClient(&redis.Options{Addr: silent.Addr().String(), ReadTimeout: minAttemptTimeout})
	defer cli.Close()
	l := linkOf(cli)
	s := NewServer(cli, "q")
	for range 5 {
		before := l.poolAt(place{})
		err := s.Attempt(queuetest.CtxB, Effort{Call: func(ctx context.Context, cli redis.UniversalClient) error {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > minAttemptTimeout*6/5 {
				t.Errorf("the attempt may last until %v", deadline)
			}
			return cli.Ping(ctx).Err()
		}})
		if !TimedOut(err) || !Transient(err) || !NoEffect(err) {
			t.Errorf("timed out %v, transient %v, no effect %v: %v", TimedOut(err), Transient(err), NoEffect(err), err)
		}
		if l.poolAt(place{}) == before {
			t.Error("the next attempt takes the same connections")
		}
	}
}

// TestCallbacksThatHang: a callback of the user that hangs while a connection is made keeps neither the call nor its
// slot.
func TestCallbacksThatHang(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	for name, opt := range map[string]*redis.Options{
		"OnConnect":           {OnConnect: func(context.Context, *redis.Conn) error { <-release; return nil }},
		"CredentialsProvider": {CredentialsProvider: func() (string, string) { <-release; return "", "" }},
		"CredentialsProviderContext": {CredentialsProviderContext: func(context.Context) (string, string, error) {
			<-release
			return "", "", nil
		}},
	} {
		opt.Addr, opt.ReadTimeout = queuetest.Shared.Addr(), minAttemptTimeout
		cli := redis.NewClient(opt)
		defer cli.Close()
		s := NewServer(cli, "q").ForConsumer(time.Hour)
		defer s.Release()
		p := s.Link.poolAt(place{consuming: true})
		err := call(s)
		if !TimedOut(err) || !NoEffect(err) || len(p.inFlight) > 0 || !p.retired() {
			t.Errorf("%s: %d calls in flight, retired %v: %v", name, len(p.inFlight), p.retired(), err)
		}
	}
}

// TestTrust: which errors end the trust in the connections to a server, and only in those of that place.
func TestTrust(t *testing.T) {
	t.Parallel()
	l := linkOf(queuetest.NewBase(t).Client())
	here := place{addr: queuetest.Shared.Addr()}
	others := []place{{addr: "nowhere:1"}, {addr: here.addr, consuming: true}}
	for _, c := range []struct {
		err  error
		lost bool
	}{
		{nil, false}, {io.EOF, true}, {context.DeadlineExceeded, true}, {errUnanswered, true}, {context.Canceled, false},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, true}, {fmt.Errorf("marshal: %w", ErrRevoked), false},
		{hungUp(io.EOF), false}, {queuetest.Answer("READONLY You can't write."), true},
		{queuetest.Answer("ERR value is not an integer"), false},
		{queuetest.Answer("ERR max number of clients reached"), false},
	} {
		before := l.poolAt(here)
		var beside []*pool
		for _, at := range others {
			beside = append(beside, l.poolAt(at))
		}
		p, err := l.take(queuetest.CtxB, here)
		queuetest.Must(t, err)
		l.put(p, c.err)
		if p != before || (l.poolAt(here) != p) != c.lost || p.retired() != c.lost {
			t.Errorf("%v: want that trust is lost: %v", c.err, c.lost)
		}
		for i, at := range others {
			if l.poolAt(at) != beside[i] {
				t.Errorf("%v: %+v has lost trust, too", c.err, at)
			}
		}
	}
}

// TestRetiredPool: a pool is closed when no call is in flight on it, and not before.
func TestRetiredPool(t *testing.T) {
	t.Parallel()
	l := linkOf(queuetest.NewBase(t).Client())
	first, err := l.take(queuetest.CtxB, place{})
	queuetest.Must(t, err)
	second, err := l.take(queuetest.CtxB, place{})
	queuetest.Must(t, err)
	l.put(first, io.EOF)
	if err := second.cli.Ping(queuetest.CtxB).Err(); second != first || err != nil {
		t.Errorf("a call in flight: %v", err)
	}
	l.put(second, nil)
	if err := first.cli.Ping(queuetest.CtxB).Err(); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("after the last call: %v", err)
	}
}

// TestServerIsFull: at maxclients a call says so, has no effect, and leaves the connections alone that there are.
func TestServerIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxclients", "2")
	cli := queuetest.RedisClient(t, server.Addr())
	queuetest.Must(t, cli.Ping(queuetest.CtxB).Err())
	l := linkOf(cli)
	queuetest.Must(t, ping(cli))
	p := l.poolAt(place{})
	held := p.cli.Conn()
	queuetest.Must(t, held.Ping(queuetest.CtxB).Err())
	if err := ping(cli); !errors.Is(err, errHungUp) || !NoEffect(err) || !Transient(err) {
		t.Errorf("no effect %v, transient %v: %v", NoEffect(err), Transient(err), err)
	}
	queuetest.Must(t, held.Ping(queuetest.CtxB).Err())
	queuetest.Must(t, held.Close())
	queuetest.Must(t, ping(cli))
	if l.poolAt(place{}) != p {
		t.Error("the pool was retired")
	}
}
