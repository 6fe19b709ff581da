package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

const (
	// lookEvery is how often a replica looks whether an entry has changed. What is sent ahead hides it, and all else that
	// lasts less than aheadSeconds: a replica that dies, a failover, a slow machine.
	lookEvery    = time.Second
	aheadSeconds = 5

	// lateSeconds is how long after its instant nothing is missed yet.
	lateSeconds = 5

	// rereadEvery is how often all entries are read although none has changed: somebody may have written them by hand.
	rereadEvery = time.Minute

	// callLimit is how long a call for a look, and a round of sends, may take. A look has no limit: many entries, far from the server, take
	// many pages.
	callLimit = 5 * time.Second
)

// An entry is what a replica knows of one.
type entry struct {
	name, text string
	record
	when  timing
	zone  *time.Location
	last  int64 // the instant up to which the entry is settled; -1: to be asked for
	next  int64 // the instant after it
	never bool  // there is none
	left  bool  // it cannot be sent for

	resting *reading // until another reading nothing is sent: see settle
	moved   int      // looks that found the sequence at a later generation

	// Of instants that were missed, those before from are not sent; that was found out at fromAt.
	from, fromAt int64
}

// settled notes that an entry is settled up to an instant.
func (e *entry) settled(instant int64) {
	if e.last = max(e.last, instant); e.next <= e.last {
		next, found := e.when.next(e.last)
		e.next, e.never = next, !found || next > maxInstant
	}
}

// A runner is one Run. One goroutine owns it.
type runner struct {
	*Scheduler
	reading *reading          // the last one; nil: it failed
	entries map[string]*entry // those that can be sent for
	broken  map[string]string // what was logged: its text, or which change
	version string            // of entries
	history string            // of the server that the instants of entries were asked of
	odd     *reading          // the first one of those, one after the other, that found entries settled too far ahead; nil: the last did not
	readAt  time.Time         // when all were read
	failing bool              // the log knows
	relist  bool              // what SetAll was given is to be set again
	skips   []skip            // to be told of at the next look
	telling []skip            // by a look that may have failed: again, as they are
}

