package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file makes one attempt at a script call, on the right connection and within a bound, and says
// what its errors mean. What the scripts are is in scripts.go, and the library's own connections in link.go.

// store calls the scripts of one queue. It is safe for concurrent use.
//
// Calls go over the link of the user's client, or by a client of an unknown kind itself.
type store struct {
	cli   redis.UniversalClient
	queue string
	keys  *keys

	own    *link         // that a consumer's store holds
	lease  time.Duration // of a consumer; 0: the store is not a consumer's
	first  time.Duration // that a first attempt has
	shared sharedTimeout // of first attempts

	home      atomic.Pointer[string] // the address of the Cluster's node that has the queue; nil: not known
	tolerance struct{ send, fetch, settle, extend, other tolerance }
}

func newStore(cli redis.UniversalClient, prefix, name string) *store {
	k := keysOf(prefix, name)
	return &store{cli: cli, queue: name, keys: &k, first: attemptFirst(cli)}
}

// forConsumer is a store for a consumer, which has a lease to keep. It is the caller's to release.
func (s *store) forConsumer(lease time.Duration) *store {
	return &store{cli: s.cli, queue: s.queue, keys: s.keys, own: linkForConsumer(s.cli), lease: lease, first: min(s.first, lease/4)}
}

func (s *store) release() {
	if s.own != nil {
		s.own.leave()
	}
}

// onceCmd switches off the client's own silent repeats: a repeat is the library's to make, under the same call number.
type onceCmd struct{ redis.Cmder }

func (onceCmd) NoRetry() bool { return true }

// words are the words of a call of the script.
func (sc *script) words(name, body string, keys *keys, args []any) []any {
	all := make([]any, 0, 3+len(sc.keys)+len(args))
	all = append(all, name, body, len(sc.keys))
	for _, i := range sc.keys {
		all = append(all, keys.all[i])
	}
	return append(all, args...)
}

// eval makes one attempt at a script call, whose reply newCmd's commands understand.
func eval[C redis.Cmder](ctx context.Context, s *store, sc *script, args []any, newCmd func(context.Context, ...any) C) (cmd C, err error) {
	err = s.attempt(ctx, s.toleranceFor(sc), args, 0, func(ctx context.Context, cli redis.UniversalClient) error {
		cmd = newCmd(ctx, sc.words("evalsha", sc.sha, s.keys, args)...)
		err := s.process(ctx, cli, cmd)
		if says(err, "NOSCRIPT") {
			cmd = newCmd(ctx, sc.words("eval", sc.text, s.keys, args)...)
			err = s.process(ctx, cli, cmd)
		}
		return err
	})
	return cmd, err
}

func (s *store) process(ctx context.Context, cli redis.UniversalClient, cmd redis.Cmder) error {
	if !tellsOptions(s.cli) { // it is the user's; a link does not repeat
		cmd = onceCmd{cmd}
	}
	return cli.Process(ctx, cmd)
}

// run makes one attempt at a script call that is answered with a flat list.
func (s *store) run(ctx context.Context, sc *script, args []any) (*reply, error) {
	cmd, err := eval(ctx, s, sc, args, redis.NewStringSliceCmd)
	if err != nil {
		return nil, err
	}
	return &reply{rest: cmd.Val()}, nil
}

// runOnReplicas is run that waits until n replicas have what the script wrote.
func (s *store) runOnReplicas(ctx context.Context, sc *script, args []any, n int, timeout time.Duration) (*reply, error) {
	if !tellsOptions(s.cli) {
		return nil, fmt.Errorf("%w: %T", errNoNode, s.cli) // its commands may go to several servers
	}
	var last *replicatedCall
	err := s.attempt(ctx, s.toleranceFor(sc), args, timeout, func(ctx context.Context, cli redis.UniversalClient) error {
		begun := time.Now()
		pipelined := func(limit time.Duration) error {
			last = newReplicatedCall(ctx, sc.words("evalsha", sc.sha, s.keys, args), n, limit)
			err := last.exec(ctx, cli.Pipeline())
			if says(err, "NOSCRIPT") {
				last = newReplicatedCall(ctx, sc.words("eval", sc.text, s.keys, args), n, limit)
				err = last.exec(ctx, cli.Pipeline())
			}
			return err
		}
		err := pipelined(timeout)
		if err == nil && last.early() {
			if err = pipelined(timeout - time.Since(begun)); err != nil {
				err = fmt.Errorf("%w: %w", errCarriedOut, err)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &reply{rest: last.script.Val()}, last.confirmation()
}

// says tells whether Redis answered with one of these codes. In an error from within a script the code
// may stand in the middle: "ERR Error running script (call to f_…): @user_script:68: -READONLY …".
func says(err error, codes ...string) bool {
	if err == nil {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := " " + strings.TrimPrefix(answer.Error(), "ERR ") + " "
	for _, code := range codes {
		at := strings.Index(text, code+" ")
		if at == 1 || at > 1 && (text[at-1] == '-' || text[at-2:at] == ": ") {
			return true
		}
	}
	return false
}

// passing are the codes of answers after which nothing has been done, and which may pass.
var passing = []string{
	"READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY", "MOVED", "ASK", "NOREPLICAS",
	"max number of clients reached",
}

// transient tells errors after which the same call may be repeated with some hope from
// those that a repeat will not mend.
func transient(err error) bool {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, ErrClusterNode) {
		return false
	}
	var netErr net.Error
	return timedOut(err) || errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		says(err, "UNBLOCKED") || says(err, passing...)
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// unsent tells errors of attempts that have changed nothing: no server was reached, or it refused.
func unsent(err error) bool {
	var timeout *timeoutError
	if errors.As(err, &timeout) {
		return timeout.unsent
	}
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		says(err, passing...) || says(err, "WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM", "OOM", "MISCONF") || denied(err)
}

// denied tells what an ACL refuses. Up to 6.2 a refusal within a script has no code, from 7.0 on another one.
func denied(err error) bool {
	var answer redis.Error
	if err == nil || !errors.As(err, &answer) {
		return false
	}
	return says(err, "NOPERM") || strings.Contains(answer.Error(), "ACL failure in script") ||
		strings.Contains(answer.Error(), "The user executing the script can't")
}

// explain adds what to do about it to errors that are not plain already.
func (s *store) explain(err error) error {
	_, plain := s.cli.(*redis.Client)
	switch {
	case says(err, "DQLAYOUT"):
		return checkLayout(refusedLayout(err))
	case says(err, "WRONGTYPE"):
		return fmt.Errorf("%w: remove that key or use another prefix or name: %w", ErrWrongType, err)
	case says(err, "NOAUTH"), strings.Contains(err.Error(), "unauthenticated multibulk length"): // what it is called for a long command
		return fmt.Errorf("NOAUTH: the server wants a password: set it in the client's options: %w", err)
	case plain && says(err, "MOVED", "ASK"):
		return fmt.Errorf("%w: %w", ErrClusterNode, err)
	case says(err, "READONLY"):
		return fmt.Errorf("the server is a replica: if it is not about to become the primary, the client has a wrong address: %w", err)
	case denied(err):
		return fmt.Errorf("the Redis user lacks a permission, see Requirements in the README: %w", err)
	}
	return err
}
