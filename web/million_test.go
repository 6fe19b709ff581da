package web

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

var million = flag.Int("million", 5_000, "how many messages TestMillion has")

// TestMillion: a page of a large queue takes some scripts, and not more for more messages. It prints how long Redis works on them.
func TestMillion(t *testing.T) {
	f := newFixture(t, Config{})
	id := f.fill("large", *million)
	t.Logf("%d messages, 4,000 of them garbage", *million)
	in := []any{"q", "large"}
	for _, page := range []string{
		"", address("queue", in...), address("messages", in...), address("messages", append(in, "state", "garbage")...),
		address("messages", append(in, "text", "payload-"+strconv.Itoa(*million/2))...), address("messages", append(in, "text", "nowhere")...),
		address("message", append(in, "id", id)...), address("consumers", in...), address("journal", in...), "health",
	} {
		f.page.Close()
		f.serve(Config{}) // which remembers nothing
		calls, redis := f.scripts(func() {
			if got := f.get(page); got.code != 200 {
				t.Fatalf("%s: %d %s", page, got.code, got.body)
			}
		})
		t.Logf("%d scripts, %v of Redis: %s", calls, redis, page)
		if calls > 200 {
			t.Errorf("%s: %d scripts", page, calls)
		}
	}
}

// fill sends n messages, of which 4,000 at most fail, and returns the id of one that waits.
func (f *fixture) fill(queue string, n int) (id string) {
	f.Helper()
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: "payload-" + strconv.Itoa(i),
			Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Duration(1+i%72) * time.Hour)}}
		if i < 4_000 {
			batch[i].Options = []delayqueue.MsgOption{delayqueue.WithRetryCount(0)}
		}
	}
	sent, err := delayqueue.NewPublisher(queue, f.cli).SendBatch(f.Context(), batch)
	ok(f, err)
	q := delayqueue.NewQueue(queue, f.cli, nil).WithLogger(slog.New(slog.DiscardHandler)).
		WithHandler(func(context.Context, *delayqueue.Message) error { return errors.New("no answer") })
	ended := q.StartConsume()
	f.eventually("the garbage is there", func() bool {
		counts, err := f.monitor(queue).Counts(f.Context())
		return err == nil && counts.Garbage == int64(min(n, 4_000))
	})
	q.StopConsume() // its fetches are none of a page's
	<-ended
	return sent[n-1].Info.ID
}
