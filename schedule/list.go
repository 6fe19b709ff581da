package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A looker looks at the entries of one queue. It sends nothing and changes nothing.
type looker struct {
	monitor *ops.Queue
	table   table
	shards  *shard.Queue
}

func newLooker(m *ops.Queue) looker {
	cli, prefix := m.Monitor().Redis()
	store := script.NewStore(cli, prefix, m.Name())
	return looker{m, table{store, time.Now}, shard.New(store, 0)}
}

// What keeps an entry from being sent. Status.Trouble wraps one of them.
var (
	// ErrNotRun: no replica has looked for ten seconds. Run has ended everywhere, or no process that runs it reaches
	// Redis.
	ErrNotRun = errors.New("no replica runs the entries of this queue")
	// ErrFar: the last instant that was sent lies too far ahead, so the clock of the server was ahead, or is behind.
	// Once the clock has gone evenly for some twenty seconds, Run lets the entry begin anew.
	ErrFar = errors.New("it waits for the clock of the server: what was sent last lies too far ahead; " +
		"unless the clock changes, it begins anew within a minute")
	// ErrMoved: the sequence of the entry has gone on without it, because a failover has forgotten a change of the
	// entry, or somebody has moved the sequence. Run lets the entry begin anew within seconds, but see ErrMovedToEnd.
	ErrMoved = errors.New("its sequence has gone on without it, by a failover or by hand; " +
		"it begins anew within seconds")
	// ErrMovedToEnd wraps ErrMoved: somebody has passed the sequence to its last number. The entry has to be removed, its
	// sequence dropped, and the entry set again.
	ErrMovedToEnd error = movedToEnd{errors.New(
		"its sequence was passed to its last number by hand, so it does not begin anew by itself")}
	// ErrRefused: a replica was refused the message, and says why.
	ErrRefused = errors.New("its message was refused")
)

type movedToEnd struct{ error }

func (movedToEnd) Unwrap() error { return ErrMoved }

// A Status is an entry, and where it stands.
type Status struct {
	Entry
	Paused bool
	Next   time.Time // in its zone; zero if it is paused, broken or over
	// Last is the last instant that was sent, skipped or passed over since the entry's last change, in its zone. It may
	// be ahead by five seconds. Zero: there was none.
	Last    time.Time
	Skipped Skipped // about, since the entry was set first, or began anew (ErrFar, ErrMoved)

	// Trouble says why nothing is sent for it: Broken, ErrNotRun, ErrFar, ErrMoved or ErrRefused. Nil if nothing is
	// wrong, or it is paused. While the shard of its messages does not answer, it is ErrNotRun or ErrRefused, or else
	// the error of the shard, also if it is paused: where the entry stands is not known then.
	Trouble error
	// Overdue is the first instant that should have been settled ten seconds ago, and is not, in its zone. Zero if there
	// is no such instant, or the entry does not catch up.
	Overdue time.Time
	// Looked is when a replica last looked for entries of the queue, to within three seconds. Zero: no replica ever did.
	Looked time.Time

	Changed      time.Time // when the entry was set, changed, paused or resumed last; zero: not known
	ChangedBy    string    // by whom (WithOperator); "": not known
	ChangeReason string    // why (WithReason); "": not known
	Program      string    // the program on whose list the entry is (SetAll); "": none

	// the entry cannot be read or sent, because another program wrote it. All but Name, Trouble and Looked is zero then
	Broken error
}

// Skipped are instants of an entry that have no message. An entry that is removed begins anew.
type Skipped struct {
	Overlap int64 // while the last message lived (Skip)
	// nobody ran the entry in time: beyond CatchUp, or beyond the TTL; of a Cron 1,000 at a time stand for 1,000 or more
	Missed int64
	Paused int64 // while it was paused; of a Cron 1,000 stand for 1,000 or more of each pause
}

