package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/redis/go-redis/v9"
)

// This file makes an attempt at a call: it bounds the time and finds a connection. Retry makes one after the other. The
// bound of an attempt is the library's own: a second, or the ReadTimeout of the user's client if that is shorter, at
// most a quarter of a consumer's lease; and a second for each MB, and the Extra of an Effort. Nothing else notices a
// connection that is dead.

// AttemptTimeout bounds an attempt, besides the time for its bytes. Only tests change it.
var AttemptTimeout = time.Second

const (
	// minAttemptTimeout is the least that AttemptTimeout and its bounds come to.
	minAttemptTimeout = 50 * time.Millisecond
	// AttemptBytesPerSecond is the speed that a connection is expected to have.
	AttemptBytesPerSecond = 1 << 20
)

// SilentAfter is how long a consumer that stops tries to hand its wake-up on. Only tests change it.
var SilentAfter = 750 * time.Millisecond

// A Server is the way to the Redis of one queue: the link of the user's client, or the client itself if it can have
// no link. It is safe for concurrent use.
type Server struct {
	Cli            redis.UniversalClient
	slot           string             // the key of a hash of the queue: a Cluster's node is found by it
	Link           *Link              // nil: the client can have none
	consuming      bool               // the server is a consumer's
	AttemptTimeout time.Duration      // of an attempt, without the time for its bytes
	shared         conc.SharedTimeout // of attempts that have little more than AttemptTimeout
}

// NewServer makes the way to the Redis of a queue. slot is the key of a hash of the queue.
func NewServer(cli redis.UniversalClient, slot string) *Server {
	s := &Server{Cli: cli, slot: slot, Link: linkOf(cli), AttemptTimeout: AttemptTimeout}
	readTimeout := time.Duration(0)
	switch cli := cli.(type) {
	case *redis.Client:
		readTimeout = cli.Options().ReadTimeout
	case *redis.ClusterClient:
		readTimeout = cli.Options().ReadTimeout
	}
	if readTimeout > 0 {
		s.AttemptTimeout = min(AttemptTimeout, readTimeout)
	}
	return s
}

// ForConsumer is the server for a consumer, which has a lease to keep. Its caller releases it.
func (s *Server) ForConsumer(lease time.Duration) *Server {
	if s.Link != nil {
		s.Link.consumers.Add(1)
	}
	return &Server{Cli: s.Cli, slot: s.slot, Link: s.Link, consuming: true, AttemptTimeout: min(s.AttemptTimeout, lease/4)}
}

