package link

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/redis/go-redis/v9"
)

// This file makes one attempt at a call: it bounds the time and finds a connection. The bound is the library's own: a
// second, or the ReadTimeout of the user's client if that is shorter, and at most a quarter of a consumer's lease;
// doc.go says when it is longer. Nothing else notices a connection that is dead. The next attempt takes another connection.

// A Server is the way to the Redis of one queue: the link of the user's client, or the client itself if it can have no link. It
// is safe for concurrent use.
type Server struct {
	Cli            redis.UniversalClient
	slot           string             // the key of a hash of the queue: a Cluster's node is found by it
	Link           *Link              // of a consumer's server; nil: each call takes the link of the client
	lease          time.Duration      // of a consumer; 0: the server is not a consumer's
	AttemptTimeout time.Duration      // of an attempt, without the time for its bytes
	shared         conc.SharedTimeout // of attempts that have little more than AttemptTimeout
	promptness     promptness         // with a client that can have no link

	nodeAddr atomic.Pointer[nodeAddr] // of the Cluster's node that holds the queue; nil: not known
}

// NewServer makes the way to the Redis of a queue. slot is the key of a hash of the queue.
func NewServer(cli redis.UniversalClient, slot string) *Server {
	return &Server{Cli: cli, slot: slot, AttemptTimeout: attemptTimeoutFor(cli)}
}

// ForConsumer is the server for a consumer, which has a lease to keep. Its caller releases it.
func (s *Server) ForConsumer(lease time.Duration) *Server {
	return &Server{Cli: s.Cli, slot: s.slot, Link: useLink(s.Cli, 1), lease: lease, AttemptTimeout: min(s.AttemptTimeout, lease/4)}
}

// Release gives back the link of a server that ForConsumer made.
func (s *Server) Release() {
	if s.Link != nil {
		s.Link.releaseByConsumer()
	}
}

// attemptTimeoutFor is the AttemptTimeout of this client.
func attemptTimeoutFor(cli redis.UniversalClient) time.Duration {
	readTimeout := time.Duration(0)
	switch cli := cli.(type) {
	case *redis.Client:
		readTimeout = cli.Options().ReadTimeout
	case *redis.ClusterClient:
		readTimeout = cli.Options().ReadTimeout
	}
	if readTimeout > 0 {
		return min(AttemptTimeout, readTimeout)
	}
	return AttemptTimeout
}

// SizeOf is how many bytes the arguments of a call have.
func SizeOf(args []any) (n int) {
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

// Attempt makes one attempt at a call.
func (s *Server) Attempt(ctx context.Context, e Effort) error {
	l := s.Link
	if l == nil {
		if l = linkOf(s.Cli); l != nil {
			defer l.release()
		}
	}
	err := s.dispatch(ctx, l, e)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		if errors.Is(err, ErrAllInUse) {
			return err
		}
		return Ended(ctx)
	}
	s.askWhereItIs(ctx, l, err)
	return s.Explain(err)
}

// late makes an error that says how long an attempt took, if err is a timeout. Any other err is returned as it is.
func late(err error, l *Link, p *pool, took time.Duration) error {
	if err == nil || !TimedOut(err) {
		return err
	}
	// go-redis returns the bare error only where it waited for a connection; a read that timed out is a net.Error.
	t := &timeoutError{limit: took.Round(time.Millisecond), noConnection: err == context.DeadlineExceeded || NoEffect(err), link: l}
	t.unheard = p != nil && !p.reached.Load()
	return t
}

// bound is ctx with the end of an attempt. Attempts that begin soon after each other share one context, if they have little more
// than AttemptTimeout, are not a consumer's, and no context ends them.
func (s *Server) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	least := s.AttemptTimeout + s.AttemptTimeout/10
	if s.lease > 0 || limit > least || !lasts(ctx, least) {
		return context.WithTimeout(ctx, limit)
	}
	return s.shared.Context(least), func() {}
}

// lasts says whether nothing can end ctx before d has passed.
func lasts(ctx context.Context, d time.Duration) bool {
	if conc.IsShared(ctx) {
		deadline, _ := ctx.Deadline()
		return time.Until(deadline) > d
	}
	return ctx == context.Background()
}

// dispatch makes a call over the link, or by a client that has none.
func (s *Server) dispatch(ctx context.Context, l *Link, e Effort) (err error) {
	defer contain(&err)
	if l != nil {
		return s.callOver(ctx, l, e)
	}
	begun := time.Now()
	err = s.apart(ctx, &s.promptness, e, func() bool { return true }, func(error) {},
		func(ctx context.Context) error { return e.Call(ctx, s.Cli) })
	if ctx.Err() == nil {
		err = late(err, nil, nil, time.Since(begun))
	}
	return err
}

// contain makes an error of a panic in a part of the user's client, such as a dialer or a hook.
func contain(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Redis client panicked: %v", p)
	}
}