// List returns all entries of a queue, by name. A user of Redis needs no more rights for it than a reader in
// docs/acl.md. It returns delayqueue.ErrNoQueue for a queue that has no key.
func List(ctx context.Context, m *delayqueue.Monitor) ([]Status, error) {
	l := newLooker(ops.Of(m))
	return l.List(ctx)
}

// Unsent returns the entries of a queue for which nothing is sent (Status.Reason), the one that is overdue for longest
// first. It needs no more rights than List. A queue that has no key has none.
func Unsent(ctx context.Context, m *delayqueue.Monitor) ([]Status, error) {
	all, err := List(ctx, m)
	if errors.Is(err, delayqueue.ErrNoQueue) {
		return nil, nil
	}
	all = slices.DeleteFunc(all, func(s Status) bool { return s.Reason() == "" })
	slices.SortStableFunc(all, func(a, b Status) int {
		if a.Overdue.IsZero() != b.Overdue.IsZero() {
			return cmp.Compare(b.Overdue.Unix(), a.Overdue.Unix()) // one that is not overdue comes last
		}
		return a.Overdue.Compare(b.Overdue)
	})
	return all, err
}

// Reason says why nothing is sent for an entry, in the words of the metrics: "not run", "wrong clock", "sequence
// moved", "refused", "unreadable" (Trouble), or "overdue" (Overdue). "": nothing is wrong.
func (s *Status) Reason() string {
	i := slices.IndexFunc(troubles, func(t trouble) bool { return errors.Is(s.Trouble, t.err) })
	switch {
	case i >= 0:
		return troubles[i].name
	case !s.Overdue.IsZero():
		return "overdue"
	}
	return ""
}

// Get returns one entry of a queue, and ErrNoEntry if there is none. It needs no more rights than List.
func Get(ctx context.Context, m *delayqueue.Monitor, name string) (*Status, error) {
	l := newLooker(ops.Of(m))
	return l.get(ctx, name)
}

// Next returns the next n instants of an entry, at most 1,000, in its zone. For a paused entry they are the instants
// that it would have. It returns ErrNoEntry if there is no such entry. It needs no more rights than List.
func Next(ctx context.Context, m *delayqueue.Monitor, name string, n int) ([]time.Time, error) {
	l := newLooker(ops.Of(m))
	return l.Next(ctx, name, n)
}

