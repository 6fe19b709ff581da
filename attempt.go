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

// This file makes one attempt at a call: it bounds the time and finds a connection. The bound is the library's own: a
// second, or the ReadTimeout of the user's client if that is shorter. Nothing else notices a connection that is dead.
// The next attempt takes another connection.

const (
	// attemptTimeout bounds an attempt, besides the time for its bytes. The client's ReadTimeout bounds it if that
	// is shorter, and for a consumer a quarter of a lease.
	attemptTimeout = time.Second
	// minAttemptTimeout is the least that these come to.
	minAttemptTimeout = 50 * time.Millisecond
	// maxAttemptTimeout is where it stops being doubled, which it is after each attempt that was too short.
	maxAttemptTimeout = 30 * time.Second
	// maxConsumerAttemptTimeout is where it stops for a consumer, or at a lease if that is longer.
	maxConsumerAttemptTimeout = 5 * time.Second
	// attemptBytesPerSecond is the speed that a connection is expected to have.
	attemptBytesPerSecond = 1 << 20
)

// A timeoutLevel is how often the time of attempts at one kind of call has been doubled.
type timeoutLevel struct{ n atomic.Int32 }

// raise notes that an attempt was not answered in time. Of all that began at this level it counts one.
func (l *timeoutLevel) raise(level int32) { l.n.CompareAndSwap(level, level+1) }

// lower notes that an attempt was answered, if half its time would have been enough.
func (l *timeoutLevel) lower(level int32, took, limit time.Duration) {
	if took < limit/2 {
		l.n.CompareAndSwap(level, level-1)
	}
}

func (s *store) levelOf(sc *script) *timeoutLevel {
	switch sc {
	case sendScript, singleScript, putScript:
		return &s.timeoutLevel.send
	case fetchScript:
		return &s.timeoutLevel.fetch
	case settleScript:
		return &s.timeoutLevel.settle
	case extendScript:
		return &s.timeoutLevel.extend
	default:
		return &s.timeoutLevel.other
	}
}

// attemptTimeoutFor is the attemptTimeout of this client.
func attemptTimeoutFor(cli redis.UniversalClient) time.Duration {
	readTimeout := time.Duration(0)
	switch cli := cli.(type) {
	case *redis.Client:
		readTimeout = cli.Options().ReadTimeout
	case *redis.ClusterClient:
		readTimeout = cli.Options().ReadTimeout
	}
	if readTimeout > 0 {
		return min(attemptTimeout, readTimeout)
	}
	return attemptTimeout
}

// limit is how long an attempt with so many bytes may take.
func (s *store) limit(level int32, bytes int) time.Duration {
	level = min(level, 10)
	limit, transfer := max(s.attemptTimeout, minAttemptTimeout)<<level, time.Duration(bytes)*time.Second/attemptBytesPerSecond<<level
	if s.lease > 0 {
		return min(limit+transfer, max(s.lease, maxConsumerAttemptTimeout))
	}
	return min(limit, maxAttemptTimeout) + transfer
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

// A callFunc makes a call with this client. Its context ends with the attempt.
type callFunc = func(ctx context.Context, cli redis.UniversalClient) error

// attempt makes one attempt at a call. extra is how long the server may take for it.
func (s *store) attempt(ctx context.Context, t *timeoutLevel, args []any, extra time.Duration, call callFunc) error {
	level := t.n.Load()
	limit := s.limit(level, sizeOf(args)) + extra
	l := s.link
	if l == nil {
		if l = linkOf(s.cli); l != nil {
			defer l.release()
		}
	}
	var began *time.Time // when it had a connection; nil: nobody asks
	if level > 0 {
		at, inner := new(time.Time), call
		began, call = at, func(ctx context.Context, cli redis.UniversalClient) error {
			*at = time.Now()
			return inner(ctx, cli)
		}
	}
	err := s.dispatch(ctx, l, level, limit, call)
	if err == nil {
		if began != nil {
			t.lower(level, time.Since(*began), limit)
		}
		return nil
	}
	if ctx.Err() != nil {
		// go-redis returns it bare only where it waited for a connection
		if err == context.Canceled && s.lease > 0 || errors.Is(err, errUnheard) {
			return fmt.Errorf("%w: %w", errNoConnection, ended(ctx))
		}
		return ended(ctx)
	}
	if timedOut(err) {
		t.raise(level)
		carriedOut := errors.Is(err, errCarriedOut)
		// go-redis returns the bare error only where it waited for a connection; a read that timed out is a net.Error.
		err = &timeoutError{limit: limit.Round(time.Millisecond), noConnection: err == context.DeadlineExceeded || noEffect(err),
			unheard: errors.Is(err, errUnheard), link: l}
		if carriedOut {
			err = fmt.Errorf("%w: %w", errCarriedOut, err)
		}
	}
	s.reloadNodes(ctx, err)
	return s.explain(err)
}

// errNoConnection is of a call that was ended before it had one.
var errNoConnection = errors.New("no connection until then")

// errUnheard is of a call for which there was no connection that was ready for calls: a server that is frozen takes
// connections, and answers nothing.
var errUnheard = errors.New("the server has not answered on a new connection")

// bound is ctx with an end of its own. An attempt shares it with those that begin soon after, if it has little
// more than attemptTimeout, is no consumer's, and no context ends it.
func (s *store) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	least := s.attemptTimeout + s.attemptTimeout/10
	if s.lease > 0 || limit > least || !lasts(ctx, least) {
		return context.WithTimeout(ctx, limit)
	}
	return s.shared.context(least), func() {}
}