// callOver makes a call over a link, and follows a Cluster's redirections, each within the bounds of an attempt.
func (s *Server) callOver(ctx context.Context, l *Link, e Effort) error {
	const redirections = 3
	for n := 0; ; n++ {
		addr, err := s.findNode(ctx, l)
		if err != nil {
			return err
		}
		err = s.callServer(ctx, l, addr, e)
		cluster, ok := s.Cli.(*redis.ClusterClient)
		if !ok || n == redirections {
			return err
		}
		if target, ok := redirection(redis.IsAskError(err)); ok {
			call := e.Call
			e.Call = func(ctx context.Context, cli redis.UniversalClient) error {
				return call(ctx, asking{cli.(*redis.Client)})
			}
			return s.callServer(ctx, l, target, e)
		}
		target, ok := redirection(redis.IsMovedError(err))
		if !ok {
			return err
		}
		cluster.ReloadState(ctx)
		s.nodeAddr.Store(&nodeAddr{addr: target, at: time.Now(), not: addr})
	}
}

// callServer makes a call over a connection to one server. While all are in use it waits, until ctx ends: that says
// nothing of the server, so the bounds of the attempt begin afterwards.
func (s *Server) callServer(ctx context.Context, l *Link, addr string, e Effort) error {
	of := producing
	if s.lease > 0 {
		of = consuming
	}
	p, err := l.take(ctx, addr, of)
	if err != nil {
		return err
	}
	begun := time.Now()
	if s.plain(ctx, p, e) {
		err = s.callPlainly(ctx, p, e, func(err error) { l.put(p, of, begun, err) })
		return late(err, l, p, time.Since(begun))
	}
	put := func(err error) { l.put(p, of, begun, err) }
	err = s.apart(ctx, p.promptness, e, p.reached.Load, put, func(ctx context.Context) error { return e.Call(ctx, p.cli) })
	if ctx.Err() != nil {
		return err
	}
	if losesTrust(err) {
		l.mu.Lock()
		l.retire(p) // it is not put back yet if nobody waits for the attempt any more
		l.mu.Unlock()
	}
	return late(err, l, p, time.Since(begun))
}

// plain says whether a call can be made in this goroutine. go-redis makes the deadline of a context that of the
// connection, so a call ends in time by itself, but it does not notice that a context is canceled. So another goroutine
// makes the call, unless nothing cancels ctx, or the server is a consumer's, which ends slowly. Another goroutine makes it
// also if the server was silent or slow lately, and if the server may take its time: what is on its way for long is
// listened to, and a connection that is dead is noticed sooner.
func (s *Server) plain(ctx context.Context, p *pool, e Effort) bool {
	_, ends := ctx.(SilenceCtx)
	return !p.promptness.uneasy.Load() && e.Extra == 0 && (ctx.Done() == nil || conc.IsShared(ctx) || s.lease > 0 && !ends)
}

// callPlainly makes a call in this goroutine, and puts the pool back.
func (s *Server) callPlainly(ctx context.Context, p *pool, e Effort, put func(err error)) (err error) {
	defer func() { put(err) }()
	defer contain(&err)
	b, begun := p.promptness.bounds(s, e), time.Now()
	ctx, cancel := s.bound(ctx, b.whole)
	defer cancel()
	if err = e.Call(ctx, p.cli); err == nil {
		p.promptness.speed.answered(e.Bytes, begun, time.Since(begun)-b.first/2)
	} else if TimedOut(err) {
		p.promptness.inVain(b, p.reached.Load())
	}
	return err
}

// Dedicated makes a client with one connection to the server that holds the queue. The caller closes it.
func (s *Server) Dedicated(ctx context.Context) (*DedicatedClient, error) {
	if s.Link == nil {
		return nil, fmt.Errorf("%w: %T", ErrNoNode, s.Cli)
	}
	addr, err := s.findNode(ctx, s.Link)
	if err != nil {
		return nil, err
	}
	return s.Link.dedicated(addr), nil
}

// Unblock interrupts a blocking call by CLIENT UNBLOCK. id is that of its connection, which was made at connectedAt.
func (s *Server) Unblock(ctx context.Context, id int64, connectedAt time.Time) error {
	other := false
	err := s.Attempt(ctx, Effort{Call: func(ctx context.Context, cli redis.UniversalClient) error {
		conn := cli.(*redis.Client).Conn()
		defer conn.Close()
		if err := conn.Time(ctx).Err(); err != nil { // makes the connection, if there is none
			return err
		}
		if other = !s.Link.OneServerSince(connectedAt); other {
			return nil
		}
		return conn.ClientUnblock(ctx, id).Err()
	}})
	if err == nil && other { // after an error the call may still be under way
		return ErrOtherServer
	}
	return err
}

// ErrOtherServer: two connections may lead to different servers.
var ErrOtherServer = errors.New("the server may be another one")
