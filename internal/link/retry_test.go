package link

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestRetry: attempts are made until one succeeds, one fails for good, there were enough, or the context ends; then the
// error says why the last attempt failed.
func TestRetry(t *testing.T) {
	for name, c := range map[string]struct {
		errs     []error // of the attempts; nil ends the context
		attempts int
		want     []error
	}{
		"success at once":       {[]error{nil}, 1, nil},
		"success in the end":    {[]error{io.EOF, io.EOF, nil}, 3, nil},
		"a failure for good":    {[]error{io.EOF, queuetest.ErrBoom, nil}, 2, []error{queuetest.ErrBoom}},
		"the context ends":      {[]error{io.EOF, context.Canceled}, 2, []error{context.Canceled, io.EOF}},
		"it ends at once":       {[]error{context.Canceled}, 1, []error{context.Canceled}},
		"it ends, but it works": {[]error{context.Canceled, nil}, 1, []error{context.Canceled}},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		n := 0
		err := Repeat(ctx, func() error {
			n++
			if c.errs[n-1] == context.Canceled {
				cancel()
			}
			return c.errs[n-1]
		})
		cancel()
		if n != c.attempts || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %d attempts and %v, want %d", name, n, err, c.attempts)
		}
		for _, want := range c.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v is not in %v", name, want, err)
			}
		}
	}
}

// TestRetryBeforeTheFirstAttempt: with a context that has ended there is none.
func TestRetryBeforeTheFirstAttempt(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(queuetest.ErrBoom)
	err := Repeat(ctx, func() error { t.Error("an attempt was made"); return nil })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, queuetest.ErrBoom) {
		t.Error(err)
	}
}

// An overdueContext has a deadline that has passed, but has not ended.
type overdueContext struct{ context.Context }

func (overdueContext) Deadline() (time.Time, bool) { return time.Now(), true }

// TestRetryUntilTheDeadline: an attempt that the deadline cuts short, before the context ends, is not what is wrong:
// the one before says that.
func TestRetryUntilTheDeadline(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	errs := []error{queuetest.ErrBoom, errNoConnection}
	err := Retry(overdueContext{ctx}, nil, func() error {
		err := errs[0]
		errs = errs[1:]
		return err
	}, func(n int, _ error) bool {
		if n == 2 {
			cancel()
		}
		return true
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, queuetest.ErrBoom) {
		t.Error(err)
	}
}

// TestRetryInAHurry: when hurry closes, it is asked again whether to go on, between two attempts.
func TestRetryInAHurry(t *testing.T) {
	queuetest.Eventually(t, "it is asked twice of one attempt", func() bool { // unless the wait is over at the same moment
		hurry := make(chan struct{})
		asked := map[int]int{}
		err := Retry(context.Background(), hurry, func() error { return queuetest.ErrBoom }, func(n int, err error) bool {
			if asked[n]++; n == 1 && asked[n] == 1 {
				close(hurry)
			}
			return asked[n] == 1 && n < 3
		})
		if !errors.Is(err, queuetest.ErrBoom) || asked[4] > 0 {
			t.Fatalf("%v, asked %v", err, asked)
		}
		return asked[1] == 2 && asked[2] == 0
	})
}

// TestReadUntil: what changes nothing is tried until the deadline of its context, or without one for ReadFor. It runs
// alone, for it changes ReadFor.
func TestReadUntil(t *testing.T) {
	defer func(before time.Duration) { ReadFor = before }(ReadFor)
	ReadFor = 0
	for _, bounded := range []bool{false, true} {
		ctx, tries := context.Background(), 0
		if bounded {
			ctx = queuetest.Within(t, queuetest.Patience)
		}
		_, err := Read(ctx, func(context.Context) (int, error) {
			if tries++; tries < 4 {
				return 0, io.EOF
			}
			return tries, nil
		})
		if (err == nil) != bounded || (tries == 4) != bounded {
			t.Errorf("bounded %v: %d attempts, %v", bounded, tries, err)
		}
	}
}

// TestBackoff: it doubles from 10 ms to a second, half of it at random, and does not overflow.
func TestBackoff(t *testing.T) {
	want := 10 * time.Millisecond
	for n := 1; n <= 100; n++ {
		for range 20 {
			if d := Backoff(n); d < want/2 || d > want {
				t.Errorf("after %d: %v, want %v to %v", n, d, want/2, want)
			}
		}
		want = min(2*want, time.Second)
	}
}

// TestWithin: a server that does not answer in time is waited for only briefly by the next call, until it answers. It
// runs alone, because it changes ReadFor.
func TestWithin(t *testing.T) {
	defer func(before time.Duration) { ReadFor = before }(ReadFor)
	ReadFor = 80 * time.Millisecond
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer cli.Close()
	s, other := NewServer(cli, "a"), NewServer(cli, "b")
	silent := func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, Ended(ctx)
	}
	says := func(s *Server, want string) {
		t.Helper()
		if _, err := Within(t.Context(), s, silent); err == nil || err.Error() != want ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	says(s, "no answer within 80ms")
	says(s, "no answer within 10ms")
	says(other, "no answer within 80ms")
	if n, err := Within(t.Context(), s, func(context.Context) (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	says(s, "no answer within 80ms")
	says(s, "no answer within 10ms")
	s.Link.silent.Store(s.slot, time.Now().Add(-silentFor))
	says(s, "no answer within 80ms")
	s.Link.silent.Delete(s.slot)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, _ = Within(short, s, silent)
	says(s, "no answer within 80ms")

	mine := queuetest.Within(t, queuetest.Patience)
	ReadFor = 2 * queuetest.Patience
	_, err := Within(mine, s, func(ctx context.Context) (int, error) {
		ends, _ := mine.Deadline()
		if sooner, _ := ctx.Deadline(); !sooner.Before(ends) {
			t.Errorf("no time is left for what the others say: %v, the caller ends at %v", sooner, ends)
		}
		return 0, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSilentNode: all shards on a node of a Cluster are waited for together.
func TestSilentNode(t *testing.T) {
	cli := clusterOfOne(nil)
	defer cli.Close()
	a, b := NewServer(cli, "a"), NewServer(cli, "b")
	NoteSilent(cli, "10.0.0.1:1")
	for _, s := range []*Server{a, b} {
		_, err := Within(t.Context(), s, func(ctx context.Context) (int, error) {
			if deadline, _ := ctx.Deadline(); time.Until(deadline) > ReadFor/8 {
				t.Errorf("the node has %v", time.Until(deadline))
			}
			return 0, context.DeadlineExceeded
		})
		if err == nil {
			t.Error("no error")
		}
	}
	if text := (unansweredIn{2 * time.Second, a.nodeAddr()}).Error(); text != "no answer from 10.0.0.1:1 within 2s" {
		t.Error(text)
	}
}

// clusterOfOne is a client that knows a Cluster with one node, which is away. dialled may be nil.
func clusterOfOne(dialled func()) *redis.ClusterClient {
	cli := redis.NewClusterClient(&redis.ClusterOptions{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if dialled != nil {
				dialled()
			}
			return nil, errors.New("it is away")
		},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "10.0.0.1:1"}}}}, nil
		}})
	_, _ = cli.MasterForKey(context.Background(), "") // it learns that
	return cli
}

// TestCheckAsksNobody: a client of a Cluster is looked at without a call, because a node may not answer.
func TestCheckAsksNobody(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	cli := clusterOfOne(func() { dials.Add(1) })
	defer cli.Close()
	CheckClient("NewMonitor", "orders", cli)
	if n := dials.Load(); n > 0 {
		t.Errorf("%d dials", n)
	}
}
