package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file bounds an attempt at a call and finds a way for it. The bound is the library's own, whatever
// the timeouts of the user's client are: a connection that is dead is noticed by nothing else, and an
// attempt after it goes another way.

const (
	// attemptTime is what a first attempt has, besides the time for its bytes. If the client's ReadTimeout
	// is shorter that is what it has; on the consuming side a quarter of a lease.
	attemptTime = time.Second
	// attemptMin is what it has at least.
	attemptMin = 50 * time.Millisecond
	// attemptMost is how far the time grows, by doubling after each attempt that was too short.
	attemptMost = 30 * time.Second
	// attemptMostConsumer is how far it grows on the consuming side, or to a lease if that is longer.
	attemptMostConsumer = 5 * time.Second
	// attemptRate is how many bytes a second a line is expected to carry.
	attemptRate = 1 << 20
)

// A tolerance is how often the time of attempts at one kind of call has been doubled.
type tolerance struct{ level atomic.Int32 }

// exceeded notes that an attempt was not answered in time, once for all that began at this level.
func (p *tolerance) exceeded(level int32) { p.level.CompareAndSwap(level, level+1) }

// answered notes that one was; half the time would have done.
func (p *tolerance) answered(level int32, took, limit time.Duration) {
	if took < limit/2 {
		p.level.CompareAndSwap(level, level-1)
	}
}

func (s *store) toleranceFor(sc *script) *tolerance {
	switch sc {
	case sendScript, singleScript:
		return &s.tolerance.send
	case fetchScript:
		return &s.tolerance.fetch
	case settleScript:
		return &s.tolerance.settle
	case extendScript:
		return &s.tolerance.extend
	default:
		return &s.tolerance.other
	}
}

// attemptFirst is how long a first attempt with this client may take.
func attemptFirst(cli redis.UniversalClient) time.Duration {
	theirs := time.Duration(0)
	switch cli := cli.(type) {
	case *redis.Client:
		theirs = cli.Options().ReadTimeout
	case *redis.ClusterClient:
		theirs = cli.Options().ReadTimeout
	}
	if theirs > 0 {
		return min(attemptTime, theirs)
	}
	return attemptTime
}

// limit is how long an attempt may take that carries so many bytes.
func (s *store) limit(level int32, bytes int) time.Duration {
	level = min(level, 10)
	limit, carry := max(s.first, attemptMin)<<level, time.Duration(bytes)*time.Second/attemptRate<<level
	if s.lease > 0 {
		return min(limit+carry, max(s.lease, attemptMostConsumer))
	}
	return min(limit, attemptMost) + carry
}

func sizeOf(args []any) (n int) {
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			n += len(arg)
		case *string:
			n += len(*arg)
		}
	}
	return n
}

// A call is made with the client that it is given. Its context ends with the attempt.
type call = func(ctx context.Context, cli redis.UniversalClient) error

// attempt makes one attempt at a call. extra is how long the server may take for it.
func (s *store) attempt(ctx context.Context, t *tolerance, args []any, extra time.Duration, c call) error {
	level := t.level.Load()
	limit := s.limit(level, sizeOf(args)) + extra
	bound, cancel := s.bound(ctx, limit)
	defer cancel()
	l := s.own
	if l == nil {
		if l = linkTo(s.cli); l != nil {
			defer l.release()
		}
	}
	var began time.Time
	if level > 0 {
		began = time.Now()
	}
	err := s.dispatch(ctx, bound, l, level, c)
	if err == nil {
		if level > 0 {
			t.answered(level, time.Since(began), limit)
		}
		return nil
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if timedOut(err) {
		t.exceeded(level)
		done := errors.Is(err, errCarriedOut)
		err = &timeoutError{limit: limit.Round(time.Millisecond), unsent: err == context.DeadlineExceeded, link: l}
		if done {
			err = fmt.Errorf("%w: %w", errCarriedOut, err)
		}
	}
	s.failedOver(ctx, err)
	return s.explain(err)
}

// bound is ctx with an end of its own. Attempts that have the least time, outside of consumers and with no context to end
// them, share theirs with those that begin soon after.
func (s *store) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	least := s.first + s.first/10
	if ctx != context.Background() || s.lease > 0 || limit > least {
		return context.WithTimeout(ctx, limit)
	}
	return s.shared.context(least), func() {}
}

