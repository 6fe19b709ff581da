package schedule

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// This file is about a server whose clock was wrong for a while. What was sent last by a clock that was ahead lies in
// the future, and an entry would wait until that comes, in a hundred years perhaps. The rule: no instant is believed
// that lies further ahead than replicas send, and a wrong clock may be right again in a moment, forwards or back. So
// an entry that is settled further ahead than farSeconds waits until the clock has gone evenly for trustAfter, and
// then begins anew. It begins aheadSeconds after the clock was seen to be right: up to there messages may be there
// that were sent before it was wrong, and no instant makes two. What lies less far ahead comes by itself.

const (
	// farSeconds is how far ahead an entry may be settled, after a clock that was a little ahead.
	farSeconds = slackSeconds

	// trustAfter is how long the clock must go evenly, by the clock of this process, before entries begin anew by it. A
	// clock that is behind for a moment makes all entries look as if they were ahead.
	trustAfter = 20 * time.Second

	// unevenly is by how much the two clocks may differ in that time.
	unevenly = 5 * time.Second
)

// isFar says whether an entry is settled further ahead than it can be by a clock that is right.
func (e *entry) isFar(now *reading) bool {
	return e.lives() && e.last > now.now()/1_000_000+farSeconds
}

// beginAnew lets those entries begin anew that are settled too far ahead, once the clock is to be trusted.
func (p *part) beginAnew(ctx context.Context, now *reading) {
	var far []*entry
	for _, e := range p.entries {
		if e.isFar(now) {
			far = append(far, e)
		}
	}
	log := p.log.With(slog.String("queue", p.queue.Name()), slog.Int("entries", len(far)))
	if len(far) == 0 {
		p.odd = nil
		return
	}
	if p.odd == nil {
		log.Error("schedule: the server's clock was ahead, or is behind: what was sent last lies too far ahead; unless "+
			"the clock changes, these entries begin anew within a minute",
			slog.String("entry", far[0].name), slog.Time("sent", time.Unix(far[0].last, 0)),
			slog.Time("now", time.UnixMicro(now.us)))
		p.odd = now
	}
	went := now.at.Sub(p.odd.at)
	if off := time.Duration(now.us-p.odd.us)*time.Microsecond - went; max(off, -off) > unevenly {
		p.odd = now
		return
	}
	if went < trustAfter {
		return
	}
	since := p.odd.us/1_000_000 + aheadSeconds
	err := side(far, func(e *entry) error {
		_, err := within(ctx, callLimit, func(ctx context.Context) (any, error) { return nil, p.again(ctx, e, since) })
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		log.Error("schedule: entries cannot begin anew for now", slog.Any("error", err))
		return
	}
	log.Info("schedule: these entries have begun anew")
}

// again makes an entry another generation, whose instants come after since.
func (p *part) again(ctx context.Context, e *entry, since int64) error {
	var freed int64
	if e.Overlap == Skip {
		var err error
		if freed, err = p.freeKey(ctx, e.name, since); err != nil {
			return err
		}
	}
	return p.anew(ctx, e, since, freed)
}

// anew is again, of an entry of which freed was taken back; 0: nothing was.
func (p *part) anew(ctx context.Context, e *entry, since, freed int64) error {
	return p.change(ctx, e.name, func(old, to *record, _ int64) error {
		if old == nil || old.unreadable != nil || old.Gen != e.Gen || old.Paused || old.Removed {
			return errSame // somebody else was faster
		}
		to.Since, to.Anew, to.freed = since, true, freed
		return nil
	})
}

// freeKey takes back the message of an entry that skips if the clock that was wrong has made it due too far ahead:
// the entry would skip until then. It returns the instant of that.
func (p *part) freeKey(ctx context.Context, name string, since int64) (instant int64, err error) {
	msg, err := p.monitor.GetKey(ctx, sequenceOf(name))
	switch {
	case errors.Is(err, delayqueue.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case msg.State != delayqueue.StatePending && msg.State != delayqueue.StateWaiting ||
		msg.Due.Unix() <= since+farSeconds:
		return 0, nil
	}
	_, at := Of(&msg.Message)
	_, err = p.queue.InterceptKey(ctx, sequenceOf(name))
	return at.Unix(), err
}

// settledLast are the instants after now that an entry has settled last, up to sent: by a clock that was ahead it has
// caught up, and gone on for some seconds. Their messages wait, or have run.
func (r *record) settledLast(name string, now, sent int64) []int64 {
	when, err := r.timing(name)
	if err != nil {
		return nil
	}
	first, found := when.latest(sent+1, now, r.CatchUp+2*aheadSeconds)
	if !found {
		return nil
	}
	return between(when, first-1, sent)
}
