package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// Patience is testkit.Patience.
const Patience = testkit.Patience

// Eventually is testkit.Until.
func Eventually(t testing.TB, what string, ok func() bool) { t.Helper(); testkit.Until(t, what, ok) }

// Reaches waits until a number is at least want; while it grows, that may take its time.
func Reaches(t testing.TB, what string, want int, number func() int) {
	t.Helper()
	for now := number(); now < want; {
		before := now
		Eventually(t, fmt.Sprintf("%s: more than %d of %d", what, before, want), func() bool {
			now = number()
			return now > before
		})
	}
}

// Receive is testkit.Receive.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return testkit.Receive(t, what, c)
}

// Must is testkit.Must.
func Must(t testing.TB, err error) { t.Helper(); testkit.Must(t, err) }

var (
	CtxB    = context.Background()
	ErrBoom = errors.New("boom")
)

// Within is a context for one send. One that is as long as a test's patience is longer on a machine that is slow.
func Within(t testing.TB, d time.Duration) context.Context {
	if d >= Patience {
		d = testkit.Scaled(d)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Over is a context that has ended.
func Over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// EndsAt is a context whose deadline comes when its channel is closed.
type EndsAt struct {
	context.Context
	Over <-chan struct{} // closes at the deadline
}

func (c EndsAt) Done() <-chan struct{} { return c.Over }

func (c EndsAt) Err() error {
	select {
	case <-c.Over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// WithTimeout is a context for all that a test does.
func WithTimeout(t testing.TB) context.Context { return Within(t, 5*Patience) }

// SendsFailed says how many lines of the log say that sends of the queue fail. A queue with shards names one of them.
func (f *Base) SendsFailed() int {
	const away = "cannot work with Redis"
	queue := "queue=" + f.Name
	return f.Log.Count(away, queue, "call=send") + f.Log.Count(away, queue, `call="send, shard`)
}

// UntilSendsFail is a context whose deadline comes when the log says that sends fail.
func (f *Base) UntilSendsFail() context.Context {
	before, deadline := f.SendsFailed(), make(chan struct{})
	late := Within(f.T, Patience)
	go func() {
		defer close(deadline)
		for {
			written := f.Log.Written()
			if f.SendsFailed() > before {
				return
			}
			select {
			case <-written:
			case <-late.Done():
				return
			}
		}
	}()
	return EndsAt{CtxB, deadline}
}

// LogBuffer is a log that many goroutines write and a test reads.
type LogBuffer struct{ testkit.Buffer }

// Count says how many lines of the log hold all these texts.
func (l *LogBuffer) Count(texts ...string) (n int) {
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}

// Says waits until n lines of the log hold all these texts, and complains of more. A line may be written a moment
// after what it tells of has been seen.
func (l *LogBuffer) Says(t testing.TB, n int, texts ...string) {
	t.Helper()
	Reaches(t, fmt.Sprintf("the log says %q", texts), n, func() int { return l.Count(texts...) })
	if got := l.Count(texts...); got > n {
		t.Errorf("the log says %q %d times, want %d:\n%s", texts, got, n, l)
	}
}

// Line is the one line of the log that holds a text.
func (l *LogBuffer) Line(t *testing.T, text string) string {
	t.Helper()
	l.Says(t, 1, text)
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			return strings.TrimSuffix(line, "\n")
		}
	}
	return ""
}
