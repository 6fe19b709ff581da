package delayqueue_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestSendHold: no call of a send holds the server for more than twice what one plain HSET of 500 messages of 8 KB does,
// however many messages and bytes are sent, keys or not.
func TestSendHold(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	cli := queuetest.RedisClient(t, server.Addr())
	const n, size = 500, 8 << 10
	payload := strings.Repeat("x", size)
	q := f.Queue(nil)
	f.Send(q, "the script is loaded", face.InAnHour, delayqueue.WithKey("first"))

	least := func(tries int, enough time.Duration, of func(i int) time.Duration) time.Duration { // others use this machine too
		best := time.Duration(math.MaxInt64)
		for i := 0; i < tries && best > enough; i++ {
			best = min(best, of(i))
		}
		return best
	}
	plain := least(5, 0, func(i int) time.Duration {
		pairs := make([]any, 0, 2*n)
		for j := range n {
			pairs = append(pairs, fmt.Sprintf("%036d", j), payload)
		}
		key := fmt.Sprint("plain", i) // it is kept: what is sent takes fresh memory, too
		return queuetest.HeldFor(t, server, "hset", func() { f.Must(cli.HSet(queuetest.CtxB, key, pairs...).Err()) })
	})
	for _, kind := range []string{"delay", "key", "schedule"} {
		sent := least(20, 2*plain, func(i int) time.Duration {
			batch := make([]delayqueue.Outgoing, n)
			for j := range batch {
				batch[j] = delayqueue.Outgoing{Payload: payload, Options: []delayqueue.MsgOption{face.InAnHour}}
				switch kind {
				case "key":
					batch[j].Options = append(batch[j].Options, delayqueue.WithKey(fmt.Sprint(i, j)))
				case "schedule":
					batch[j].Options = []delayqueue.MsgOption{delayqueue.WithSchedule(time.Now().Add(-time.Hour))}
				}
			}
			return queuetest.HeldFor(t, server, "evalsha", func() {
				if _, err := q.SendBatch(queuetest.CtxB, batch); err != nil {
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
