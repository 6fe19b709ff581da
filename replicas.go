package delayqueue

import (
	"context"
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

// A replicatedCall is a script call with a WAIT on either side, for one pipeline: on another connection
// they would confirm nothing.
type replicatedCall struct {
	online  firstCmd // WAIT for no replica, which says at once how many there were before
	script  *redis.StringSliceCmd
	waiting *redis.Cmd    // WAIT for n replicas
	n       int           // replicas that are to confirm
	timeout time.Duration // of waiting
}

// A firstCmd is the first command of a pipeline, and notes that it is answered.
type firstCmd struct {
	*redis.Cmd
	state *standing
}

// SetErr is called by go-redis with what became of the command, before it reads the answers to the others.
func (c firstCmd) SetErr(err error) {
	c.Cmd.SetErr(err)
	if err == nil || answerOf(err) != "" {
		c.state.heard.Store(true)
	}
}

// newReplicatedCall makes one of the words of a command that calls a script.
func newReplicatedCall(ctx context.Context, script []any, n int, timeout time.Duration) *replicatedCall {
	return &replicatedCall{
		online: firstCmd{redis.NewCmd(ctx, "wait", 0, 0), standingOf(ctx)}, script: redis.NewStringSliceCmd(ctx, script...),
		waiting: redis.NewCmd(ctx, "wait", n, max(timeout.Milliseconds(), 1)),
		n:       n, timeout: timeout,
	}
}

// exec makes one attempt, and returns the script's error, or one of WAIT after which the call may be repeated.
func (c *replicatedCall) exec(ctx context.Context, pipe redis.Pipeliner) error {
	for _, cmd := range []redis.Cmder{c.online, c.script, c.waiting} {
		if err := pipe.Process(ctx, cmd); err != nil {
			return err
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	if err := c.script.Err(); err != nil {
		return err
	}
	if err := c.waiting.Err(); err != nil && transient(err) {
		return err
	}
	return nil
}

// early says whether a confirmation may be that of a replica that is loading. The repeat of the call, which
// writes again, is confirmed by none such. False alarms cost one repeat: on servers before
// 7.2 there is one if the connection has just served another command.
func (c *replicatedCall) early() bool {
	online, err := c.online.Int()
	return c.confirmation() == nil && (err != nil || online == 0)
}

// confirmation is nil if enough replicas have it.
func (c *replicatedCall) confirmation() error {
	confirmed, err := c.waiting.Int()
	if err != nil {
		return fmt.Errorf("%w: WAIT: %w", ErrNotReplicated, err)
	}
	if confirmed < c.n {
		return fmt.Errorf("%w: %d of %d within %v", ErrNotReplicated, confirmed, c.n, c.timeout)
	}
	return nil
}
