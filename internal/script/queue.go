package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// This file makes one attempt at a script call. internal/link bounds it and finds a connection (attempt.go), and says
// what its errors mean (redis_errors.go). send.go, put.go, fetch.go and so on have a function for each script.

// A Store calls the scripts of one queue. It is safe for concurrent use.
type Store struct {
	*link.Server
	Queue  string
	Prefix string
	Shard  string // as errors and the log call it; "": the queue has no other
	Keys   *keys

	// FindShards finds out how many shards the queue has, when this one has refused a call; nil: nobody does.
	FindShards func(context.Context) error

	shards any // how many shards the queue has, as the scripts take it
}

func NewStore(cli redis.UniversalClient, prefix, name string) *Store {
	db := 0
	if c, ok := cli.(interface{ Options() *redis.Options }); ok {
		db = c.Options().DB
	}
	k := keysOf(prefix, name, db)
	return &Store{Server: link.NewServer(cli, k.State), Queue: name, Prefix: prefix, Keys: &k, shards: "1"}
}

// ForConsumer makes a store for a consumer, which has a lease to keep. Its caller releases it.
func (s *Store) ForConsumer(lease time.Duration) *Store {
	return &Store{Server: s.Server.ForConsumer(lease), Queue: s.Queue, Shard: s.Shard, Keys: s.Keys,
		FindShards: s.FindShards, shards: s.shards}
}

var (
	// ErrWrongType: a key of the queue holds another type of value.
	ErrWrongType = errors.New("a key of the queue belongs to another program")
	// errPast is of a pause until an instant that is not after the server's now.
	errPast = fmt.Errorf("%w: that instant is over, by the server's clock: to end a pause, use Resume",
		message.ErrBadOption)
)

// refusedBy says what a script's own answer means, if err is one.
func refusedBy(err error) error {
	switch {
	case link.Says(err, "DQLAYOUT"):
		_, layout, _ := strings.Cut(err.Error(), "DQLAYOUT ")
		layout, _, _ = strings.Cut(layout, " ")
		return CheckLayout(layout)
	case link.Says(err, "DQNOQUEUE"):
		return ErrNoQueue
	case link.Says(err, "DQSHARDS"):
		return &shardsError{ErrShardCount, err}
	case link.Says(err, "DQPAST"):
		return errPast
	case link.Says(err, "WRONGTYPE"):
		return fmt.Errorf("%w: remove that key or use another prefix or name: %w", ErrWrongType, err)
	}
	return err
}

// ErrShardCount: the queue has another number of shards than a call was made for.
var ErrShardCount = errors.New("the queue has another number of shards")

// A shardsError is why a shard has refused a call: the queue has another number of shards, or it is not known how many.
type shardsError struct{ why, answer error }

func (e *shardsError) Error() string   { return e.why.Error() }
func (e *shardsError) Unwrap() []error { return []error{e.why, e.answer} }

// resolved says whether to make a call again that this shard has refused because of the number of shards. If not,
// *err says why.
func (s *Store) resolved(ctx context.Context, err *error) bool {
	if *err == nil || s.FindShards == nil {
		return false
	}
	var refused *shardsError
	if !errors.As(*err, &refused) {
		return false
	}
	if why := s.FindShards(ctx); why != nil {
		*err = &shardsError{why, refused.answer}
		return false
	}
	return true
}

// onceCmd switches off the silent repeats of a user's client: a repeat is the library's to make, under the same call
// number. A link makes none.
type onceCmd struct{ redis.Cmder }

func (onceCmd) NoRetry() bool { return true }

// command is the words of a command that calls the script by its hash, or else by its text.
func (sc *Script) command(byHash bool, keys *keys, args []any) []any {
	all := make([]any, 0, 3+len(sc.keys)+len(args))
	if byHash {
		all = append(all, "evalsha", sc.SHA, len(sc.keys))
	} else {
		all = append(all, "eval", sc.Text, len(sc.keys))
	}
	for _, i := range sc.keys {
		all = append(all, keys.all[i])
	}
	return append(all, args...)
}

// pointersTo appends texts as arguments. A pointer is made without an allocation.
func pointersTo(texts []string, args []any) []any {
	for i := range texts {
		args = append(args, &texts[i])
	}
	return args
}

// beginsByHash says whether a script is called by its hash at first, and by its text if the server does not know that.
// If the server would say so only after so many bytes that the text is few beside them, the first call has the text.
func beginsByHash(size int) bool { return size < link.AttemptBytesPerSecond }

