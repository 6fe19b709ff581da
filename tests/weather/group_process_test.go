package weather

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// groupSpec is what a child does of TestGroupsInProcesses: it sends parts, or handles groups.
type groupSpec struct {
	From, Senders, Each int // which senders of parts it is; 0 Senders: it handles groups
}

const groupCount = 10

// groupChild is a child's work. A sender's parts are `<sender> <n>`, all in one of the groups; the result of a group is its parts.
func groupChild(spec childSpec, cli *redis.Client) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if spec.Groups.Senders > 0 {
		p := delayqueue.NewPublisher(spec.Name, cli)
		var wg sync.WaitGroup
		for i := range spec.Groups.Senders {
			wg.Go(func() {
				sender := spec.Groups.From + i
				for n := range spec.Groups.Each {
					_, err := p.Send(context.Background(), fmt.Sprint(sender, " ", n),
						delayqueue.WithKey(fmt.Sprint("group-", sender%groupCount), delayqueue.Append), delayqueue.WithMaxParts(100),
						delayqueue.WithDelay(20*time.Millisecond), delayqueue.WithMaxWait(200*time.Millisecond), delayqueue.WithRetention(time.Hour),
						delayqueue.WithRetryCount(1000))
					if err != nil {
						log.Error("send", slog.Any("error", err))
						os.Exit(3)
					}
				}
			})
		}
		wg.Wait()
		return
	}
	q := delayqueue.NewQueue(spec.Name, cli, nil).WithLease(spec.Lease).WithConcurrent(spec.Concurrent).WithMaxLosses(1000).
		WithRetryDelays(10 * time.Millisecond).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			time.Sleep(spec.Handling)
			if msg.Delivery == 1 && len(msg.Parts)%3 == 0 {
				return errors.New("the first time it fails")
			}
			return delayqueue.SetResult(ctx, strings.Join(msg.Parts, "\n"))
		}).WithLogger(log)
	done := q.StartConsume()
	var one [1]byte
	_, _ = os.Stdin.Read(one[:])
	q.StopConsume()
	<-done
}

// TestGroupsInProcesses: 64 goroutines in 3 processes send some 10,000 parts to 10 groups while their consumers are
// killed. Each part is in one delivery that was acked, once, and those of one sender are in order.
func TestGroupsInProcesses(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	const senders, each = 64, 157
	crew := crewOf(f, childSpec{Lease: time.Second, Concurrent: 4, Handling: 20 * time.Millisecond, Groups: &groupSpec{}})
	consumers := []*child{crew.start(), crew.start()}
	var sending []*child
	for i := range 3 {
		spec := crew.spec
		spec.Groups = &groupSpec{From: i * senders / 3, Senders: (i+1)*senders/3 - i*senders/3, Each: each}
		sending = append(sending, startChild(t, spec))
	}
	for kills := 0; len(sending) > 0 || kills < 3; kills++ {
		select {
		case err := <-consumers[0].exited:
			t.Fatalf("a consumer ended by itself: %v\n%s", err, consumers[0].log)
		case <-time.After(300 * time.Millisecond): // as good as any
		}
		consumers[0].signal(syscall.SIGKILL)
		consumers[0].awaitExit(t)
		consumers = append(consumers[1:], crew.start())
		sending = slices.DeleteFunc(sending, func(c *child) bool {
			select {
			case err := <-c.exited:
				if c.exited <- err; err != nil {
					t.Fatalf("a sender ended: %v", err)
				}
				return true
			default:
				return false
			}
		})
	}
	queuetest.Reaches(t, "groups are handled", 0, func() int { s := f.Check(); return len(s.Done) - len(s.Messages) })
	results, err := f.Cli.HGetAll(queuetest.CtxB, f.Key("result")).Result()
	f.Must(err)
	var groups [][]string
	for _, parts := range results {
		groups = append(groups, strings.Split(parts, "\n"))
	}
	if s := f.Check(); len(s.Done) != len(groups) || len(s.Garbage) > 0 || len(groups) < senders*each/100 {
		t.Errorf("%d groups done, %d with parts, %d in garbage", len(s.Done), len(groups), len(s.Garbage))
	}
	queuetest.PartsOnce(t, groups, senders, each)
}
