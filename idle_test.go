package delayqueue

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// siblings are more queues on the same server, with names of their own.
func (f *fixture) siblings(n int) (all []*fixture) {
	for i := range n {
		g := &fixture{t: f.t, cli: f.cli, name: fmt.Sprint(f.name, ".", i), log: f.log}
		f.t.Cleanup(func() {
			g.check()
			for _, key := range newStore(g.cli, "dq", g.name).keys.all {
				g.cli.Del(context.Background(), key.(string))
			}
		})
		all = append(all, g)
	}
	return all
}

// looks notes the fetches of the queues of a client.
type looks struct {
	mu  sync.Mutex
	all map[string][]look // by the first key
}

type look struct {
	at      time.Time
	byAlarm bool
}

func looksOf(t *testing.T, cli redis.UniversalClient) *looks {
	l := &looks{all: map[string][]look{}}
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) > 3 && args[1] == fetchScript.sha {
			l.mu.Lock()
			key := args[3].(string)
			l.all[key] = append(l.all[key], look{time.Now(), args[3+args[2].(int)+7] == 2})
			l.mu.Unlock()
		}
		return next(ctx, cmd)
	}))
	return l
}

// last is the last two looks at a queue, and how many there were.
func (l *looks) last(f *fixture) (before, last look, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all[newStore(f.cli, "dq", f.name).keys.pending]
	if n = len(all); n > 1 {
		before, last = all[n-2], all[n-1]
	}
	return before, last, n
}

// rests waits until a queue is looked at no more than so often, by the alarm.
func (l *looks) rests(t *testing.T, f *fixture, every time.Duration) {
	t.Helper()
	eventually(t, "it is looked at rarely", func() bool {
		before, last, _ := l.last(f)
		return before.byAlarm && last.byAlarm && last.at.Sub(before.at) > every
	})
}

// TestIdleQueuesTickRarely: 16 of one client each let nearly a third of a lease pass, woken as ever; one that holds
// something ticks as one that is alone.
func TestIdleQueuesTickRarely(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := f.client()
	l := looksOf(t, cli)
	handled, release := make(chan string, 100), make(chan struct{})
	queues, all := f.siblings(16), []*DelayQueue(nil)
	for _, g := range queues {
		q := g.queueOn(cli, func(payload string) bool {
			if handled <- payload; payload == "long" {
				<-release
			}
			return true
		})
		q.StartConsume()
		all = append(all, q)
	}
	for _, g := range queues {
		l.rests(t, g, 2500*time.Millisecond)
	}
	for i, q := range all {
		queues[i].send(q, "short", WithDelay(time.Duration(i)*100*time.Millisecond))
	}
	for range all {
		receive(t, "each is woken", handled)
	}
	queues[0].send(all[0], "long")
	receive(t, "its handler runs", handled)
	_, _, begun := l.last(queues[0])
	eventually(t, "it ticks", func() bool { _, _, n := l.last(queues[0]); return n > begun+3 })
	if before, last, _ := l.last(queues[0]); before.byAlarm || last.byAlarm {
		t.Error("while it holds something it goes by the alarm")
	}
	close(release)
	l.rests(t, queues[0], 2500*time.Millisecond)
	eventually(t, "it is alive", func() bool {
		consumers, err := NewMonitor(queues[0].name, f.cli).Consumers(ctxB)
		return err == nil && len(consumers) == 1
	})
}

// TestIdlePause: a pause rules an idle consumer with its next fetch, and its end wakes one.
func TestIdlePause(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := f.client()
	l := looksOf(t, cli)
	handled := make(chan string, 1)
	queues, all := f.siblings(8), []*DelayQueue(nil)
	for _, g := range queues {
		q := g.queueOn(cli, func(payload string) bool { handled <- payload; return true })
		q.StartConsume()
		all = append(all, q)
	}
	l.rests(t, queues[0], 1500*time.Millisecond)
	m := NewMonitor(queues[0].name, f.cli)
	f.must(m.Pause(ctxB))
	queues[0].send(all[0], "x")
	_, _, before := l.last(queues[0])
	eventually(t, "it is looked at", func() bool { _, _, n := l.last(queues[0]); return n > before+1 })
	if len(handled) > 0 {
		t.Error("it was handed out")
	}
	f.must(m.Resume(ctxB))
	receive(t, "it is handed out", handled)
}

