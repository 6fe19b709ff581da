package schedule

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A part sends for the entries that lie in one shard. One goroutine owns it, and what changes of those entries. So a
// node that does not answer delays no entry of another one.
type part struct {
	*Scheduler
	store  *script.Store // the shard
	own    *table        // in the shard, for its server's history; nil: it is the first shard, of which readings have it
	outage *outage
	views  chan view // the last one that was given, and not taken yet

	reading *reading // nothing is sent without one
	entries []*entry
	history string // of the server that the instants of entries were asked of
	// the first one of those, one after the other, that found entries settled too far ahead; nil: the last did not
	odd    *reading
	open   map[string]int64 // generations of changes that cannot be completed, which the log knows
	marked time.Time        // when remember did something last
}

// A view is what a look has found of one shard.
type view struct {
	reading *reading // nil: it failed
	entries []*entry
}

// give replaces the view that is not taken yet. Only one goroutine may call it.
func (p *part) give(v view) {
	select {
	case <-p.views:
	default:
	}
	p.views <- v
}

// run sends what is due after each look, and at each instant of an entry that skips, until ctx ends.
func (p *part) run(ctx context.Context) {
	var err error
	for {
		var skipping <-chan time.Time
		// After an error a server that refuses would be asked without a pause.
		if err == nil && p.reading != nil && p.reading.age() < lookEvery {
			skipping = time.After(p.untilSkipping())
		}
		select {
		case <-ctx.Done():
			return
		case v := <-p.views:
			if v.reading == nil {
				p.reading = nil
				continue
			}
			err = p.look(ctx, v)
		case <-skipping:
		}
		if err == nil {
			err = p.sendDue(ctx)
		}
		if ctx.Err() == nil {
			p.outage.report(p, err)
		}
	}
}

// look finds out where the sequences of entries are, if that is not known, or if the server may have lost something.
func (p *part) look(ctx context.Context, v view) error {
	p.reading, p.entries = nil, v.entries
	history := v.reading.history
	if p.own != nil && len(p.entries) > 0 {
		own, err := within(ctx, callLimit, func(ctx context.Context) (*reading, error) { return p.own.look(ctx, true) })
		if err != nil {
			return p.store.InShard(err)
		}
		history = own.history
	}
	if history != p.history { // what it lost must be sent again
		p.history = history
		for _, e := range p.entries {
			e.last, e.never = -1, false
		}
	}
	if err := p.askLasts(ctx, v.reading); err != nil {
		return err
	}
	p.beginAnew(ctx, v.reading)
	p.remember(v.reading)
	p.reading = v.reading
	return nil
}

// remember keeps in mind where entries were one to two times rememberEvery ago. If a server loses that, they do not go
// back beyond it: most of what was sent before has been handled.
func (p *part) remember(now *reading) {
	if now.at.Sub(p.marked) < rememberEvery {
		return
	}
	p.marked = now.at
	for _, e := range p.entries {
		e.kept, e.mark = e.mark, max(e.mark, e.last)
	}
}

const rememberEvery = 10 * time.Minute

// askLasts reads the instants up to which entries are settled. It reads those of entries whose instant is not known,
// and of entries that have been open for long, which it completes.
func (p *part) askLasts(ctx context.Context, now *reading) error {
	var ask, open []*entry
	for _, e := range p.entries {
		switch {
		case e.deserted(now):
			open = append(open, e)
		case e.last < 0 && e.runs():
			ask = append(ask, e)
		}
	}
	p.mend(ctx, open, func(ctx context.Context, e *entry) error { return p.complete(ctx, e.name, e.text, &e.record, now) })
	names := make([]string, 0, len(ask))
	for _, e := range ask {
		names = append(names, e.name)
	}
	lasts, err := p.lasts(ctx, p.store, names, callLimit)
	if err != nil {
		return err
	}
	forgotten, passed := 0, []*entry(nil)
	for _, e := range ask {
		if lasts[e.name] < e.after {
			forgotten++
		}
		if p.begin(e, lasts[e.name]); e.moved >= passedFor {
			passed = append(passed, e)
		}
	}
	if forgotten > 0 {
		p.log.Error(
			"schedule: the server has forgotten messages of entries: they are sent again, and run twice if they have run",
			slog.String("queue", p.queue.Name()), slog.Int("entries", forgotten))
	}
	p.mend(ctx, passed, func(ctx context.Context, e *entry) error { return p.goOn(ctx, e, lasts[e.name], now) })
	return nil
}

// mend makes or completes a change of each of these entries. One that fails is logged once, and tried again by the next
// look; the other entries go on.
func (p *part) mend(ctx context.Context, all []*entry, change func(context.Context, *entry) error) {
	_ = side(all, func(e *entry) error {
		_, err := within(ctx, callLimit, func(ctx context.Context) (any, error) { return nil, change(ctx, e) })
		if err == nil || ctx.Err() != nil {
			return nil
		}
		p.mu.Lock()                      // entries are changed side by side
		known := p.open[e.name] == e.Gen // each step of a change makes another text
		p.open[e.name] = e.Gen
		p.mu.Unlock()
		if !known {
			p.log.Error("schedule: the change of an entry cannot be completed", slog.String("queue", p.queue.Name()),
				slog.String("entry", e.name), slog.Any("error", err))
		}
		return nil
	})
}

// passedFor is after how many looks a sequence that is at a later generation is no change that is under way: the
// first one after a change reads the entry anew.
const passedFor = 3

// begin notes the number at which the entry's sequence is.
func (p *part) begin(e *entry, n int64) {
	gen, instant := split(max(n, 0))
	if gen > e.Gen {
		if e.moved++; e.moved == passedFor {
			p.log.Error(
				"schedule: the sequence of an entry has gone on without it: a failover has forgotten a change of the entry, "+
					"or somebody has moved the sequence; the entry begins anew",
				slog.String("queue", p.queue.Name()), slog.String("entry", e.name), slog.String("sequence", sequenceOf(e.name)),
				slog.Int64("at", n))
		}
		return
	}
	if gen < e.Gen {
		instant = 0
	}
	e.last, e.next, e.from, e.fromAt, e.after, e.moved = max(instant, e.Since, e.kept), 0, 0, 0, max(n, 0), 0
	e.settled(e.last)
}

// goOn makes an entry whose sequence is at number n another generation, which goes on after the instant of n. If n has
// none, nothing was sent since the change that was forgotten, and that is not long ago.
func (p *part) goOn(ctx context.Context, e *entry, n int64, now *reading) error {
	_, since := split(n)
	at := now.now() / 1_000_000
	if since == 0 {
		since = at - slackSeconds
	}
	return p.anew(ctx, e, max(e.Since, min(since, at+aheadSeconds)), 0)
}

// lives says whether instants of the entry are to be sent, if it has any.
func (e *entry) lives() bool { return e.Open == 0 && !e.Paused && !e.Removed && !e.left }

// runs says whether there is one.
func (e *entry) runs() bool { return e.lives() && !e.never }

// untilSkipping is how long until the next instant of an entry that skips: whether its last message lives is asked
// then, not before.
func (p *part) untilSkipping() time.Duration {
	soonest := lookEvery
	for _, e := range p.entries {
		if e.Overlap == Skip && e.runs() && e.last >= 0 {
			soonest = min(soonest, time.Duration(e.next*1_000_000-p.reading.now())*time.Microsecond)
		}
	}
	return max(soonest, time.Millisecond)
}
