package produce

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// logsTo is the listeners of a queue whose log a test reads.
type logsTo struct {
	queuetest.Deaf
	log *slog.Logger
}

func (l logsTo) Logger() *slog.Logger { return l.log }

// idle says whether nothing is in flight.
func (b *Batcher) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inFlight == 0
}

// nothingWaits waits until nothing is in flight, and then nothing may wait.
func nothingWaits(t testing.TB, b *Batcher) {
	t.Helper()
	queuetest.Eventually(t, "nothing is in flight", b.idle)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waitingBytes != 0 || len(b.waiting) != 0 || b.withdrawn != 0 {
		t.Errorf("%d bytes, %d calls, %d withdrawn are left", b.waitingBytes, len(b.waiting), b.withdrawn)
	}
}

// newBatcher sends by attempts that last as long as a test waits.
func newBatcher(f *queuetest.Base, cli redis.UniversalClient) *Batcher {
	b := &Batcher{Settings: &Settings{Events: queuetest.Deaf{}}, Store: script.NewStore(cli, "dq", f.Name)}
	b.Store.AttemptTimeout = queuetest.Patience
	return b
}

// sendTo sends messages that are due in an hour, in one call, and returns them with their results.
func sendTo(ctx context.Context, b *Batcher, payloads ...string) (items []*BatchItem) {
	ids, due := message.NewIDSource(), message.When{Us: time.Hour.Microseconds()}
	for _, payload := range payloads {
		e := message.Envelope{Payload: payload}
		items = append(items,
			&BatchItem{SendMessage: script.SendMessage{ID: ids.Next(), When: due, Version: e.Version(), Text: e.Encode(due)}})
	}
	b.Send(ctx, &SendCall{Items: items})
	return items
}
