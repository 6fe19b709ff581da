package schedule

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/shard"
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

	// callLimit is how long a call for a look, and a round of sends, may take. A look has no limit: many entries, far
	// from the server, take many pages.
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
	after int64 // a number that the sequence had come to, as the server said; 0: none
	left  bool  // it cannot be sent for

	resting *reading // until another reading nothing is sent: see settle
	moved   int      // looks that found the sequence at a later generation

	mark, kept int64 // last as it was a while ago, and a while before that: see remember

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

// A runner is one Run. Its goroutine looks at the first shard, which has the entries, and gives them to the parts,
// which send.
type runner struct {
	*Scheduler
	reading *reading          // the last one; nil: it failed
	entries map[string]*entry // those that can be sent for
	broken  map[string]string // what was logged, by name: its text
	version string            // of entries
	seen    *reading          // the last one that did not fail
	readAt  time.Time         // when all were read
	relist  bool              // what SetAll was given is to be set again
	telling []skip            // by a look that may have failed: again, as they are
	outage  outage

	set   *shard.Set
	parts []*part // one for each shard
	stop  func()  // ends them, and waits for them
}

func newRunner(s *Scheduler) *runner {
	return &runner{
		Scheduler: s, entries: map[string]*entry{}, broken: map[string]string{}, stop: func() {},
		outage: outage{log: s.log.With(slog.String("queue", s.Name())), failing: map[*part]bool{}},
	}
}

// Run sends the messages of all entries of the queue until ctx ends, and returns ctx's error. Every replica of a
// service runs it. One replica is enough, and of several one that lives is enough to miss no instant. Run goes on
// through outages of Redis. Without Run entries are kept, but nothing is sent. When ctx ends, a call to a silent
// server that is under way may delay Run's return by up to five seconds.
func (s *Scheduler) Run(ctx context.Context) error {
	r := newRunner(s)
	defer func() { r.stop() }()
	for {
		begun := time.Now()
		before := r.set
		var err error
		if r.reading, err = r.look(ctx); ctx.Err() != nil {
			return ctx.Err()
		}
		r.outage.report(nil, err)
		if r.set != before {
			r.start(ctx)
		}
		r.handOut()
		wait := time.NewTimer(time.Until(begun.Add(lookEvery)))
		select {
		case <-ctx.Done():
		case <-s.hurry:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// start lets the parts send what they are given, until stop.
func (r *runner) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, p := range r.parts {
		wg.Go(func() { p.run(ctx) })
	}
	r.stop = func() { cancel(); wg.Wait() }
}

// handOut gives each part the entries that lie in its shard, and the last reading.
func (r *runner) handOut() {
	if r.set == nil { // nobody has answered yet
		return
	}
	names := make([]string, 0, len(r.entries))
	for name := range r.entries {
		names = append(names, name)
	}
	for i, names := range namesByShard(r.set, names) {
		entries := make([]*entry, 0, len(names))
		for _, name := range names {
			entries = append(entries, r.entries[name])
		}
		r.parts[i].give(view{r.reading, entries})
	}
}

// An outage logs the first failure of a Run or one of its parts, and the end of all. It is safe for concurrent use.
type outage struct {
	log     *slog.Logger
	mu      sync.Mutex
	failing map[*part]bool // nil: of the Run itself
}

func (o *outage) report(of *part, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := len(o.failing)
	if err != nil {
		o.failing[of] = true
	} else {
		delete(o.failing, of)
	}
	switch now := len(o.failing); {
	case before == 0 && now > 0:
		o.log.Error("schedule: entries cannot be sent for now", slog.Any("error", err))
	case before > 0 && now == 0:
		o.log.Info("schedule: entries are sent again")
	}
}

// look finds out the server's time, and which entries there are, if that may have changed.
func (r *runner) look(ctx context.Context) (*reading, error) {
	if len(r.telling) == 0 {
		r.mu.Lock()
		n := min(len(r.skips), mostSkips)
		r.telling, r.skips = r.skips[:n:n], r.skips[n:]
		r.mu.Unlock()
	}
	now, err := within(ctx, callLimit, func(ctx context.Context) (*reading, error) {
		return r.table.look(ctx, true, r.telling...)
	})
	if err != nil {
		return nil, err
	}
	r.telling = nil
	set, err := within(ctx, callLimit, r.shards.Look)
	if err != nil {
		return nil, err
	}
	if set != r.set {
		r.divide(set)
	}
	r.compare(now)
	if r.relist {
		if err := r.setLists(ctx); err != nil {
			return nil, err
		}
		r.relist = false
	}
	if err := r.readChanged(ctx, now); err != nil {
		return nil, err
	}
	return now, nil
}

// divide makes a part for each shard. What the former parts know of entries is forgotten with them.
func (r *runner) divide(set *shard.Set) {
	r.stop()
	for _, p := range r.parts {
		r.outage.report(p, nil)
	}
	r.set, r.parts, r.entries, r.version = set, nil, map[string]*entry{}, ""
	for i, store := range set.All {
		p := &part{Scheduler: r.Scheduler, store: store, outage: &r.outage, views: make(chan view, 1),
			open: map[string]int64{}}
		if i > 0 {
			p.own = &table{store, r.table.clock}
		}
		r.parts = append(r.parts, p)
	}
}

// compare finds out whether all entries were lost since the last look, or perhaps changes of them, in a failover.
// Another replica may have set some again meanwhile.
func (r *runner) compare(now *reading) {
	before := r.seen
	if r.seen = now; before == nil {
		return
	}
	_, was := readVersion(before.version)
	switch _, is := readVersion(now.version); {
	case was != "" && was != is:
		r.lost()
	case now.history != before.history && now.version != before.version:
		r.relist = true
	}
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
	r.log.Error("schedule: all entries are gone: Redis has lost its data, or the queue was deleted; "+then,
		slog.String("queue", r.queue.Name()))
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
