package delayqueue

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file makes one attempt at a script call, on the right connection, and says what its
// errors mean. What the scripts are is in scripts.go.

type script struct{ text, sha string }

func newScript(parts ...string) *script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// store calls the scripts of one queue. It is safe for concurrent use.
type store struct {
	cli   redis.UniversalClient
	queue string
	keys  keys

	// KEYS of each script.
	singleKeys, forgetKeys, sendKeys, fetchKeys, settleKeys, extendKeys, interceptKeys []any
	countsKeys, lookKeys, steerKeys, pauseKeys                                         []any
	consumersKeys, historyKeys                                                         []any
}

func newStore(cli redis.UniversalClient, prefix, name string) *store {
	k := keysOf(prefix, name)
	return &store{
		cli: cli, queue: name, keys: k,
		singleKeys:    []any{k.pending, k.msg, k.wake, k.state},
		forgetKeys:    []any{k.state},
		sendKeys:      []any{k.pending, k.msg, k.key, k.wake, k.state},
		fetchKeys:     []any{k.pending, k.ready, k.unack, k.retry, k.garbage, k.msg, k.fail, k.key, k.wake, k.state, k.consumers, k.history},
		settleKeys:    []any{k.unack, k.msg, k.fail, k.key, k.retry, k.ready, k.garbage, k.wake, k.state, k.pending},
		extendKeys:    []any{k.unack, k.msg, k.state},
		interceptKeys: []any{k.pending, k.ready, k.unack, k.retry, k.garbage, k.msg, k.fail, k.key, k.state},
		countsKeys:    []any{k.pending, k.ready, k.unack, k.retry, k.garbage, k.fail, k.state},
		lookKeys:      []any{k.pending, k.ready, k.unack, k.retry, k.garbage, k.msg, k.fail, k.key},
		steerKeys:     []any{k.pending, k.ready, k.unack, k.retry, k.garbage, k.msg, k.fail, k.key, k.wake, k.state},
		pauseKeys:     []any{k.pending, k.ready, k.retry, k.wake, k.state},
		consumersKeys: []any{k.consumers},
		historyKeys:   []any{k.history, k.state},
	}
}

// onceCmd switches off the client's own silent repeats: a repeat is the library's
// to make, under the same call number.
type onceCmd struct{ *redis.StringSliceCmd }

func (onceCmd) NoRetry() bool { return true }

// run makes one attempt at a script call.
func (s *store) run(ctx context.Context, sc *script, keys, args []any) (*reply, error) {
	cmd := sc.command(ctx, "evalsha", sc.sha, keys, args)
	err := s.process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = sc.command(ctx, "eval", sc.text, keys, args)
		err = s.process(ctx, cmd)
	}
	if err != nil {
		s.failedOver(ctx, err)
		return nil, explain(err)
	}
	return &reply{rest: cmd.Val()}, nil
}

// process waits for a command no longer than ctx lives. By itself the client waits for its
// read timeout, several times if it has to connect.
func (s *store) process(ctx context.Context, cmd redis.Cmder) error {
	process := func() error { return contain(func() error { return s.cli.Process(ctx, cmd) }) }
	if ctx.Done() == nil {
		return process()
	}
	result := make(chan error, 1)
	go func() { result <- process() }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ended(ctx)
	}
}

// contain makes an error of a panic in a call of the user's client, whose hooks are the user's code.
func contain(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a hook of the Redis client panicked: %v", p)
		}
	}()
	return call()
}

// failedOver has a Cluster's client ask anew who holds what. By itself it goes on to call a
// dead primary until its next reload, which is a minute apart.
func (s *store) failedOver(ctx context.Context, err error) {
	if cluster, ok := s.cli.(*redis.ClusterClient); ok && transient(err) {
		cluster.ReloadState(ctx)
	}
}

func (sc *script) command(ctx context.Context, name, body string, keys, args []any) onceCmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, body, len(keys))
	all = append(append(all, keys...), args...)
	return onceCmd{redis.NewStringSliceCmd(ctx, all...)}
}

