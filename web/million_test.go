package web

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

var million = flag.Int("million", 5_000, "how many messages TestMillion has")

// TestMillion: a page of a large queue takes some scripts, and not more for more messages. It prints how long they take, of which 0 is
// less than 1 ms.
func TestMillion(t *testing.T) {
	f := newFixture(t, Config{})
	id := f.fill("large", *million)
	t.Logf("%d messages, 4,000 of them garbage", *million)
	table := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "scripts\tRedis ms\tslow script ms\tpage ms\t  page")
	defer table.Flush()
	in := []any{"q", "large"}
	for _, page := range []string{
		"", address("queue", in...), address("messages", in...), address("messages", append(in, "state", "garbage")...),
		address("messages", append(in, "text", "payload-"+strconv.Itoa(*million/2))...), address("messages", append(in, "text", "nowhere")...),
		address("message", append(in, "id", id)...), address("consumers", in...), address("journal", in...), "health",
	} {
		var costs []cost
		for range 5 {
			f.page.Close()
			f.serve(Config{}) // which remembers nothing
			costs = append(costs, f.cost(page))
		}
		slices.SortFunc(costs, func(a, b cost) int { return int(a.page - b.page) })
		c := costs[len(costs)/2]
		fmt.Fprintf(table, "%d\t%.1f\t%.1f\t%.0f\t  %s\n", c.calls, ms(c.redis), ms(c.slowest), ms(c.page), page)
		if c.calls > 200 {
			t.Errorf("%s: %d scripts", page, c.calls)
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// fill sends n messages, of which 4,000 at most fail, and returns the id of one that waits.
func (f *fixture) fill(queue string, n int) (id string) {
	f.Helper()
	p := delayqueue.NewPublisher(queue, f.cli)
	var batch []delayqueue.Outgoing
	for i := range n {
		o := delayqueue.Outgoing{Payload: "payload-" + strconv.Itoa(i),
			Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Duration(1+i%72) * time.Hour)}}
		if i < 4_000 {
			o.Options = []delayqueue.MsgOption{delayqueue.WithRetryCount(0)}
		}
		if batch = append(batch, o); len(batch) < 500 && i < n-1 {
			continue
		}
		sent, err := p.SendBatch(f.Context(), batch)
		ok(f, err)
		id, batch = sent[len(sent)-1].Info.ID, batch[:0]
	}
	q := delayqueue.NewQueue(queue, f.cli, nil).WithLogger(slog.New(slog.DiscardHandler)).
		WithHandler(func(context.Context, *delayqueue.Message) error { return errors.New("no answer") })
	ended := q.StartConsume()
	defer func() { // its fetches are none of a page's
		q.StopConsume()
		<-ended
	}()
	f.eventually("the garbage is there", func() bool {
		counts, err := f.monitor(queue).Counts(f.Context())
		return err == nil && counts.Garbage == int64(min(n, 4_000))
	})
	return id
}

// cost is what a page costs: Redis, and whoever looks at it.
type cost struct {
	calls                int
	redis, slowest, page time.Duration
}

func (f *fixture) cost(page string) (c cost) {
	f.Helper()
	for _, args := range [][]any{{"CONFIG", "SET", "slowlog-log-slower-than", "1000", "slowlog-max-len", "10000"},
		{"CONFIG", "RESETSTAT"}, {"SLOWLOG", "RESET"}} {
		ok(f, f.cli.Do(f.Context(), args...).Err())
	}
	begun := time.Now()
	got := f.get(page)
	c.page = time.Since(begun)
	if got.code != 200 {
		f.Fatalf("%s: %d %s", page, got.code, got.body)
	}
	slow, err := f.cli.SlowLogGet(f.Context(), -1).Result()
	ok(f, err)
	for _, call := range slow {
		if strings.HasPrefix(strings.ToLower(call.Args[0]), "eval") {
			c.slowest = max(c.slowest, call.Duration)
		}
	}
	stats, err := f.cli.InfoMap(f.Context(), "commandstats").Result()
	ok(f, err)
	for name, text := range stats["Commandstats"] {
		var calls, us int
		if strings.HasPrefix(name, "cmdstat_eval") { // which has what the script calls
			if _, err := fmt.Sscanf(text, "calls=%d,usec=%d", &calls, &us); err != nil {
				f.Fatalf("%s: %s: %v", name, text, err)
			}
		}
		c.calls += calls
		c.redis += time.Duration(us) * time.Microsecond
	}
	return c
}