// List is List for the queue of this Scheduler.
func (l *looker) List(ctx context.Context) (all []Status, err error) {
	defer func() {
		if err != nil {
			all, err = nil, fmt.Errorf("schedule: queue %q: list: %w", l.monitor.Name(), err)
		}
	}()
	records, err := l.table.all(ctx, 0)
	if err == nil && len(records) == 0 {
		if _, err = l.monitor.Counts(ctx); errors.Is(err, delayqueue.ErrMissingShards) { // else ErrNoQueue
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	now, err := l.table.look(ctx, false)
	if err != nil {
		return nil, err
	}
	all, err = l.statuses(ctx, records, now.us/1_000_000)
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// get reads the fields of one entry.
func (l *looker) get(ctx context.Context, name string) (one *Status, err error) {
	defer func() { err = l.failed(name, "get", err) }()
	fields := map[string]string{}
	for _, field := range []string{name, skipsOf(name), refusedOf(name), lookedField} {
		text, err := l.table.read(ctx, field)
		if err != nil {
			return nil, err
		}
		if text != "" {
			fields[field] = text
		}
	}
	if fields[name] == "" || beside(name) {
		return nil, ErrNoEntry
	}
	now, err := l.table.look(ctx, false)
	if err != nil {
		return nil, err
	}
	all, err := l.statuses(ctx, fields, now.us/1_000_000)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 { // it is removed
		return nil, ErrNoEntry
	}
	return &all[0], nil
}

// statuses makes of the fields of the hash what they say of entries, at now, in no order.
func (l *looker) statuses(ctx context.Context, records map[string]string, now int64) ([]Status, error) {
	read := map[string]*entry{}
	all := make([]Status, 0, len(records))
	looked, _ := strconv.ParseInt(records[lookedField], 10, 64)
	for name, text := range records {
		if err := ctx.Err(); err != nil { // thousands of entries take their time
			return nil, err
		}
		if beside(name) {
			continue
		}
		one := Status{Entry: Entry{Name: name}}
		if looked > 0 && looked <= maxInstant {
			one.Looked = time.Unix(looked, 0).UTC()
		}
		e, err := newEntry(name, text)
		switch {
		case err != nil:
			one.Broken, one.Trouble = err, err
		case e.Removed:
			continue
		default:
			e.describe(&one, now, records)
			read[name] = e
		}
		all = append(all, one)
	}
	return all, l.setLasts(ctx, all, read, now)
}

// describe says what the fields of the hash say of an entry.
func (e *entry) describe(to *Status, now int64, fields map[string]string) {
	to.Entry, to.Paused, to.Skipped = e.entry(e.name), e.Paused, readSkips(fields[skipsOf(e.name)])
	to.Skipped.Paused = e.passed(e.when, now)
	to.ChangedBy, to.ChangeReason, to.Program = script.OneLine(e.By, script.MaxBy), script.OneLine(e.Why, script.MaxWhy),
		script.OneLine(e.Program, maxName)
	if e.At > 0 && e.At <= maxInstant {
		to.Changed = time.Unix(e.At, 0).UTC()
	}
	if why := readRefusal(fields[refusedOf(e.name)], e.Gen); why != "" {
		to.Trouble = fmt.Errorf("%w: %s", ErrRefused, why)
	}
}

// notRunFor is after how many seconds without a look nobody runs the entries; longOver after how many an instant is
// overdue.
const (
	notRunFor = 10
	longOver  = 10
)

// stand says where an entry stands whose sequence is at number n, and what keeps it from going on.
func (e *entry) stand(to *Status, n, now int64) {
	gen, sent := split(max(n, 0))
	if gen != e.Gen {
		sent = 0
	} else if sent > 0 {
		to.Last = time.Unix(sent, 0).In(e.zone)
	}
	if e.Paused {
		to.Trouble = nil
		return
	}
	settled := max(sent, e.Since)
	far := settled > now+farSeconds
	from := max(now, e.Since)
	switch {
	case far:
		from = now
	case settled > now+aheadSeconds+1:
		from = settled
	}
	if next, found := e.when.next(from); found && next <= maxInstant {
		to.Next = time.Unix(next, 0).In(e.zone)
	}
	first, found := e.when.next(settled)
	if e.CatchUp != NoCatchUp && e.Open == 0 && found && first < now-longOver {
		to.Overdue = time.Unix(first, 0).In(e.zone)
	}
	switch {
	case to.notRun(now):
		to.Trouble = ErrNotRun
	case to.Trouble != nil:
	case gen > e.Gen && e.Open == 0 && gen+2 > maxGen: // as change refuses it
		to.Trouble = ErrMovedToEnd
	case gen > e.Gen && e.Open == 0:
		to.Trouble = ErrMoved
	case far:
		to.Trouble = ErrFar
	}
}

// notRun says whether nobody runs the entries of the queue.
func (s *Status) notRun(now int64) bool { return s.Looked.IsZero() || s.Looked.Unix() < now-notRunFor }

// Stuck counts the entries for which nothing is sent at their instants, by reason: not run, wrong clock, sequence
// moved, refused, unreadable (see Status.Trouble), and overdue (see Status.Overdue). Each reason has a count, which
// may be 0. Stuck reads all entries. If it is not known of one where it stands, because its shard does not answer,
// Stuck returns the error of the shard. It is for metrics, which do not import this module.
func (l *looker) Stuck(ctx context.Context) (map[string]int, error) {
	n := map[string]int{"overdue": 0}
	for _, reason := range troubles {
		n[reason.name] = 0
	}
	all, err := l.List(ctx)
	if errors.Is(err, delayqueue.ErrNoQueue) {
		return n, nil
	}
	for _, one := range all {
		if reason := one.Reason(); reason != "" {
			n[reason]++
		} else if one.Trouble != nil {
			err = one.Trouble
		}
	}
	return n, err
}

// A trouble is what Status.Trouble wraps, and its name in metrics.
type trouble struct {
	err  error
	name string
}

var troubles = []trouble{
	{ErrNotRun, "not run"}, {ErrFar, "wrong clock"}, {ErrMoved, "sequence moved"}, {ErrRefused, "refused"},
	{ErrBadEntry, "unreadable"},
}

// setLasts says of each entry that can be read which instant was the last, and what follows from that.
func (l *looker) setLasts(ctx context.Context, all []Status, read map[string]*entry, now int64) error {
	names := make([]string, 0, len(read))
	for name := range read {
		names = append(names, name)
	}
	set, err := l.shards.Look(ctx)
	if err != nil {
		return err
	}
	lasts, unread := map[string]int64{}, map[string]error{}
	for i, names := range namesByShard(set, names) {
		some, err := shard.One(ctx, set.All[i], func(ctx context.Context, s *script.Store) (map[string]int64, error) {
			return l.lasts(ctx, s, names, 0)
		})
		if err != nil && (len(set.All) == 1 || ctx.Err() != nil) {
			return err
		}
		for _, name := range names {
			unread[name] = err // of one shard; the entries of the others are shown
		}
		maps.Copy(lasts, some)
	}
	for i := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := read[all[i].Name]
		if e == nil {
			continue
		}
		if err := unread[e.name]; err != nil {
			switch one := &all[i]; {
			case e.Paused:
				one.Trouble = err
			case one.notRun(now):
				one.Trouble = ErrNotRun
			case one.Trouble == nil:
				one.Trouble = err
			}
			continue
		}
		if gen, _ := split(max(lasts[e.name], 0)); gen > e.Gen { // it may have been changed since it was read
			if text, err := l.table.read(ctx, e.name); err != nil {
				return err
			} else if text != e.text {
				lasts[e.name] = 0
			}
		}
		e.stand(&all[i], lasts[e.name], now)
	}
	return nil
}

// Next is Next for the queue of this Scheduler.
func (l *looker) Next(ctx context.Context, name string, n int) (all []time.Time, err error) {
	defer func() { err = l.failed(name, "next", err) }()
	r, err := l.find(ctx, name)
	if err != nil {
		return nil, err
	}
	now, err := l.table.look(ctx, false)
	if err != nil {
		return nil, err
	}
	return r.upcoming(name, now.us/1_000_000, n)
}

func (r *record) upcoming(name string, now int64, n int) (all []time.Time, err error) {
	timing, err := r.timing(name)
	if err != nil {
		return nil, err
	}
	zone, err := r.zone()
	if err != nil {
		return nil, err
	}
	at := max(now, r.Since)
	if r.Since > now+farSeconds { // a clock that was ahead has set it: see clock.go
		at = now
	}
	for len(all) < min(n, 1000) {
		instant, found := timing.next(at)
		if !found || instant > maxInstant {
			break
		}
		all, at = append(all, time.Unix(instant, 0).In(zone)), instant
	}
	return all, nil
}

// find reads an entry.
func (l *looker) find(ctx context.Context, name string) (*record, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	text, err := l.table.read(ctx, name)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, ErrNoEntry
	}
	r, err := readRecord(text)
	if err == nil {
		err = there(r)
	}
	return r, err
}

func (l *looker) failed(name, verb string, err error) error {
	if err == nil || errors.Is(err, ErrBadEntry) && strings.HasPrefix(err.Error(), "schedule:") {
		return err
	}
	return fmt.Errorf("schedule: queue %q: entry %q: %s: %w", l.monitor.Name(), name, verb, err)
}
