package delayqueue

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file makes one attempt at a script call. attempt.go bounds it and finds a connection; redis_errors.go says what
// its errors mean; scripts.go has a function for each script.

// A store calls the scripts of one queue, over the link of the user's client, or by the client itself if it can have no
// link. It is safe for concurrent use.
type store struct {
	cli    redis.UniversalClient
	queue  string
	prefix string
	keys   *keys

	link           *link         // that a consumer's store holds; nil: each call takes the client's
	lease          time.Duration // of a consumer; 0: the store is not a consumer's
	attemptTimeout time.Duration // of an attempt, without the time for its bytes
	shared         sharedTimeout // of attempts that have little more than attemptTimeout
	promptness     promptness    // with a client that can have no link

	nodeAddr atomic.Pointer[nodeAddr] // of the Cluster's node that holds the queue; nil: not known
}

func newStore(cli redis.UniversalClient, prefix, name string) *store {
	k := keysOf(prefix, name)
	return &store{cli: cli, queue: name, prefix: prefix, keys: &k, attemptTimeout: attemptTimeoutFor(cli)}
}

// forConsumer makes a store for a consumer, which has a lease to keep. Its caller releases it.
func (s *store) forConsumer(lease time.Duration) *store {
	return &store{cli: s.cli, queue: s.queue, keys: s.keys, link: consumerLinkOf(s.cli), lease: lease,
		attemptTimeout: min(s.attemptTimeout, lease/4)}
}

func (s *store) release() {
	if s.link != nil {
		s.link.releaseByConsumer()
	}
}

// onceCmd switches off the silent repeats of a user's client: a repeat is the library's to make, under the same call
// number. A link makes none.
type onceCmd struct{ redis.Cmder }

func (onceCmd) NoRetry() bool { return true }

// command is the words of a command that calls the script.
func (sc *script) command(name, body string, keys *keys, args []any) []any {
	all := make([]any, 0, 3+len(sc.keys)+len(args))
	all = append(all, name, body, len(sc.keys))
	for _, i := range sc.keys {
		all = append(all, keys.all[i])
	}
	return append(all, args...)
}

// evaluate calls the script by its hash, or by its text if the server does not know that, or would say so only after so many
// bytes that the text is few beside them.
func (sc *script) evaluate(keys *keys, args []any, do func(command []any) error) error {
	if sizeOf(args) < attemptBytesPerSecond {
		if err := do(sc.command("evalsha", sc.sha, keys, args)); !says(err, "NOSCRIPT") {
			return err
		}
	}
	return do(sc.command("eval", sc.text, keys, args))
}

// eval makes one attempt at a script call, whose reply newCmd's commands understand. size is how many bytes it
// has with its reply, as far as that is known.
func eval[C redis.Cmder](ctx context.Context, s *store, sc *script, args []any, size int,
	newCmd func(context.Context, ...any) C) (C, error) {
	var cmd, none C
	err := s.attempt(ctx, effort{bytes: size, call: func(ctx context.Context, cli redis.UniversalClient) error {
		return sc.evaluate(s.keys, args, func(command []any) error {
			cmd = newCmd(ctx, command...)
			if linkable(s.cli) {
				return cli.Process(ctx, cmd)
			}
			return cli.Process(ctx, onceCmd{cmd})
		})
	}})
	if err != nil {
		return none, err // an attempt that is not waited for any longer may still set cmd
	}
	return cmd, nil
}

// run makes one attempt at a script call that is answered with a flat list. If it fails, the reply's err says so.
func (s *store) run(ctx context.Context, sc *script, args []any) *reply {
	return s.runAs(ctx, sc, args, sizeOf(args), redis.NewStringSliceCmd)
}

// runAs is run with commands that newCmd makes, as soon as the attempt has a connection. size is that of eval.
func (s *store) runAs(ctx context.Context, sc *script, args []any, size int,
	newCmd func(context.Context, ...any) *redis.StringSliceCmd) *reply {
	cmd, err := eval(ctx, s, sc, args, size, newCmd)
	if err != nil {
		return &reply{failed: err}
	}
	return &reply{rest: cmd.Val()}
}

// runOnReplicas is run that waits until n replicas have what the script wrote.
func (s *store) runOnReplicas(ctx context.Context, sc *script, args []any, n int, timeout time.Duration) (*reply, error) {
	if !linkable(s.cli) {
		return nil, fmt.Errorf("%w: %T", errNoNode, s.cli) // its commands may go to several servers
	}
	c, err := s.replicated(ctx, sc, args, n, timeout)
	if err == nil && c.early() { // the call has its effect once, and the replicas have the whole time again
		if c, err = s.replicated(ctx, sc, args, n, timeout); err != nil {
			err = fmt.Errorf("%w: %w", errCarriedOut, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return &reply{rest: c.script.Val()}, c.confirmation()
}

// replicated makes one attempt at a script call with a WAIT for n replicas.
func (s *store) replicated(ctx context.Context, sc *script, args []any, n int, timeout time.Duration) (*replicatedCall, error) {
	var last *replicatedCall
	err := s.attempt(ctx, effort{sizeOf(args), timeout, func(ctx context.Context, cli redis.UniversalClient) error {
		return sc.evaluate(s.keys, args, func(command []any) error {
			last = newReplicatedCall(ctx, command, n, timeout)
			return last.exec(ctx, cli.Pipeline())
		})
	}})
	if err != nil {
		return nil, err // an attempt that is not waited for any longer may still set last
	}
	return last, nil
}
