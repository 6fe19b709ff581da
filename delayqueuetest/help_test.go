package delayqueuetest_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/delayqueuetest"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// newRig makes a rig, of which the invariant checker reads all queues at the end.
func newRig(t *testing.T, queues ...string) *delayqueuetest.Rig {
	rig := delayqueuetest.New(t)
	t.Cleanup(func() {
		for _, name := range queues {
			check.Assert(t, rig.Client(), "dq", name)
		}
	})
	return rig
}

type sender interface {
	Send(context.Context, string, ...delayqueue.MsgOption) (*delayqueue.MessageInfo, error)
}

func send(t testing.TB, q sender, payload string, opts ...delayqueue.MsgOption) *delayqueue.MessageInfo {
	t.Helper()
	info, err := q.Send(context.Background(), payload, opts...)
	testkit.Must(t, err)
	return info
}

// fakeT is a test that may fail.
type fakeT struct {
	testing.TB
	failure string
}

func (f *fakeT) Fatalf(format string, args ...any) {
	f.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf runs what is to end a test, and returns what that said.
func failureOf(t *testing.T, do func(rig *delayqueuetest.Rig)) string {
	t.Helper()
	fake := &fakeT{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(delayqueuetest.New(fake))
	}()
	<-ended
	return fake.failure
}
