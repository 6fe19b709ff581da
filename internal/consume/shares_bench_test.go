package consume

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// BenchmarkShares is what a delivery costs of the choosing in a pool of so many queues with a backlog each: a handler
// returns, its worker gets the next delivery, and the queue whose delivery that was fetches another one.
func BenchmarkShares(b *testing.B) {
	for _, queues := range []int{2, 10, 100, 1000} {
		b.Run(fmt.Sprint(queues), func(b *testing.B) {
			ws := &Workers{size: 64, used: 64, shared: true}
			var members []*member
			for i := range queues {
				m := ws.join(Portion{Weight: 1, Order: i})
				m.each = 3 * time.Millisecond
				members = append(members, m)
				m.put([]*delivery{{consumer: &Consumer{member: m}, terms: &noTerms}}, 0)
			}
			for i := range 64 {
				w := &worker{workers: ws, index: i, member: members[i%queues]}
				w.member.busy++
				ws.running = append(ws.running, w)
			}
			running := append([]*worker{}, ws.running...)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w := running[i%64]
				w.took = 3 * time.Millisecond
				d := ws.next(w)
				w.member = d.consumer.member
				w.member.room(script.MaxBatch, true, 100*time.Microsecond)
				w.member.ask(script.MaxBatch, true, 100*time.Microsecond)
				w.member.put([]*delivery{d}, 0)
				w.member.endFetch()
			}
		})
	}
}