// lasts says whether nothing can end ctx before d has passed.
func lasts(ctx context.Context, d time.Duration) bool {
	if isShared(ctx) {
		deadline, _ := ctx.Deadline()
		return time.Until(deadline) > d
	}
	return ctx == context.Background()
}

// dispatch makes a call over the link, or by a client that has none. go-redis makes the deadline of a bound that of the
// connection, so a call over the link ends in time by itself, but it does not notice that ctx is canceled. So another
// goroutine makes it, unless nothing cancels ctx, or the store is a consumer's, which ends slowly, and limit is still short.
func (s *store) dispatch(ctx context.Context, l *link, level int32, limit time.Duration, call callFunc) (err error) {
	defer contain(&err)
	if l == nil {
		ctx, cancel := s.bound(ctx, limit)
		defer cancel()
		return await(ctx, func() error { return call(ctx, s.cli) })
	}
	_, ends := ctx.(silenceCtx)
	if ctx.Done() == nil || isShared(ctx) || s.lease > 0 && level == 0 && !ends {
		return s.callOver(ctx, l, limit, nil, call)
	}
	var over *atomic.Pointer[pool] // where the call is; nil: nobody asks
	if s.lease > 0 {
		over = new(atomic.Pointer[pool])
	}
	err = await(ctx, func() error { return s.callOver(ctx, l, limit, over, call) })
	if over != nil && err == errUnanswered && over.Load() != nil && !over.Load().reached.Load() {
		return errUnheard // nor will it get there: onConnect sees that ctx has ended
	}
	return err
}

// contain makes an error of a panic in a part of the user's client, such as a dialer or a hook.
func contain(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Redis client panicked: %v", p)
	}
}

// callOver makes a call over a link, and follows a Cluster's redirections, each within limit.
func (s *store) callOver(ctx context.Context, l *link, limit time.Duration, over *atomic.Pointer[pool], call callFunc) error {
	const redirections = 3
	for n := 0; ; n++ {
		addr, err := s.findNode(ctx, l, limit)
		if err != nil {
			return err
		}
		err = s.callServer(ctx, l, addr, limit, over, call)
		if _, ok := s.cli.(*redis.ClusterClient); !ok || n == redirections {
			return err
		}
		if target, ok := redirection(redis.IsAskError(err)); ok {
			return s.callServer(ctx, l, target, limit, over, func(ctx context.Context, cli redis.UniversalClient) error {
				return call(ctx, asking{cli.(*redis.Client)})
			})
		}
		target, ok := redirection(redis.IsMovedError(err))
		if !ok {
			return err
		}
		s.reloadNodes(ctx, err)
		s.nodeAddr.Store(&nodeAddr{target, time.Now()})
	}
}

// callServer makes a call over a connection to one server. While all are in use it waits, until ctx ends: that says
// nothing of the server, so limit begins afterwards.
func (s *store) callServer(ctx context.Context, l *link, addr string, limit time.Duration,
	over *atomic.Pointer[pool], call callFunc) (err error) {
	of := producing
	if s.lease > 0 {
		of = consuming
	}
	p, err := l.take(ctx, addr, of)
	if err != nil {
		return err
	}
	var begun time.Time
	if of == consuming {
		begun = time.Now()
	}
	defer func() { l.put(p, of, begun, err) }()
	if over != nil {
		over.Store(p)
	}
	ctx, cancel := s.bound(ctx, limit)
	defer cancel()
	if err = call(ctx, p.cli); err != nil && !p.reached.Load() && timedOut(err) {
		return fmt.Errorf("%w: %w", errUnheard, err)
	}
	return err
}