// TestIdleLostWakeUp: a tick that goes by the alarm finds what is due although the marker is lost.
func TestIdleLostWakeUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := f.client()
	l := looksOf(t, cli)
	handled := make(chan string, 1)
	queues := f.siblings(8)
	for _, g := range queues {
		g.queueOn(cli, func(payload string) bool { handled <- payload; return true }).StartConsume()
	}
	for _, d := range []time.Duration{0, time.Second} {
		l.rests(t, queues[0], 1500*time.Millisecond)
		m, k := msg(fmt.Sprint("x", d), d), newStore(f.cli, "dq", queues[0].name).keys
		sent := singleScript.command("evalsha", singleScript.sha, k, []any{"sender", d.Seconds() + 1, m.delay(), &m.id, &m.text})
		_, err := f.cli.TxPipelined(ctxB, func(p redis.Pipeliner) error {
			p.Do(ctxB, sent...)
			p.ZRem(ctxB, k.wake, "w") // before anybody who waits is served
			return nil
		})
		f.must(err)
		receive(t, "it is handled", handled)
	}
}

// TestIdleQueuesNoticeADeath: what a consumer held that is killed beside 16 idle queues of another process comes back at the end
// of its lease.
func TestIdleQueuesNoticeADeath(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	queues := f.siblings(16)
	dying, list := queues[0], f.eventList()
	spec := childSpec{Addr: shared.Addr(), Name: dying.name, Events: list, Lease: 6 * time.Second, HangOn: "work", MaxLosses: 3}
	child := startChild(t, spec)
	info := dying.send(dying.queue(nil), "work")
	eventually(t, "the process handles it", func() bool { return len(find(f.events(list), "start", "work")) == 1 })
	cli := f.client()
	l := looksOf(t, cli)
	handled := make(chan string, 1)
	for _, g := range queues {
		g.queueOn(cli, func(payload string) bool { handled <- payload; return true }).WithLease(spec.Lease).StartConsume()
	}
	l.rests(t, dying, 1500*time.Millisecond)
	child.signal(syscall.SIGKILL)
	killed := time.Now()
	child.awaitExit(t)
	receive(t, "it comes back", handled)
	// A lease (of which some may be over), a second, and what this process needs on a busy machine.
	if took := time.Since(killed); took > spec.Lease+time.Second+soon/2 {
		t.Errorf("redelivered %v after the kill, want within a lease and a second", took)
	}
	eventually(t, "it is acked", func() bool { return dying.where(info.ID) == "gone" })
}

// TestUntilTick: how long an idle consumer waits, and a consumer that is not.
func TestUntilTick(t *testing.T) {
	const lease = 10 * time.Second
	now := time.Now()
	for name, c := range map[string]struct {
		consumers int
		change    func(p *poller, got *fetchReply)
		most      time.Duration
	}{
		"alone":             {1, nil, time.Second},
		"three":             {3, nil, time.Second},
		"six":               {6, nil, 2 * time.Second},
		"sixteen":           {16, nil, lease / 3},
		"a thousand":        {1000, nil, lease / 3},
		"with a long lease": {1000, func(p *poller, _ *fetchReply) { p.settings.lease = time.Hour }, maxIdleInterval},
		"with a short lease": {16, func(p *poller, _ *fetchReply) { p.settings.lease, p.state.interval = time.Second, time.Second/3 },
			time.Second / 3},
		"with an interval":      {16, func(p *poller, _ *fetchReply) { p.settings.fetchInterval = time.Second }, time.Second},
		"without wake-ups":      {16, func(p *poller, _ *fetchReply) { p.state.wakeUps = false }, time.Second},
		"after a failure":       {16, func(p *poller, _ *fetchReply) { p.state.failures = 1 }, time.Second},
		"more is due":           {16, func(p *poller, _ *fetchReply) { p.state.moreDue = true }, time.Second},
		"something was fetched": {16, func(_ *poller, got *fetchReply) { got.tags = []string{"a"} }, time.Second},
		"it holds something":    {16, func(p *poller, _ *fetchReply) { p.leases.held.add(&delivery{}) }, time.Second},
		"no link":               {16, func(p *poller, _ *fetchReply) { p.store.link = nil }, time.Second},
		"the next is known":     {16, func(_ *poller, got *fetchReply) { got.next = serverStart + serverSecond/2 }, 3 * time.Second / 2},
		"the next comes late":   {16, func(_ *poller, got *fetchReply) { got.next = serverStart + 60*serverSecond }, lease / 3},
	} {
		p := &poller{
			settings: &settings{fetchSettings: fetchSettings{lease: lease}, base: context.Background()},
			store:    &store{link: &link{consumers: c.consumers}}, leases: &leases{},
			state: pollState{interval: time.Second, wakeUps: true, clock: serverStart, clockAt: now},
		}
		got := &fetchReply{now: serverStart}
		if c.change != nil {
			c.change(p, got)
		}
		least := p.state.interval * 7 / 8
		for i := range 10 {
			if i == 1 {
				least = c.most - p.state.interval/8 // the first may come sooner, so that queues do not tick together
			}
			if d := p.untilTick(got, now); d < least || d > c.most {
				t.Errorf("%s: tick %d after %v", name, i, d)
			}
		}
		if p.state.idleTicks != (c.most > p.state.interval) {
			t.Errorf("%s: idle ticks: %v", name, p.state.idleTicks)
		}
	}
}