// eval makes one attempt at a script call, whose reply newCmd's commands understand. reply is how many bytes that has,
// as far as is known.
func eval[C redis.Cmder](ctx context.Context, s *Store, sc *Script, args []any, reply int,
	newCmd func(context.Context, ...any) C) (C, error) {
	var cmd, none C
	size := link.SizeOf(args)
	attempt := func(ctx context.Context, cli redis.UniversalClient) (err error) {
		for byHash := beginsByHash(size); ; byHash = false {
			cmd = newCmd(ctx, sc.command(byHash, s.Keys, args)...)
			if s.Link != nil {
				err = cli.Process(ctx, cmd)
			} else {
				err = cli.Process(ctx, onceCmd{cmd})
			}
			if err == nil || !byHash || !link.Says(err, "NOSCRIPT") {
				return err
			}
		}
	}
	if err := s.Attempt(ctx, link.Effort{Bytes: size + reply, Call: attempt}); err != nil {
		return none, refusedBy(err) // an attempt that is not waited for any longer may still set cmd
	}
	return cmd, nil
}

// Eval makes one attempt at a script of a package outside the core. reply is about how many bytes come back.
func (s *Store) Eval(ctx context.Context, sc *Script, reply int, args ...any) (*redis.Cmd, error) {
	return eval(ctx, s, sc, args, reply, redis.NewCmd)
}

// run makes one attempt at a script call that is answered with a flat list. If it fails, the reply's err says so.
func (s *Store) run(ctx context.Context, sc *Script, args []any) *reply {
	return s.runAs(ctx, sc, args, 0, redis.NewStringSliceCmd)
}

// runAs is run with commands that newCmd makes, as soon as the attempt has a connection.
func (s *Store) runAs(ctx context.Context, sc *Script, args []any, bytes int,
	newCmd func(context.Context, ...any) *redis.StringSliceCmd) *reply {
	cmd, err := eval(ctx, s, sc, args, bytes, newCmd)
	if err != nil {
		return &reply{failed: err}
	}
	return &reply{rest: cmd.Val()}
}

// runOnReplicas is run that waits until n replicas have what the script wrote.
func (s *Store) runOnReplicas(ctx context.Context, sc *Script, args []any, n int,
	timeout time.Duration) (*reply, error) {
	if s.Link == nil {
		return nil, fmt.Errorf("%w: %T", link.ErrNoNode, s.Cli) // its commands may go to several servers
	}
	c, err := s.replicated(ctx, sc, args, n, timeout)
	if err == nil && c.Early() { // the call has its effect once, and the replicas have the whole time again
		if c, err = s.replicated(ctx, sc, args, n, timeout); err != nil {
			err = fmt.Errorf("%w, but the replicas could not be asked: %w", link.ErrCarriedOut, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return &reply{rest: c.Script.Val()}, c.Confirmation()
}

// replicated makes one attempt at a script call with a WAIT for n replicas.
func (s *Store) replicated(ctx context.Context, sc *Script, args []any, n int,
	timeout time.Duration) (*link.ReplicatedCall, error) {
	var last *link.ReplicatedCall
	size := link.SizeOf(args)
	err := s.Attempt(ctx,
		link.Effort{Bytes: size, Extra: timeout, Call: func(ctx context.Context, cli redis.UniversalClient) error {
			for byHash := beginsByHash(size); ; byHash = false {
				last = link.NewReplicatedCall(ctx, sc.command(byHash, s.Keys, args), n, timeout)
				if err := last.Exec(ctx, cli.Pipeline()); !byHash || !link.Says(err, "NOSCRIPT") {
					return err
				}
			}
		}})
	if err != nil {
		return nil, refusedBy(err) // an attempt that is not waited for any longer may still set last
	}
	return last, nil
}

var (
	ErrNotFound = errors.New("not found")
	ErrNoQueue  = fmt.Errorf("queue %w: it has no key here: is that its name, its prefix, its Redis?", ErrNotFound)
)

// NoID returns an ErrNotFound that says what else a text may be that was looked for by "id" and can be no id; else nil.
func NoID(by, what string) error {
	if by != "id" || uuid.Validate(what) == nil {
		return nil
	}
	return fmt.Errorf(
		"%w: that is no id, which Send returns: if it is a key (WithKey), use the method whose name ends in Key", ErrNotFound)
}

// InShard says in which shard an error was, if the queue has several.
func (s *Store) InShard(err error) error {
	if err == nil || s.Shard == "" {
		return err
	}
	return fmt.Errorf("%s: %w", s.Shard, err)
}

// Failed says which call failed, if one has.
func (s *Store) Failed(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("delayqueue: queue %q: %s: %w", s.Queue, fmt.Sprintf(format, args...), err)
}