// dispatch makes a call over the link, or by a client that has none. bound ends with the attempt; ctx is the caller's
// own. A call over the link takes no longer than bound, but does not notice the end of ctx: a consumer waits for it nevertheless
// while that is short.
func (s *store) dispatch(ctx, bound context.Context, l *link, level int32, c call) (err error) {
	defer contain(&err)
	if l == nil {
		return await(bound, func() error { return c(bound, s.cli) })
	}
	if ctx.Done() == nil || s.lease > 0 && level == 0 {
		return s.over(bound, l, c)
	}
	return await(bound, func() error { return s.over(bound, l, c) })
}

// contain makes an error of a panic in what the user's client is made of, such as a dialer or a hook.
func contain(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Redis client panicked: %v", p)
	}
}

// over makes a call over a link, and follows a Cluster's redirections.
func (s *store) over(ctx context.Context, l *link, c call) error {
	const redirections = 3
	for n := 0; ; n++ {
		addr, err := s.locate(ctx, l)
		if err != nil {
			return err
		}
		err = l.call(ctx, addr, c)
		if _, ok := s.cli.(*redis.ClusterClient); !ok || n == redirections {
			return err
		}
		if target, ok := redirection(redis.IsAskError(err)); ok {
			return l.call(ctx, target, func(ctx context.Context, cli redis.UniversalClient) error {
				return c(ctx, asking{cli.(*redis.Client)})
			})
		}
		target, ok := redirection(redis.IsMovedError(err))
		if !ok {
			return err
		}
		s.failedOver(ctx, err)
		s.home.Store(&target)
	}
}

// redirection is where a Cluster's node sends a call to, if it is an address.
func redirection(addr string, ok bool) (string, bool) {
	host, _, err := net.SplitHostPort(addr)
	return addr, ok && err == nil && host != ""
}

// locate is the address of the server that holds the queue; "" if there is only one server.
func (s *store) locate(ctx context.Context, l *link) (string, error) {
	if _, ok := s.cli.(*redis.ClusterClient); !ok {
		return "", nil
	}
	if home := s.home.Load(); home != nil {
		return *home, nil
	}
	found := make(chan string, 1)
	err := await(ctx, func() error { // it asks a server if it knows none yet
		node, err := s.node(ctx)
		if err == nil {
			l.learn(node)
			s.home.Store(&node.Options().Addr)
			found <- node.Options().Addr
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return <-found, nil
}

// single is a client with one connection of its own to the server that holds the queue. Whoever asked for it
// closes it.
func (s *store) single(ctx context.Context) (*redis.Client, error) {
	if s.own == nil {
		return nil, fmt.Errorf("%w: %T", errNoNode, s.cli)
	}
	addr, err := s.locate(ctx, s.own)
	if err != nil {
		return nil, err
	}
	return s.own.single(addr), nil
}

// node is the user's client for the one server that holds the queue.
func (s *store) node(ctx context.Context) (*redis.Client, error) {
	switch cli := s.cli.(type) {
	case *redis.Client:
		return cli, nil
	case *redis.ClusterClient:
		return cli.MasterForKey(ctx, s.keys.wake)
	default:
		return nil, fmt.Errorf("%w: %T", errNoNode, s.cli)
	}
}

// errNoNode: the client is of a kind that does not say which server holds a key.
var errNoNode = errors.New("this kind of client does not say which server holds a key")

// failedOver has a Cluster's client ask anew who holds what. By itself it goes on to call a
// dead primary until its next reload, which is a minute apart.
func (s *store) failedOver(ctx context.Context, err error) {
	if cluster, ok := s.cli.(*redis.ClusterClient); ok && transient(err) {
		s.home.Store(nil)
		cluster.ReloadState(ctx)
	}
}

// A timeoutError ends an attempt that was not answered in time.
type timeoutError struct {
	limit  time.Duration
	unsent bool  // it got no connection
	link   *link // knows why dialling failed lately, if it did; that may be known only later
}

func (e *timeoutError) Error() string {
	what := "no answer within"
	if e.unsent {
		what = "no connection within"
	}
	if cause := e.Unwrap(); cause != nil {
		return fmt.Sprintf("%s %v: %v", what, e.limit, cause)
	}
	return fmt.Sprintf("%s %v", what, e.limit)
}

func (e *timeoutError) Unwrap() error {
	if e.link == nil {
		return nil
	}
	return e.link.dialFault()
}

// Timeout and Temporary make it a net.Error.
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }
