package link

import (
	"context"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestFirstAnswerIsHeard: that a call's connection lives is known while its last command still waits for replicas.
func TestFirstAnswerIsHeard(t *testing.T) {
	t.Parallel()
	cli := queuetest.PatientClient(queuetest.Shared.Addr()) // whose server has no replica
	t.Cleanup(func() { _ = cli.Close() })
	state := new(standing)
	ctx := context.WithValue(queuetest.CtxB, standingKey{}, state)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = NewReplicatedCall(ctx, []any{"eval", "return {}", 0}, 1, queuetest.Patience).Exec(ctx, cli.Pipeline()) // it is cut off
	}()
	queuetest.Eventually(t, "the first answer is heard", state.heard.Load)
	select {
	case <-over:
		t.Error("all have been answered")
	default:
	}
	if err := cli.Close(); err != nil {
		t.Error(err)
	}
	queuetest.Receive(t, "the call ends", over)
}
