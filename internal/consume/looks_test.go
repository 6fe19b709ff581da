package consume

import (
	"context"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestUntilTick: how long an idle consumer waits, and a consumer that is not.
func TestUntilTick(t *testing.T) {
	const lease = 10 * time.Second
	now := time.Now()
	for name, c := range map[string]struct {
		consumers int
		change    func(p *poller, got *script.FetchReply)
		most      time.Duration
	}{
		"alone":             {1, nil, time.Second},
		"three":             {3, nil, time.Second},
		"six":               {6, nil, 2 * time.Second},
		"sixteen":           {16, nil, lease / 3},
		"a thousand":        {1000, nil, lease / 3},
		"with a long lease": {1000, func(p *poller, _ *script.FetchReply) { p.settings.Lease = time.Hour }, maxIdleInterval},
		"with a short lease": {16, func(p *poller, _ *script.FetchReply) {
			p.settings.Lease, p.state.interval = time.Second, time.Second/3
		},
			time.Second / 3},
		"with an interval": {16, func(p *poller, _ *script.FetchReply) { p.settings.FetchInterval = time.Second },
			time.Second},
		"without wake-ups":      {16, func(p *poller, _ *script.FetchReply) { p.state.wakeUpsOff.Store(true) }, time.Second},
		"after a failure":       {16, func(p *poller, _ *script.FetchReply) { p.state.failures = 1 }, time.Second},
		"more is due":           {16, func(p *poller, _ *script.FetchReply) { p.state.moreDue = true }, time.Second},
		"something was fetched": {16, func(_ *poller, got *script.FetchReply) { got.Tags = []string{"a"} }, time.Second},
		"it holds something": {16, func(p *poller, _ *script.FetchReply) {
			p.leases.held.add(&delivery{lease: unknownLease()})
		}, time.Second},
		"no link": {16, func(p *poller, _ *script.FetchReply) { p.store = script.NewStore(nil, "dq", "q") },
			time.Second},
		"the next is known": {16, func(_ *poller, got *script.FetchReply) { got.Next = serverStart + serverSecond/2 },
			3 * time.Second / 2},
		"the next comes late": {16, func(_ *poller, got *script.FetchReply) { got.Next = serverStart + 60*serverSecond },
			lease / 3},
	} {
		cli := redis.NewClient(&redis.Options{})
		defer cli.Close()
		var store *script.Store
		for range c.consumers {
			store = script.NewStore(cli, "dq", "q").ForConsumer(lease)
			defer store.Release()
		}
		p := &poller{
			settings: &Settings{FetchSettings: script.FetchSettings{Lease: lease}, Base: context.Background()},
			store:    store,
			leases:   new(leases),
			state:    pollState{interval: time.Second, clock: serverStart, clockAt: now},
		}
		got := &script.FetchReply{Now: serverStart}
		if c.change != nil {
			c.change(p, got)
		}
		least := p.state.interval * 7 / 8
		for i := range 10 {
			if i == 1 {
				least = c.most - p.state.interval/8 // the first may come sooner, so that queues do not tick together
			}
			if d := p.untilLook(got, now); d < least || d > c.most {
				t.Errorf("%s: tick %d after %v", name, i, d)
			}
		}
		if p.state.idleLooks != (c.most > p.state.interval) {
			t.Errorf("%s: idle ticks: %v", name, p.state.idleLooks)
		}
	}
}
