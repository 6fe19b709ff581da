package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file makes one attempt at a call: it bounds the time and finds a connection. The bound is the library's own: a
// second, or the ReadTimeout of the user's client if that is shorter. Nothing else notices a connection that is dead.
// The next attempt takes another connection.

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

// sizeOf is how many bytes the arguments of a call have.
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

// attempt makes one attempt at a call.
func (s *store) attempt(ctx context.Context, e effort) error {
	l := s.link
	if l == nil {
		if l = linkOf(s.cli); l != nil {
			defer l.release()
		}
	}
	err := s.dispatch(ctx, l, e)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		if errors.Is(err, errAllInUse) {
			return err
		}
		return ended(ctx)
	}
	s.askWhereItIs(ctx, l, err)
	return s.explain(err)
}

// late is the error of an attempt that was not answered in time: err, what is known of its connection, and how long it took.
func late(err error, l *link, p *pool, took time.Duration) error {
	if err == nil || !timedOut(err) {
		return err
	}
	// go-redis returns the bare error only where it waited for a connection; a read that timed out is a net.Error.
	t := &timeoutError{limit: took.Round(time.Millisecond), noConnection: err == context.DeadlineExceeded || noEffect(err), link: l}
	t.unheard = p != nil && !p.reached.Load()
	return t
}

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

// dispatch makes a call over the link, or by a client that has none.
func (s *store) dispatch(ctx context.Context, l *link, e effort) (err error) {
	defer contain(&err)
	if l != nil {
		return s.callOver(ctx, l, e)
	}
	begun := time.Now()
	err = s.apart(ctx, &s.promptness, e, func() bool { return true }, func(error) {},
		func(ctx context.Context) error { return e.call(ctx, s.cli) })
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
func (s *store) callOver(ctx context.Context, l *link, e effort) error {
	const redirections = 3
	for n := 0; ; n++ {
		addr, err := s.findNode(ctx, l)
		if err != nil {
			return err
		}
		err = s.callServer(ctx, l, addr, e)
		cluster, ok := s.cli.(*redis.ClusterClient)
		if !ok || n == redirections {
			return err
		}
		if target, ok := redirection(redis.IsAskError(err)); ok {
			call := e.call
			e.call = func(ctx context.Context, cli redis.UniversalClient) error {
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
func (s *store) callServer(ctx context.Context, l *link, addr string, e effort) error {
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
	err = s.apart(ctx, p.promptness, e, p.reached.Load, put, func(ctx context.Context) error { return e.call(ctx, p.cli) })
	if ctx.Err() != nil {
		return err
	}
	if losesTrust(err) {
		l.distrust(p) // it is not put back yet if nobody waits for the attempt any more
	}
	return late(err, l, p, time.Since(begun))
}

// plain says whether a call can be made in this goroutine. go-redis makes the deadline of a context that of the
// connection, so a call ends in time by itself, but it does not notice that a context is canceled. So another goroutine
// makes the call, unless nothing cancels ctx, or the store is a consumer's, which ends slowly. Another goroutine makes it
// also if the server was silent or slow lately, and if the server may take its time: what is on its way for long is
// listened to, and a connection that is dead is noticed sooner.
func (s *store) plain(ctx context.Context, p *pool, e effort) bool {
	_, ends := ctx.(silenceCtx)
	return !p.promptness.uneasy.Load() && e.extra == 0 && (ctx.Done() == nil || isShared(ctx) || s.lease > 0 && !ends)
}

// callPlainly makes a call in this goroutine, and puts the pool back.
func (s *store) callPlainly(ctx context.Context, p *pool, e effort, put func(err error)) (err error) {
	defer func() { put(err) }()
	defer contain(&err)
	b, begun := p.promptness.bounds(s, e), time.Now()
	ctx, cancel := s.bound(ctx, b.whole)
	defer cancel()
	if err = e.call(ctx, p.cli); err == nil {
		p.promptness.speed.answered(e.bytes, begun, time.Since(begun)-b.first/2)
	} else if timedOut(err) {
		p.promptness.inVain(b, p.reached.Load())
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

// dedicated makes a client with one connection to the server that holds the queue. The caller closes it.
func (s *store) dedicated(ctx context.Context) (*dedicatedClient, error) {
	if s.link == nil {
		return nil, fmt.Errorf("%w: %T", errNoNode, s.cli)
	}
	addr, err := s.findNode(ctx, s.link)
	if err != nil {
		return nil, err
	}
	return s.link.dedicated(addr), nil
}

// unblock interrupts a blocking call by CLIENT UNBLOCK. id is that of its connection, which was made at connectedAt.
func (s *store) unblock(ctx context.Context, id int64, connectedAt time.Time) error {
	other := false
	err := s.attempt(ctx, effort{call: func(ctx context.Context, cli redis.UniversalClient) error {
		conn := cli.(*redis.Client).Conn()
		defer conn.Close()
		if err := conn.Time(ctx).Err(); err != nil { // makes the connection, if there is none
			return err
		}
		if other = !s.link.oneServerSince(connectedAt); other {
			return nil
		}
		return conn.ClientUnblock(ctx, id).Err()
	}})
	if err == nil && other { // after an error the call may still be under way
		return errOtherServer
	}
	return err
}

// errOtherServer: this connection may not lead to the server of that one.
var errOtherServer = errors.New("the server may be another one")
