package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestBulkContinuesLate: whether a step was done that was cut off is forgotten in time; then what it may have shifted
// is not shifted again.
func TestBulkContinuesLate(t *testing.T) {
	t.Parallel()
	for name, arrived := range map[string]bool{"done": true, "not done": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			q, m := f.queue(nil), NewMonitor(f.name, f.cli)
			base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
			for i := range 10 {
				f.send(q, "", WithSchedule(base.Add(time.Duration(i)*time.Minute)))
			}
			cli := f.client()
			ctx, cancel := context.WithCancel(ctxB)
			defer cancel()
			calls := 0
			hookOwn(t, cli, commandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if cmd.Args()[1] != steerScript.sha {
					return next(c, cmd)
				}
				if calls++; calls < 2 {
					return next(c, cmd)
				}
				if arrived {
					_ = next(c, cmd)
				}
				cancel()
				return fmt.Errorf("the reply is lost: %w", context.DeadlineExceeded)
			}))
			got, err := unhurriedMonitor(f.name, cli).BulkRescheduleBy(ctx, Bulk{Filter: Filter{Limit: 3}}, -time.Second)
			if !errors.Is(err, context.Canceled) || got.Done != 3 {
				t.Fatalf("%+v, %v", got, err)
			}
			var o operation
			f.must(readCursor(got.Next, &o))
			f.must(f.cli.HDel(ctxB, q.store.keys.state, "call:"+o.Caller).Err())
			o.Doubt.When -= time.Hour.Microseconds()
			next, err := cursorOf(&o)
			f.must(err)
			got, err = m.BulkContinue(ctxB, next, nil)
			f.bulked("continued", got, err, 10, 7, map[Reason]int64{PassedUnknown: 3})
			i, shifted := 0, 0
			for msg, err := range m.All(ctxB, StatePending, Filter{}) {
				f.must(err)
				switch msg.Due.Sub(base.Add(time.Duration(i) * time.Minute)) {
				case 0:
				case -time.Second:
					shifted++
				default:
					t.Errorf("%d is due at %v", i, msg.Due.Sub(base))
				}
				i++
			}
			if want := map[bool]int{true: 10, false: 7}[arrived]; shifted != want {
				t.Errorf("%d are shifted, want %d", shifted, want)
			}
		})
	}
}

// TestBulkRescheduleUntilNow: if the time to which ready messages are moved comes meanwhile, the others are done where
// they are, each once.
func TestBulkRescheduleUntilNow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	const n = 40
	k, now := q.store.keys, time.Now().UnixMicro()
	for range n { // as if they had been released
		id := f.send(q, "").ID
		f.must(f.cli.ZRem(ctxB, k.pending, id).Err())
		f.must(f.cli.HSet(ctxB, k.fail, id, fmt.Sprintf("2 0 0 %d ", now)).Err())
		f.must(f.cli.RPush(ctxB, k.ready, "2:"+id).Err())
	}
	at := time.Now().Add(3 * time.Second)
	got, err := m.BulkReschedule(ctxB, Bulk{States: []State{StateReady}, Filter: Filter{Limit: 10}, Progress: func(*BulkResult) bool {
		eventually(t, "the time has come", func() bool { return time.Now().After(at) })
		return true
	}}, at)
	f.bulked("rescheduled", got, err, n, n, nil)
}
