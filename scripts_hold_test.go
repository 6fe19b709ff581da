package delayqueue

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// heldFor is how long a command of this name took on average during a call. What single ones take longer is due to
// what else this machine does.
func heldFor(t *testing.T, cli *redis.Client, name string, call func()) time.Duration {
	t.Helper()
	if err := cli.Do(ctxB, "slowlog", "reset").Err(); err != nil {
		t.Fatal(err)
	}
	call()
	entries, err := cli.SlowLogGet(ctxB, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	n := 0
	for _, e := range entries {
		if strings.EqualFold(e.Args[0], name) {
			sum += e.Duration
			n++
		}
	}
	if n == 0 {
		t.Fatalf("no %s was made", name)
	}
	return sum / time.Duration(n)
}

// TestSendHold: no call of a send holds the server for more than twice what one plain HSET of 500 messages of 8 KB does,
// however many messages and bytes are sent, keys or not.
func TestSendHold(t *testing.T) {
	server := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000")
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	cli := redisClient(t, server.Addr())
	const n, size = 500, 8 << 10
	payload := strings.Repeat("x", size)
	q := f.queue(nil)
	f.send(q, "the script is loaded", inAnHour, WithKey("first"))

	least := func(of func(i int) time.Duration) time.Duration { // others use this machine too
		best := time.Duration(math.MaxInt64)
		for i := range 5 {
			best = min(best, of(i))
		}
		return best
	}
	plain := least(func(i int) time.Duration {
		pairs := make([]any, 0, 2*n)
		for j := range n {
			pairs = append(pairs, fmt.Sprintf("%036d", j), payload)
		}
		key := fmt.Sprint("plain", i) // it is kept: what is sent takes fresh memory, too
		return heldFor(t, cli, "hset", func() { f.must(cli.HSet(ctxB, key, pairs...).Err()) })
	})
	for _, kind := range []string{"delay", "key", "schedule"} {
		sent := least(func(i int) time.Duration {
			batch := make([]Outgoing, n)
			for j := range batch {
				batch[j] = Outgoing{payload, []MsgOption{inAnHour}}
				switch kind {
				case "key":
					batch[j].Options = append(batch[j].Options, WithKey(fmt.Sprint(i, j)))
				case "schedule":
					batch[j].Options = []MsgOption{WithSchedule(time.Now().Add(-time.Hour))}
				}
			}
			return heldFor(t, cli, "evalsha", func() {
				if _, err := q.SendBatch(ctxB, batch); err != nil {
					t.Fatal(err)
				}
			})
		})
		t.Logf("%s: %v, %.1f times one HSET, which takes %v", kind, sent, float64(sent)/float64(plain), plain)
		if sent > 2*plain {
			t.Errorf("%s: a call held the server for %v, one HSET of all for %v", kind, sent, plain)
		}
	}
}
