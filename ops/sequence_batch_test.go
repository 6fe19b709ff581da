package ops

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestSequenceBatchRelays: relays that send the same rows in batches, in which now and then one is refused, for its key or
// an option, a reply is lost, or the context ends: each begins anew behind the last number, and each row is one message.
func TestSequenceBatchRelays(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const relays, rows = 5, 600
	f.Send(f.Queue(nil), "taken", face.InAnHour, delayqueue.WithKey("taken"))
	var wg sync.WaitGroup
	var lost, stopped, ended atomic.Int64
	for i := range relays {
		p, monitor := f.LossyPublisher(5+int64(i), &lost), Of(delayqueue.NewMonitor(f.Name, f.Cli))
		wg.Go(func() {
			for try := 0; ; try++ {
				last, err := monitor.Sequence(queuetest.CtxB, "rows")
				if err != nil && !errors.Is(err, delayqueue.ErrNotFound) || last == rows {
					if err != nil {
						t.Error(err)
					}
					return
				}
				var batch []delayqueue.Outgoing
				for row := last + 1; row <= min(last+2*script.MaxPut+50, rows); row++ {
					options := []delayqueue.MsgOption{face.InAnHour, delayqueue.WithSequence("rows", row)}
					if at := row % 40; try%3 != 2 && at == int64(i) {
						options = append(options, delayqueue.WithKey("taken"))
					} else if try%3 != 2 && at == 20+int64(i) {
						options = append([]delayqueue.MsgOption{delayqueue.WithRetryCount(-1)}, options...)
					}
					batch = append(batch, delayqueue.Outgoing{Payload: strconv.FormatInt(row, 10), Options: options})
				}
				ctx, cancel := context.WithCancel(queuetest.CtxB)
				if try%4 == 1 {
					ctx, cancel = context.WithTimeout(queuetest.CtxB, time.Duration((try-1)%7)*time.Millisecond)
				}
				_, err = p.SendBatch(ctx, batch)
				cancel()
				if errors.Is(err, delayqueue.ErrSequenceStopped) {
					stopped.Add(1)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					ended.Add(1)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, m := range f.Check().Messages {
		if seen[m.Payload]++; seen[m.Payload] > 1 {
			t.Errorf("%s is there %d times", m.Payload, seen[m.Payload])
		}
	}
	if len(seen) != rows+1 || lost.Load() == 0 || stopped.Load() == 0 || ended.Load() == 0 {
		t.Errorf("%d rows of %d; %d replies were lost, %d batches stopped, %d contexts ended", len(seen)-1, rows, lost.Load(),
			stopped.Load(), ended.Load())
	}
}
