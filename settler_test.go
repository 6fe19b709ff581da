package delayqueue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// forgetFetch puts a message back where it was before its first delivery, as on a server that takes over from one
// which did not pass the fetch on.
func (f *fixture) forgetFetch(info *MessageInfo) {
	f.t.Helper()
	k := newStore(f.cli, "dq", f.name).keys
	due := f.check().Messages[info.ID].Due
	_, err := f.cli.TxPipelined(ctxB, func(p redis.Pipeliner) error {
		p.ZRem(ctxB, k.unack, info.ID)
		p.ZAdd(ctxB, k.pending, redis.Z{Score: float64(due), Member: info.ID})
		p.HSet(ctxB, k.state, "armed", due)
		return nil
	})
	f.must(err)
}

// TestSettleAfterTheServerForgotTheFetch: what was handled is not delivered again, with a key or without; what failed is.
func TestSettleAfterTheServerForgotTheFetch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts    []MsgOption
		result  error
		handled int
	}{
		"acked":           {nil, nil, 1},
		"acked, with key": {[]MsgOption{WithKey("k")}, nil, 1},
		"failed":          {nil, errBoom, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			started, release := make(chan int, 4), make(chan struct{})
			// A renewal would notice that the fetch is forgotten.
			q := f.queue(nil).WithLease(time.Minute).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *Message) error {
				started <- msg.Delivery
				if _, first := <-release; first {
					return c.result
				}
				return nil
			})
			info := f.send(q, "x", c.opts...)
			q.StartConsume()
			receive(t, "it is handled", started)
			m := NewMonitor(f.name, f.cli)
			f.must(m.Pause(ctxB)) // this consumer would fetch it again at once
			f.forgetFetch(info)
			late := f.log.count("came too late")
			release <- struct{}{}
			if c.handled == 1 {
				eventually(t, "it is acked", func() bool { return f.where(info.ID) == "gone" })
			} else {
				eventually(t, "its failure changes nothing", func() bool { return f.log.count("came too late") == late+1 })
			}
			close(release)
			f.must(m.Resume(ctxB))
			for n := 1; n < c.handled; n++ {
				if delivery := receive(t, "it comes again", started); delivery != 1 {
					t.Errorf("delivery %d", delivery)
				}
			}
			last := f.send(q, "last")
			eventually(t, "all is handled", func() bool { return f.where(last.ID) == "gone" })
			receive(t, "the last one was handled", started)
			f.checkEmpty()
			if len(started) > 0 {
				t.Errorf("handled %d times too often; log:\n%s", len(started), f.log)
			}
			f.log.says(t, c.handled-1, "came too late")
		})
	}
}

// TestSettleUnreadableReply: it is not asked for again for ever, for then no other settlement would get out;
// and there is an error in the log.
func TestSettleUnreadableReply(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	var got tally
	q := f.queueOn(cli, func(payload string) bool { got.add(payload); return true })
	q.StartConsume()
	struck, release := wire.HoldReply(redistest.Script(settleScript.sha))
	defer release()
	f.send(q, "a")
	receive(t, "the answer is held", struck)
	wire.Cut() // before the call is repeated
	state := newStore(f.cli, "dq", f.name).keys.state
	eventually(t, "the settler's call is recorded", func() bool {
		for field, value := range f.check().Fields {
			if id := q.current().settler.caller.id; field == "call:"+id && value != "" {
				f.must(f.cli.HSet(ctxB, state, field, fmt.Sprintf("1 %d 0 1.0 ", time.Now().UnixMicro())).Err())
				return true
			}
		}
		return false
	})
	wire.Mend()
	eventually(t, "the log says so", func() bool { return f.log.count("unexpected reply") > 0 })
	b := f.send(f.queue(nil), "b")
	eventually(t, "settling goes on", func() bool { return got.of("b") == 1 && f.where(b.ID) == "gone" })
	f.checkEmpty()
}