// Release says that the consumer has ended for which ForConsumer made the server.
func (s *Server) Release() {
	if s.Link != nil {
		s.Link.consumers.Add(-1)
	}
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

// An Effort is what one attempt is about.
type Effort struct {
	Bytes int           // of its arguments, and of its reply as far as that is known
	Extra time.Duration // how long the server may take for it
	// Call makes it with this client. Its context ends with the attempt.
	Call func(ctx context.Context, cli redis.UniversalClient) error
}

// Attempt makes one attempt at a call.
func (s *Server) Attempt(ctx context.Context, e Effort) (err error) {
	if _, isCluster := s.Cli.(*redis.ClusterClient); isCluster {
		err = s.callNode(ctx, e)
	} else {
		err = s.callAt(ctx, "", e)
	}
	switch {
	case err == nil || ctx.Err() != nil && errors.Is(err, ErrAllInUse):
		return err
	case ctx.Err() != nil:
		return Ended(ctx)
	}
	s.lookAgain(ctx, err)
	return s.Explain(err)
}

// callAt makes a call to a server over the link, or with the user's client if that can have no link. In a pool go-redis
// makes the deadline of a context that of the connection, so a call ends in time by itself, but it does not notice that
// a context is canceled. So another goroutine makes the call if ctx may be canceled, unless it is a consumer's, which
// ends slowly.
func (s *Server) callAt(ctx context.Context, addr string, e Effort) error {
	p, err := s.Link.take(ctx, place{addr, s.consuming})
	if err != nil {
		return err
	}
	begun := time.Now()
	limit := s.limit(e)
	deadline, has := ctx.Deadline()
	hasty := has && time.Until(deadline) < limit // the caller's time ends before that of the attempt
	bounded, cancel := s.bound(ctx, limit)
	defer cancel() // and not as soon as the call ends, which callUntil would take for the end of its time
	if p != nil && (ctx.Done() == nil || conc.IsShared(ctx) || s.consuming) {
		err = s.call(bounded, e, p, hasty)
	} else {
		err = callUntil(bounded, func() error { return s.call(bounded, e, p, hasty) })
		if p != nil && ctx.Err() == nil && losesTrust(err) {
			s.Link.retire(p) // it is not put back yet if the call goes on
		}
	}
	if err == nil || ctx.Err() != nil || !TimedOut(err) {
		return err
	}
	// go-redis returns the bare error only where it waited for a connection; a read that timed out is a net.Error.
	return s.Link.late(begun, p != nil && (err == context.DeadlineExceeded || NoEffect(err) || !p.reached.Load()))
}

// call makes a call with the client of a pool, or with the user's if p is nil. Then it puts the pool back. That a hasty
// caller got no answer says nothing against a pool on which others got one meanwhile.
func (s *Server) call(ctx context.Context, e Effort, p *pool, hasty bool) (err error) {
	cli := s.Cli
	if p != nil {
		cli = p.cli
		answers := p.answers.Load()
		defer func() {
			if err == nil {
				p.answers.Add(1)
			}
			why := err
			if hasty && TimedOut(err) && p.answers.Load() != answers {
				why = nil
			}
			s.Link.put(p, why)
		}()
	}
	defer contain(&err)
	return e.Call(ctx, cli)
}

// limit is how long an attempt may last.
func (s *Server) limit(e Effort) time.Duration {
	return max(s.AttemptTimeout, minAttemptTimeout) + time.Duration(e.Bytes)*time.Second/AttemptBytesPerSecond + e.Extra
}

// bound is ctx with the end of an attempt. Attempts that begin soon after each other share one context, if they have
// little more than AttemptTimeout, are not a consumer's, and no context ends them.
func (s *Server) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	least := s.AttemptTimeout + s.AttemptTimeout/10
	deadline, bounded := ctx.Deadline()
	endless := ctx.Done() == nil || bounded && conc.IsShared(ctx) && time.Until(deadline) > least
	if s.consuming || limit > least || !endless {
		return context.WithTimeout(ctx, limit)
	}
	return s.shared.Context(least), func() {}
}

// late is the error of an attempt that was not answered in time, or got no connection that was ready for calls.
func (l *Link) late(begun time.Time, noConnection bool) error {
	took := time.Since(begun).Round(time.Millisecond)
	if !noConnection {
		return fmt.Errorf("%w within %v", errUnanswered, took)
	}
	err := fmt.Errorf("%w within %v", errNoConnection, took)
	if cause := l.dialErr.Load(); cause != nil {
		err = fmt.Errorf("%w: %w", err, *cause)
	}
	return err
}

// contain makes an error of a panic in a part of the user's client, such as a dialer or a hook.
func contain(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the Redis client panicked: %v", p)
	}
}

// Unblock interrupts a blocking call by CLIENT UNBLOCK. id is that of its connection. It is not waited for after the
// end of ctx.
func (s *Server) Unblock(ctx context.Context, id int64) error {
	return callUntil(ctx, func() error {
		return s.Attempt(ctx, Effort{Call: func(ctx context.Context, cli redis.UniversalClient) error {
			return cli.(*redis.Client).ClientUnblock(ctx, id).Err()
		}})
	})
}

// Retry calls attempt until it succeeds, ctx ends, or again returns false for the number of attempts and the last
// error. A backoff at least passes from the beginning of one attempt to the beginning of the next. The close of
// hurry, which may be nil, cuts one wait short, and again is called once more.
func Retry(ctx context.Context, hurry <-chan struct{}, attempt func() error, again func(n int, err error) bool) error {
	var last error
	for n := 1; ; n++ {
		if err := Ended(ctx); err != nil {
			return WithLast(err, last)
		}
		begun := time.Now()
		err := attempt()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			continue // that ended the attempt
		case !again(n, err):
			return err
		}
		if last == nil || !overdue(ctx) {
			last = err // else it says only that the attempt had no time
		}
		select {
		case <-time.After(Backoff(n) - time.Since(begun)):
		case <-ctx.Done():
		case <-hurry:
			if hurry = nil; !again(n, err) {
				return err
			}
		}
	}
}

// overdue tells that the deadline of ctx has passed. A connection may notice that before ctx ends.
func overdue(ctx context.Context) bool {
	deadline, has := ctx.Deadline()
	return has && !time.Now().Before(deadline)
}