// runOnReplicas is run that waits until n replicas have what the script wrote.
func (s *store) runOnReplicas(ctx context.Context, sc *script, keys, args []any, n int, timeout time.Duration) (*reply, error) {
	node, err := s.node(ctx)
	if err != nil {
		s.failedOver(ctx, err)
		return nil, err
	}
	if patience := node.Options().ReadTimeout; patience > 0 {
		node = node.WithTimeout(patience + timeout)
	}
	begun := time.Now()
	pipelined := func(limit time.Duration) (*replicatedCall, error) {
		call := newReplicatedCall(ctx, sc.command(ctx, "evalsha", sc.sha, keys, args), n, limit)
		err := call.exec(ctx, node.Pipeline())
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			call = newReplicatedCall(ctx, sc.command(ctx, "eval", sc.text, keys, args), n, limit)
			err = call.exec(ctx, node.Pipeline())
		}
		return call, err
	}
	call, err := pipelined(timeout)
	if err == nil && call.early() {
		if call, err = pipelined(timeout - time.Since(begun)); err != nil {
			err = fmt.Errorf("%w: %w", errCarriedOut, err)
		}
	}
	if err != nil {
		s.failedOver(ctx, err)
		return nil, explain(err)
	}
	return &reply{rest: call.script.Val()}, call.confirmation()
}

// errNoNode: the client is of a kind that does not say which server holds a key.
var errNoNode = errors.New("this kind of client does not say which server holds a key")

// node is a client for the one server that holds the queue.
func (s *store) node(ctx context.Context) (*redis.Client, error) {
	switch cli := s.cli.(type) {
	case *redis.Client:
		return cli, nil
	case *redis.ClusterClient:
		return cli.MasterForKey(ctx, s.keys.wake)
	case *redis.Ring:
		return cli.GetShardClientForKey(s.keys.wake)
	default:
		return nil, fmt.Errorf("%w: %T", errNoNode, s.cli)
	}
}

// explain adds what to do about it to errors that are not plain already.
func explain(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") { // from within a script it is not always a prefix
		return fmt.Errorf("%w: remove that key or use another prefix or name: %w", ErrWrongType, err)
	}
	if strings.Contains(err.Error(), "unauthenticated multibulk length") { // what NOAUTH is called for a long command
		return fmt.Errorf("NOAUTH: the server wants a password: set it in the client's options: %w", err)
	}
	return err
}

// transient tells errors after which the same call may be repeated with some hope from
// those that a repeat will not mend.
func transient(err error) bool {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, context.Canceled) {
		return false
	}
	var netErr net.Error
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &netErr) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	for _, prefix := range []string{"READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "BUSY", "MOVED", "ASK", "max number of clients reached"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// unsent tells errors of calls that have changed nothing: no server was reached, or it refused.
func unsent(err error) bool {
	var dial *net.OpError
	var refusal redis.Error
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &refusal) && transient(err)
}

// readOnlyAttempts is how often a replica is asked to write: after a failover the client finds the
// new primary with its next connection, but one that was given a replica's address never does.
const readOnlyAttempts = 5

// worthRepeating says whether a call that failed for the nth time may go through yet.
func worthRepeating(err error, n int) bool {
	return transient(err) && (n < readOnlyAttempts || !redis.HasErrorPrefix(err, "READONLY"))
}

// backoff is how long to wait before attempt n (from 1) of the same call: it doubles
// from 10 ms to a second, with half of it at random.
func backoff(n int) time.Duration {
	d := min(10*time.Millisecond<<min(n-1, 10), time.Second)
	return d/2 + rand.N(d/2+1)
}

// dedicated makes a client with one connection of its own to the server that holds the
// queue, with the options of the user's client. Whoever asked for it closes it.
func (s *store) dedicated(ctx context.Context) (*redis.Client, error) {
	node, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	opt := *node.Options()
	opt.PoolSize, opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 1, 0, 0, 0
	opt.MaxRetries = -1
	// Of no use to a connection that is made anew in seconds; and the user's own is still
	// being written to while its first connections are made (go-redis 9.22).
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ReadTimeout = wakeBlock + 5*time.Second
	return redis.NewClient(&opt), nil
}
