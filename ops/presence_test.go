package ops

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func monitorConsumers(f *face.Fixture, m *Queue) {
	started, release := make(chan struct{}, 4), make(chan struct{})
	q := f.Queue(func(string) bool { started <- struct{}{}; <-release; return true }).WithConcurrent(3)
	// One that died an hour ago, and something that nobody of ours wrote.
	key := f.Key("consumers")
	f.Must(f.Cli.HSet(queuetest.CtxB, key,
		"dead", fmt.Sprintf("%d 10000000 {}", time.Now().Add(-time.Hour).UnixMicro()), "rubbish", "x").Err())
	begun := time.Now()
	a, b := f.Send(q, "a"), f.Send(q, "b")
	q.StartConsume()
	queuetest.Receive(f.T, "one is handled", started)
	queuetest.Receive(f.T, "the other is handled", started)
	var c Consumer
	queuetest.Eventually(f.T, "it says what it handles", func() bool {
		cs, err := m.Consumers(queuetest.CtxB)
		if err != nil || len(cs) != 1 {
			return false
		}
		c = cs[0]
		return len(c.Handling) == 2
	})
	host, _ := os.Hostname()
	ids := []string{c.Handling[0].ID, c.Handling[1].ID}
	slices.Sort(ids)
	if c.Host != host || c.PID != os.Getpid() || c.Concurrency != 3 || !slices.Equal(ids, []string{a.ID, b.ID}) ||
		c.Since.Before(begun.Add(-time.Second)) ||
		c.Since.After(c.Seen) || c.Handling[0].For < c.Handling[1].For || c.Handling[1].For < 0 ||
		c.Handling[0].For > time.Since(begun) {
		f.T.Errorf("%+v", c)
	}
	queuetest.Eventually(f.T, "the dead have vanished", func() bool { return f.Cli.HLen(queuetest.CtxB, key).Val() == 1 })
	close(release)
	f.Must(q.Shutdown(queuetest.CtxB))
	if left := f.Check().Consumers; len(left) != 0 {
		f.T.Errorf("after the stop: %v", left)
	}
}

// TestConsumerOfRubbish: an entry from the future, as after a step of the clock, or with numbers that nobody writes
// is not alive, and can be written as JSON if it is alive after all.
func TestConsumerOfRubbish(t *testing.T) {
	now := time.Now().UnixMicro()
	for name, entry := range map[string]string{
		"future": fmt.Sprintf("%d 10000000 {}", now+time.Hour.Microseconds()), "end of time": "9223372036854775807 1 {}",
		"before time": "-9223372036854775808 10000000 {}", "no lease": fmt.Sprintf("%d -1 {}", now-4e6),
		"infinite": "inf inf {}",
		"rubbish":  "x", "empty": "", "no JSON": fmt.Sprintf("%d 1 {", now-4e6),
	} {
		if c, alive := consumerOf(name, entry, now); alive {
			t.Errorf("%s is alive: %+v", name, c)
		}
	}
	c, alive := consumerOf("odd times",
		fmt.Sprintf(
			`%d 10000000 {"up":-9223372036854775808,"handling":[{"id":"a","us":9223372036854775807},{"id":"b","us":-5}]}`, now),
		now)
	if text, err := json.Marshal(c); !alive || err != nil {
		t.Errorf("alive: %v; %v: %s", alive, err, text)
	}
}

// TestManyConsumers: 300 with 100 messages each are read a page at a time, each page by one call for some 25; the
// one that handles a message is found, and a look at a message that waits reads none.
func TestManyConsumers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	onServer := server.Client(t)
	f := face.On(t, onServer)
	m := Of(delayqueue.NewMonitor(f.Name, onServer))
	waits := f.Send(f.Queue(nil), "waits", face.InAnHour)
	held := f.Send(f.Queue(nil), "held")
	if got, err := f.Calls().Fetch(queuetest.CtxB, &script.Caller{ID: "c", N: 1},
		script.FetchRequest{Want: 1, Settings: &script.FetchSettings{Lease: time.Hour, MaxLosses: 3}}); err != nil ||
		len(got.Tags) != 1 {
		t.Fatalf("%v, %v", got.Tags, err)
	}
	now := time.Now().UnixMicro()
	for i := range 300 {
		said := script.Presence{Concurrency: 100}
		for j := range 100 {
			said.Handling = append(said.Handling, script.HandledMessage{ID: fmt.Sprintf("%036d", j)})
		}
		if i == 123 {
			said.Handling[50].ID = held.ID
		}
		text, err := json.Marshal(said)
		f.Must(err)
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("consumers"), fmt.Sprint(i),
			fmt.Sprintf("%d 3600000000 %s", now, text)).Err())
	}
	var alive []Consumer
	spent := queuetest.Commands(t, queuetest.RedisClient(t, server.Addr()), func() {
		var err error
		alive, err = m.Consumers(queuetest.CtxB)
		f.Must(err)
	})
	if calls := spent["hscan"]; len(alive) != 300 || calls < 6 || calls > 60 {
		t.Errorf("%d consumers in %d pages: %v", len(alive), calls, spent)
	}
	if status, err := m.Get(queuetest.CtxB, held.ID); err != nil || status.State != delayqueue.StateUnack ||
		status.Consumer != "123" {
		t.Errorf("%+v, %v", status, err)
	}
	spent = queuetest.Commands(t, queuetest.RedisClient(t, server.Addr()), func() {
		if status, err := m.Get(queuetest.CtxB, waits.ID); err != nil || status.State != delayqueue.StatePending {
			t.Errorf("%+v, %v", status, err)
		}
		if err := m.DeleteQueue(queuetest.CtxB, false); err == nil ||
			!strings.Contains(err.Error(), ErrConsumersAlive.Error()) {
			t.Errorf("DeleteQueue: %v", err)
		}
	})
	if spent["hscan"] > 30 || spent["unlink"] > 0 { // until it has read 1 MB
		t.Errorf("DeleteQueue: %v", spent)
	}
}

// TestRedisPageConsumer: the consumer's entry that docs/redis.md shows is read.
func TestRedisPageConsumer(t *testing.T) {
	if c, alive := consumerOf("c", queuetest.RedisExample(t, "consumer"), 1790000000000000); !alive ||
		c.Host != "web-3" || len(c.Handling) != 1 {
		t.Errorf("the consumer is %+v, %v", c, alive)
	}
}