// Repeat calls attempt until it succeeds, fails for good, or ctx ends.
func Repeat(ctx context.Context, attempt func() error) error {
	return Retry(ctx, nil, attempt, func(_ int, err error) bool { return Transient(err) })
}

// Sleep waits d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Backoff is how long lies between the beginnings of attempt n (from 1) of a call and of the next: it doubles
// from 10 ms to a second, with half of it at random.
func Backoff(n int) time.Duration {
	d := min(10*time.Millisecond<<min(n-1, 10), time.Second)
	return d/2 + rand.N(d/2+1)
}

// WithLast adds the error of the last attempt, which may be nil, to the error of a context that has ended.
func WithLast(err, last error) error {
	if last == nil {
		return err
	}
	return fmt.Errorf("%w (last attempt: %w)", err, last)
}

// Ended is why ctx ended: its error, and its cause if that differs. Ended is nil while ctx lives.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// callGrace is how long callUntil waits, after its context has ended, for f to say why it was not done.
const callGrace = 5 * time.Millisecond

// callUntil calls f in another goroutine, because f may not end when its context does. It waits for f until ctx ends.
func callUntil(ctx context.Context, f func() error) error {
	result := start(f)
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-result:
		return err
	case <-time.After(callGrace):
		return errUnanswered
	}
}

// start calls f in another goroutine, and returns where its error comes.
func start(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() {
		err := error(errUnanswered) // if f ends its goroutine
		defer func() { result <- err }()
		defer contain(&err)
		err = f()
	}()
	return result
}

// ReadFor is how long a call that changes nothing is tried, if its context has no deadline. Only tests change it.
var ReadFor = 2 * time.Second

// Read calls attempt until it succeeds, fails for good, or its time is over.
func Read[T any](ctx context.Context, attempt func(context.Context) (T, error)) (got T, err error) {
	_, bounded := ctx.Deadline()
	begun := time.Now()
	err = Retry(ctx, nil, func() (err error) {
		got, err = attempt(ctx)
		return err
	}, func(_ int, err error) bool {
		return Transient(err) && (bounded || time.Since(begun) <= ReadFor)
	})
	return got, err
}

// silentFor is how long a server that did not answer in time is waited for only briefly.
const silentFor = 10 * time.Second

// Within makes a call to the server of one part of something, of which other parts are elsewhere. It bounds the call by
// ReadFor, and by a bit less than the caller's time, because the others must not wait for long. If the server has not
// answered for a second, further calls get an eighth of ReadFor for a while, so that several calls, one after the
// other, wait for the server about once.
func Within[T any](ctx context.Context, s *Server, call func(context.Context) (T, error)) (T, error) {
	limit, begun, addr := ReadFor, time.Now(), s.nodeAddr()
	server := cmp.Or(addr, s.slot) // a node has many shards
	if deadline, has := ctx.Deadline(); has {
		limit = min(limit, time.Until(deadline)*9/10)
	}
	if s.Link != nil {
		if at, is := s.Link.silent.Load(server); is && time.Since(at.(time.Time)) < silentFor {
			limit = min(limit, ReadFor/8)
		}
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, unansweredIn{limit.Round(time.Millisecond), addr})
	defer cancel()
	got, err := call(bounded)
	switch {
	case s.Link == nil, ctx.Err() != nil: // the caller's own time is over, which says nothing of the server
	case err == nil, !Transient(err) && !TimedOut(err):
		s.Link.silent.Delete(server)
	case time.Since(begun) >= ReadFor/2: // so each silentFor one call waits for longer
		s.Link.silent.Store(server, time.Now())
	}
	return got, err
}

// NoteSilent notes that a node of a Cluster has not answered for ReadFor, for Within.
func NoteSilent(cli redis.UniversalClient, addr string) {
	if l := linkOf(cli); l != nil {
		l.silent.Store(addr, time.Now())
	}
}

// unansweredIn is why a call of Within has ended.
type unansweredIn struct {
	limit time.Duration
	addr  string // "": there is one server
}

func (u unansweredIn) Error() string {
	if u.addr == "" {
		return fmt.Sprintf("%v within %v", errUnanswered, u.limit)
	}
	return fmt.Sprintf("%v from %s within %v", errUnanswered, u.addr, u.limit)
}

// Unwrap makes it the end of a context.
func (unansweredIn) Unwrap() error { return context.DeadlineExceeded }