// Run sends the messages of all entries of the queue until ctx ends, and returns ctx's error. Every replica of a service runs it. One replica is
// enough, and of several one that lives is enough to miss no instant. Run goes on through outages of Redis. Without Run entries are kept,
// but nothing is sent.
func (s *Scheduler) Run(ctx context.Context) error {
	r := &runner{Scheduler: s, entries: map[string]*entry{}, broken: map[string]string{}}
	var lookAt time.Time
	for {
		var err error
		if !time.Now().Before(lookAt) {
			lookAt = time.Now().Add(lookEvery)
			r.reading, err = r.look(ctx)
		}
		if r.reading != nil {
			err = r.sendDue(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || r.reading != nil {
			r.report(err)
		}
		pause := time.Until(lookAt)
		if err == nil { // else a server that refuses would be asked without a pause
			pause = min(pause, r.untilSkipping())
		}
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		case <-s.hurry:
			lookAt = time.Time{}
		case <-wait.C:
		}
		wait.Stop()
	}
}

// report logs the first of several failures, and the end of them.
func (r *runner) report(err error) {
	log := r.log.With(slog.String("queue", r.queue.Name()))
	switch {
	case err != nil && !r.failing:
		log.Error("schedule: entries cannot be sent for now", slog.Any("error", err))
	case err == nil && r.failing:
		log.Info("schedule: entries are sent again")
	}
	r.failing = err != nil
}

// look finds out the server's time, and which entries there are, if that may have changed.
func (r *runner) look(ctx context.Context) (*reading, error) {
	if len(r.telling) == 0 {
		n := min(len(r.skips), mostSkips)
		r.telling, r.skips = r.skips[:n:n], r.skips[n:]
	}
	now, err := within(ctx, callLimit, func(ctx context.Context) (*reading, error) { return r.table.look(ctx, true, r.telling...) })
	if err != nil {
		return nil, err
	}
	r.telling = nil
	if now.history != r.history { // what it lost must be sent again
		r.history = now.history
		for _, e := range r.entries {
			e.last, e.never = -1, false
		}
	}
	if now.version == "" && r.version != "" {
		r.lost()
	}
	if r.relist {
		if err := r.setLists(ctx); err != nil {
			return nil, err
		}
		r.relist = false
	}
	if err := r.readChanged(ctx, now); err != nil {
		return nil, err
	}
	if err := r.askLasts(ctx, now); err != nil {
		return nil, err
	}
	r.beginAnew(ctx, now)
	return now, nil
}

// lost logs that all entries are gone.
func (r *runner) lost() {
	r.mu.Lock()
	r.relist = len(r.lists) > 0
	r.mu.Unlock()
	then := "nothing is sent until entries are set again"
	if r.relist {
		then = "those that SetAll was given are set again"
	}
	r.log.Error("schedule: all entries are gone: Redis has lost its data, or the queue was deleted; "+then, slog.String("queue", r.queue.Name()))
}

// setLists sets what SetAll was given.
func (r *runner) setLists(ctx context.Context) error {
	r.mu.Lock()
	lists := maps.Clone(r.lists)
	r.mu.Unlock()
	for program, entries := range lists {
		switch err := r.setList(ctx, program, entries); {
		case errors.Is(err, ErrBadEntry): // a newer version of the program was faster
			r.log.Error("schedule: an entry cannot be set again", slog.String("queue", r.queue.Name()), slog.Any("error", err))
		case err != nil:
			return err
		}
	}
	return nil
}

// parallel is how many calls are made side by side.
const parallel = 32

// askLasts asks for the instants up to which entries are settled, of those of which that is not known, and completes
// what is open for long.
func (r *runner) askLasts(ctx context.Context, now *reading) error {
	var ask, open []*entry
	for _, e := range r.entries {
		switch {
		case e.deserted(now):
			open = append(open, e)
		case e.last < 0 && e.runs():
			ask = append(ask, e)
		}
	}
	_ = side(open, func(e *entry) error {
		_, err := within(ctx, callLimit, func(ctx context.Context) (any, error) {
			return nil, r.complete(ctx, e.name, e.text, &e.record, now)
		})
		if err != nil && ctx.Err() == nil {
			r.leaveOpen(e, err)
		}
		return nil
	})
	names := make([]string, 0, len(ask))
	for _, e := range ask {
		names = append(names, e.name)
	}
	lasts, err := r.lasts(ctx, names, callLimit)
	if err != nil {
		return err
	}
	for _, e := range ask {
		r.begin(e, lasts[e.name])
	}
	return nil
}

// leaveOpen logs, once, that the change of an entry could not be completed. The next look tries again; the other entries go on.
func (r *runner) leaveOpen(e *entry, err error) {
	r.mu.Lock()
	change := fmt.Sprint("open ", e.Gen)
	known := r.broken[e.name] == change
	r.broken[e.name] = change
	r.mu.Unlock()
	if !known { // each step of it makes another text
		r.log.Error("schedule: the change of an entry cannot be completed", slog.String("queue", r.queue.Name()),
			slog.String("entry", e.name), slog.Any("error", err))
	}
}

// passedFor is after how many looks a sequence that is at a later generation is no change that is under way: the first one
// after a change reads the entry anew.
const passedFor = 3

// begin notes the number at which the entry's sequence is.
func (r *runner) begin(e *entry, n int64) {
	gen, instant := split(max(n, 0))
	if gen > e.Gen {
		if e.moved++; e.moved == passedFor {
			r.log.Error("schedule: somebody has moved the sequence of an entry on, and nothing is sent for it "+
				"until it is changed, or paused and resumed",
				slog.String("queue", r.queue.Name()), slog.String("entry", e.name), slog.String("sequence", sequenceOf(e.name)), slog.Int64("at", n))
		}
		return
	}
	if gen < e.Gen {
		instant = 0
	}
	e.last, e.next, e.from = max(instant, e.Since), 0, 0
	e.settled(e.last)
}

// lives says whether instants of the entry are to be sent, if it has any.
func (e *entry) lives() bool { return e.Open == 0 && !e.Paused && !e.Removed && !e.left }

// runs says whether there is one.
func (e *entry) runs() bool { return e.lives() && !e.never }

// side calls do for each of all, some side by side, and returns the error of the first that has one.
func side[T any](all []T, do func(T) error) error {
	errs, free := make([]error, len(all)), make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i, one := range all {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			errs[i] = do(one)
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// untilSkipping is how long until the next instant of an entry that skips: whether its last message lives is asked then, not before.
func (r *runner) untilSkipping() time.Duration {
	soonest := lookEvery
	if r.reading == nil {
		return soonest
	}
	for _, e := range r.entries {
		if e.Overlap == Skip && e.runs() && e.last >= 0 {
			soonest = min(soonest, time.Duration(e.next*1_000_000-r.reading.now())*time.Microsecond)
		}
	}
	return max(soonest, time.Millisecond)
}
