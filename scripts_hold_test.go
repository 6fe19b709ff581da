package delayqueue

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// heldFor is how long the server worked on a command of this name, on average, during a call that makes no other.
func heldFor(t *testing.T, server *redistest.Server, name string, call func()) time.Duration {
	t.Helper()
	cli := redisClient(t, server.Addr())
	if err := cli.ConfigResetStat(ctxB).Err(); err != nil {
		t.Fatal(err)
	}
	before := server.Busy()
	call()
	held := server.Busy() - before
	info, err := cli.Info(ctxB, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		var calls int64
		if n, _ := fmt.Sscanf(line, "cmdstat_"+name+":calls=%d,", &calls); n == 1 {
			return held / time.Duration(calls)
		}
	}
	t.Fatalf("no %s in %s", name, info)
	return 0
}

// TestSendHold: no call of a send holds the server for more than twice what one plain HSET of 500 messages of 8 KB does,
// however many messages and bytes are sent, keys or not.
func TestSendHold(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
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
		return heldFor(t, server, "hset", func() { f.must(cli.HSet(ctxB, key, pairs...).Err()) })
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
			return heldFor(t, server, "evalsha", func() {
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
