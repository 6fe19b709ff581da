package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file is what WithReplicaAck asks of the server: which replicas have what a script wrote.
//
// A primary whose first replica is still loading its first copy of the data counts that replica for a write
// that is older than the copy: before it had replicas its writes had no place in the stream, and "not a byte
// of the stream confirmed" is enough for them. All servers from Redis 6.2 to Valkey 9.1 do so. What is
// written while a replica is there has a place, so it is counted for a replica that has loaded and applied it.

// A ReplicatedCall is a script call with a WAIT on either side, for one pipeline: on another connection
// they would confirm nothing.
type ReplicatedCall struct {
	online  *redis.Cmd // WAIT for no replica, which says at once how many there were before
	Script  scriptCmd
	waiting *redis.Cmd    // WAIT for n replicas
	n       int           // replicas that are to confirm
	timeout time.Duration // of waiting
}

// A scriptCmd is the script of a pipeline, and says at once if the server does not know that.
type scriptCmd struct {
	*redis.StringSliceCmd
	refused chan error // has room for one
}

// SetErr is called by go-redis with what became of the command, before it reads the answers to later ones.
func (c scriptCmd) SetErr(err error) {
	c.StringSliceCmd.SetErr(err)
	if AnswerOf(err) != "" {
		select {
		case c.refused <- err:
		default:
		}
	}
}

// NewReplicatedCall makes the call of a script, whose command has these words.
func NewReplicatedCall(ctx context.Context, script []any, n int, timeout time.Duration) *ReplicatedCall {
	return &ReplicatedCall{
		online:  redis.NewCmd(ctx, "wait", 0, 0),
		Script:  scriptCmd{redis.NewStringSliceCmd(ctx, script...), make(chan error, 1)},
		waiting: redis.NewCmd(ctx, "wait", n, max(timeout.Milliseconds(), 1)),
		n:       n, timeout: timeout,
	}
}

// Exec makes one attempt, and returns the script's error, or one of WAIT after which the call may be repeated. If the
// server refuses the script, or does not know it, Exec waits for no replica: perhaps none is there, and the message
// would be stored only afterwards. The connection is in use until then, so the next call takes another one.
func (c *ReplicatedCall) Exec(ctx context.Context, pipe redis.Pipeliner) error {
	for _, cmd := range []redis.Cmder{c.online, c.Script, c.waiting} {
		if err := pipe.Process(ctx, cmd); err != nil {
			return err
		}
	}
	over := start(func() error {
		_, _ = pipe.Exec(ctx) // each command has its error
		return nil
	})
	select {
	case err := <-over:
		if err != nil {
			return err
		}
	case err := <-c.Script.refused:
		return err
	}
	if err := c.Script.Err(); err != nil {
		return err
	}
	if err := c.waiting.Err(); err != nil && Transient(err) {
		return err
	}
	return nil
}

// Early says whether a replica that is still loading may have confirmed. Such a replica does not confirm a repeat of
// the call, because the repeat writes again. A false alarm costs one repeat. Servers before 7.2 raise one if the
// connection has just served another command.
func (c *ReplicatedCall) Early() bool {
	online, err := c.online.Int()
	return c.Confirmation() == nil && (err != nil || online == 0)
}

// ErrNotReplicated: fewer replicas than were asked for confirmed in time.
var ErrNotReplicated = errors.New("message was stored but not confirmed by enough replicas")

// Confirmation is nil if enough replicas have confirmed the call.
func (c *ReplicatedCall) Confirmation() error {
	confirmed, err := c.waiting.Int()
	if err != nil {
		return fmt.Errorf("%w: WAIT: %w", ErrNotReplicated, err)
	}
	if confirmed < c.n {
		return fmt.Errorf("%w: %d of %d within %v", ErrNotReplicated, confirmed, c.n, c.timeout)
	}
	return nil
}