// redirection is the address that a Cluster's node redirects a call to, if it is one.
func redirection(addr string, ok bool) (string, bool) {
	host, _, err := net.SplitHostPort(addr)
	return addr, ok && err == nil && host != ""
}

// asking is a client of a Cluster's node to which a slot is being moved: it takes a call only after ASKING.
type asking struct{ *redis.Client }

func (c asking) Process(ctx context.Context, cmd redis.Cmder) error {
	pipe := c.Pipeline()
	if err := pipe.Process(ctx, cmd); err != nil {
		return err
	}
	if _, err := pipe.Exec(ctx); cmd.Err() == nil {
		return err
	}
	return cmd.Err()
}

func (c asking) Pipeline() redis.Pipeliner { return askingPipeline{c.Client.Pipeline()} }

// askingPipeline has an ASKING before each of its commands, for which alone that holds.
type askingPipeline struct{ redis.Pipeliner }

func (p askingPipeline) Process(ctx context.Context, cmd redis.Cmder) error {
	if err := p.Pipeliner.Process(ctx, redis.NewStatusCmd(ctx, "asking")); err != nil {
		return err
	}
	return p.Pipeliner.Process(ctx, cmd)
}

// A nodeAddr is the address of a Cluster's node. It is asked for again after linkAgeSentinel, for the client may be a
// NewFailoverClusterClient, whose sentinels replace the primary.
type nodeAddr struct {
	addr string
	at   time.Time // when it was found
}

// findNode returns the address of the server that holds the queue, "" if there is only one server. It asks for up to limit.
func (s *store) findNode(ctx context.Context, l *link, limit time.Duration) (string, error) {
	if _, ok := s.cli.(*redis.ClusterClient); !ok {
		return "", nil
	}
	if known := s.nodeAddr.Load(); known != nil && time.Since(known.at) < linkAgeSentinel {
		return known.addr, nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := make(chan string, 1)
	err := await(ctx, func() error { // it asks a server if it knows none yet
		node, err := s.node(ctx)
		if err == nil {
			l.learnNode(node)
			addr := node.Options().Addr
			s.nodeAddr.Store(&nodeAddr{addr, time.Now()})
			found <- addr
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return <-found, nil
}

// dedicated makes a client with one connection to the server that holds the queue. The caller closes it.
func (s *store) dedicated(ctx context.Context) (*redis.Client, error) {
	if s.link == nil {
		return nil, fmt.Errorf("%w: %T", errNoNode, s.cli)
	}
	addr, err := s.findNode(ctx, s.link, attemptTimeout)
	if err != nil {
		return nil, err
	}
	return s.link.dedicated(addr), nil
}

// unblock interrupts a blocking call by CLIENT UNBLOCK. id is that of its connection, which was made at connectedAt.
func (s *store) unblock(ctx context.Context, id int64, connectedAt time.Time) error {
	other := false
	err := s.attempt(ctx, &s.timeoutLevel.other, nil, 0, func(ctx context.Context, cli redis.UniversalClient) error {
		conn := cli.(*redis.Client).Conn()
		defer conn.Close()
		if err := conn.Time(ctx).Err(); err != nil { // makes the connection, if there is none
			return err
		}
		if other = !s.link.oneServerSince(connectedAt); other {
			return nil
		}
		return conn.ClientUnblock(ctx, id).Err()
	})
	if err == nil && other { // after an error the call may still be under way
		return errOtherServer
	}
	return err
}

// errOtherServer: this connection may not lead to the server of that one.
var errOtherServer = errors.New("the server may be another one")

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

// reloadNodes has a Cluster's client ask again which server holds what, after an error that may come of a failover. By
// itself it calls a dead primary until its next reload, which may be a minute away.
func (s *store) reloadNodes(ctx context.Context, err error) {
	if cluster, ok := s.cli.(*redis.ClusterClient); ok && transient(err) {
		s.nodeAddr.Store(nil)
		cluster.ReloadState(ctx)
	}
}
