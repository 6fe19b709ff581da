package schedule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue"
)

// ErrBadEntry: an entry says what cannot be. The error around it says what, and what would be right.
var ErrBadEntry = errors.New("bad entry")

// An Entry says when a message is sent, and which. Either Cron or Every is set.
type Entry struct {
	// Name is the entry's, 1 to 200 bytes of text. Its sequence is schedule/<name>.
	Name string

	// Cron has five fields: minute, hour, day of the month, month, day of the week (0 or 7 is Sunday), each a number, a
	// name, a range, a step or a list, or it is @hourly, @daily, @weekly, @monthly or @yearly. A range may wrap: 22-2,
	// FRI-MON. A step that leads to no second value, as in */90, is refused. If days of the month and of the week are
	// both said, either will do. A fixed hour comes once on each of its days, whatever the clocks do: in a gap at the
	// first instant after it, and of a time that exists twice the first. An hour with * or a step follows real time.
	//
	// L, W and # mean what they mean to Quartz
	// (https://www.quartz-scheduler.org/documentation/quartz-2.3.0/tutorials/crontrigger.html), but that days of the
	// week are numbered as cron does, from 0: L is the last day of the month, L-3 the third before it, 15W the weekday
	// (Monday to Friday) of the month that is nearest to the 15th, and LW its last weekday; FRI#2 is the second Friday
	// of the month, and FRIL the last.
	Cron string

	// Zone is where Cron is read, by its IANA name (Europe/Berlin). Default: UTC.
	Zone string

	// Every is an interval, at least a second and of whole seconds: the instants are its multiples since 1970 in UTC, plus
	// Offset, which is less than Every. So all replicas agree on them.
	Every, Offset time.Duration

	// Jitter, of whole seconds, makes all instants of the entry later by a time from 0 to below it, which follows from
	// the name: so many entries of one hour do not all come at once. At most a day, and at most Every.
	Jitter time.Duration

	// Begin and End bound the instants: none is before Begin, none after End. Zero: no bound.
	Begin, End time.Time

	// Payload is the message's.
	Payload string

	// Options are the message's: retries, TTL, timeout, retention, headers, lane, and the key for which the ack of each
	// message counts (WithCounts). Not a key, a sequence, a delay, a schedule or a deadline, which belong to one
	// message. Not a countdown, because the message is due when it is sent: its handler may send the message that waits,
	// or name it with Then. Without WithRetryCount, it is the default of the queue of the replica that sends it.
	//
	// In a queue with several shards (delayqueue.WithShards) a lane, or a key for which the ack counts, must lie with
	// the entry: give the entry a name with braces, as in "{customer-42}report" for the lane customer-42.
	Options []delayqueue.MsgOption

	// Overlap says what happens if the last message still lives. Default: Allow.
	Overlap Overlap

	// CatchUp is how many instants are sent after a time in which nobody could, the latest of them, oldest first. 0 means
	// the default, 1; NoCatchUp none; at most 1,000. With Skip it is one at most, the latest. An instant of the last five
	// seconds is not missed. The messages are due when they are sent; Of says their instants.
	CatchUp int
}

// NoCatchUp is a CatchUp that sends none of the instants that were missed.
const NoCatchUp = -1

// Overlap says what an entry does at an instant at which its last message lives: it waits for its turn, is being
// handled, or waits for a retry.
type Overlap int

const (
	Allow Overlap = iota // send another one
	Skip                 // send none for this instant. What is skipped is not made up for
)

var overlapNames = [...]string{"allow", "skip"}

// String is "allow" or "skip".
func (o Overlap) String() string {
	if o < 0 || int(o) >= len(overlapNames) {
		return fmt.Sprintf("Overlap(%d)", int(o))
	}
	return overlapNames[o]
}

// MarshalText makes it a word.
func (o Overlap) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads that word.
func (o *Overlap) UnmarshalText(text []byte) error {
	for i, name := range overlapNames {
		if string(text) == name {
			*o = Overlap(i)
			return nil
		}
	}
	return fmt.Errorf("overlap %q: allow or skip", text)
}

// entryOptions is what options say of every message of an entry. An option that is of one message alone is refused.
func entryOptions(opts []delayqueue.MsgOption) (delayqueue.Description, error) {
	d := delayqueue.Describe(opts...)
	one := d
	one.Retries, one.TTL, one.Timeout, one.Retention, one.Headers, one.Counts, one.Lane, one.LaneWidth, one.Err = nil, 0,
		nil, 0, nil, "", "", 0, nil
	switch {
	case d.Err != nil:
		return d, d.Err
	case !d.Deadline.IsZero():
		return d, fmt.Errorf("%w: a deadline belongs to one message: use WithMsgTTL", delayqueue.ErrBadOption)
	case d.Countdown != nil:
		return d, fmt.Errorf(
			"%w: WithCountdown(%d) of an entry, whose message is due when it is sent: let its handler send the message "+
				"that waits, or name it with Then", delayqueue.ErrBadOption, *d.Countdown)
	case strings.HasPrefix(d.Counts, sequenceOf("")) || strings.HasPrefix(d.Counts, aheadKeys):
		return d, fmt.Errorf(
			"%w: WithCounts(%q): this is a key of a message of an entry, and no such message has a countdown",
			delayqueue.ErrBadOption, d.Counts)
	case !reflect.ValueOf(one).IsZero():
		options, _ := json.Marshal(one) // there is nothing in it that cannot be written
		return d, fmt.Errorf("%w: %s: belongs to one message", delayqueue.ErrBadOption, options)
	}
	return d, nil
}

const (
	maxName    = 200
	maxCatchUp = 1000
)

func badEntry(name, format string, args ...any) error {
	return fmt.Errorf("schedule: entry %q: %w: %s", name, ErrBadEntry, fmt.Sprintf(format, args...))
}

func checkName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return badEntry(name, "a name has 1 to %d bytes", maxName)
	case !utf8.ValidString(name):
		return badEntry(name, "the name is no UTF-8")
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return badEntry(name, "the name has a control character")
		}
	}
	return nil
}

// plan checks an entry, and makes it what is stored.
func (e *Entry) plan() (p plan, err error) {
	if err := checkName(e.Name); err != nil {
		return p, err
	}
	p = plan{Payload: []byte(e.Payload), Overlap: e.Overlap, CatchUp: e.CatchUp}
	if p.CatchUp == 0 {
		p.CatchUp = 1
	}
	switch {
	case p.CatchUp < NoCatchUp || p.CatchUp > maxCatchUp:
		return p, badEntry(e.Name, "CatchUp %d: at most %d; NoCatchUp is none", e.CatchUp, maxCatchUp)
	case e.Overlap != Allow && e.Overlap != Skip:
		return p, badEntry(e.Name, "Overlap %v: Allow or Skip", e.Overlap)
	}
	if p.times, err = e.times(); err != nil {
		return p, err
	}
	if p.Options, err = entryOptions(e.Options); err != nil {
		return p, fmt.Errorf("schedule: entry %q: %w: %w", e.Name, ErrBadEntry, err)
	}
	for _, name := range [...]string{nameHeader, instantHeader} {
		if _, taken := p.Options.Headers[name]; taken {
			return p, badEntry(e.Name, "the header %q is this package's own", name)
		}
	}
	if !utf8.ValidString(p.Options.Counts) {
		return p, badEntry(e.Name, "WithCounts(%q) is no UTF-8", p.Options.Counts)
	}
	if !utf8.ValidString(p.Options.Lane) {
		return p, badEntry(e.Name, "WithLane(%q) is no UTF-8", p.Options.Lane)
	}
	for name, value := range p.Options.Headers { // an entry is stored as JSON, which would change it without a word
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return p, badEntry(e.Name, "the header %q: %q is no UTF-8", name, value)
		}
	}
	if _, err := p.timing(e.Name); err != nil {
		return p, fmt.Errorf("schedule: entry %q: %w", e.Name, err)
	}
	return p, nil
}

// times checks what an entry says of its instants, but for what timing looks at.
func (e *Entry) times() (w times, err error) {
	switch {
	case e.Every != 0 && e.Cron != "":
		return w, badEntry(e.Name, "Every %v and Cron %q: one of them", e.Every, e.Cron)
	case e.Every == 0 && e.Cron == "":
		return w, badEntry(e.Name, "neither Cron nor Every is set")
	case e.Cron != "" && e.Offset != 0:
		return w, badEntry(e.Name, "Offset %v goes with Every; of a Cron the fields say it", e.Offset)
	case e.Cron == "" && (e.Every < time.Second || e.Every%time.Second != 0 || e.Every > maxEvery):
		return w, badEntry(e.Name, "Every %v: whole seconds, from 1s to 10 years", e.Every)
	case e.Offset < 0 || e.Offset%time.Second != 0 || e.Offset != 0 && e.Offset >= e.Every:
		return w, badEntry(e.Name, "Offset %v: whole seconds, less than Every", e.Offset)
	case e.Jitter < 0 || e.Jitter%time.Second != 0 || e.Jitter > maxJitter || e.Every != 0 && e.Jitter > e.Every:
		return w, badEntry(e.Name, "Jitter %v: whole seconds, at most a day, and at most Every", e.Jitter)
	}
	w = times{Cron: e.Cron, Zone: e.Zone, Every: int64(e.Every / time.Second), Offset: int64(e.Offset / time.Second),
		Jitter: int64(e.Jitter / time.Second)}
	if !e.Begin.IsZero() {
		w.Begin = e.Begin.Add(time.Second - 1).Unix() // the first second that is not before it
	}
	if !e.End.IsZero() {
		w.End = e.End.Unix()
	}
	for name, at := range map[string]time.Time{"Begin": e.Begin, "End": e.End} {
		if unix := at.Unix(); !at.IsZero() && (unix < 1 || unix >= maxInstant) {
			return w, badEntry(e.Name, "%s %v: from 1970 to 2242", name, at)
		}
	}
	if w.End != 0 && w.End < w.Begin {
		return w, badEntry(e.Name, "End %v is before Begin %v", e.End, e.Begin)
	}
	return w, nil
}

const (
	maxEvery  = 10 * 365 * 24 * time.Hour
	maxJitter = 24 * time.Hour
)

// A times is what of a plan says its instants.
type times struct {
	Cron   string `json:"cron,omitempty"`
	Zone   string `json:"zone,omitempty"`
	Every  int64  `json:"every,omitempty"`  // s
	Offset int64  `json:"offset,omitempty"` // s
	Jitter int64  `json:"jitter,omitempty"` // s
	Begin  int64  `json:"begin,omitempty"`  // unix s; 0: none
	End    int64  `json:"end,omitempty"`    // unix s; 0: none
}

// A plan is an entry as it is stored, but for its name.
type plan struct {
	times
	Payload []byte                 `json:"payload,omitempty"`
	Overlap Overlap                `json:"overlap,omitempty"`
	CatchUp int                    `json:"catchUp,omitempty"`
	Options delayqueue.Description `json:"options,omitzero"`
}

// A timing says which instants an entry has, in unix seconds. It is safe for concurrent use.
type timing interface {
	next(after int64) (instant int64, found bool)
	latest(before, after int64, n int) (first int64, found bool) // of the latest n between these two the first
	count(after,
		before int64) int64 // between these two; mostCounted if it is no division and they are more
}

// timing checks what a plan says of time, since somebody else may have written it.
func (w *times) timing(name string) (timing, error) {
	base, err := w.base()
	if err != nil || w.Jitter == 0 && w.Begin == 0 && w.End == 0 {
		return base, err
	}
	if w.Jitter < 0 || w.Jitter > int64(maxJitter/time.Second) || w.Begin < 0 || w.Begin > maxInstant || w.End < 0 ||
		w.End > maxInstant {
		return nil, fmt.Errorf("%w: jitter %d s, from %d to %d", ErrBadEntry, w.Jitter, w.Begin, w.End)
	}
	all := window{timing: base, begin: w.Begin, end: cmp.Or(w.End, maxInstant)}
	if w.Jitter > 0 {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(name))
		all.by = int64(hash.Sum64() % uint64(w.Jitter))
	}
	return all, nil
}

// base is the timing without what goes with either kind.
func (w *times) base() (timing, error) {
	zone, err := w.zone()
	if err != nil {
		return nil, err
	}
	if w.Cron == "" {
		if w.Every < 1 || w.Every > int64(maxEvery/time.Second) || w.Offset < 0 || w.Offset >= w.Every {
			return nil, fmt.Errorf("%w: every %d s, offset %d s", ErrBadEntry, w.Every, w.Offset)
		}
		return everyTiming{w.Every, w.Offset}, nil
	}
	timing, err := parseCron(w.Cron, zone)
	if err != nil {
		return nil, err
	}
	if _, comes := timing.next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix()); !comes {
		return nil, fmt.Errorf("%w: cron %q never comes: no year has such a day", ErrBadEntry, w.Cron)
	}
	return timing, nil
}

func (w *times) zone() (*time.Location, error) {
	if w.Zone == "Local" {
		return nil, fmt.Errorf(`%w: zone "Local" differs from machine to machine: name it (Europe/Berlin)`, ErrBadEntry)
	}
	zone, err := time.LoadLocation(w.Zone)
	if err != nil {
		return nil, fmt.Errorf(
			`%w: zone: %v: is that its IANA name (Europe/Berlin)? Where a machine has no zones, import _ "time/tzdata"`,
			ErrBadEntry, err)
	}
	return zone, nil
}

// entry is what the plan was made of.
func (p *plan) entry(name string) Entry {
	e := Entry{
		Name: name, Cron: p.Cron, Zone: p.Zone, Every: seconds(p.Every), Offset: seconds(p.Offset), Jitter: seconds(p.Jitter),
		Payload: string(p.Payload), Options: p.Options.Options(), Overlap: p.Overlap, CatchUp: p.CatchUp,
	}
	if p.Begin != 0 {
		e.Begin = time.Unix(p.Begin, 0).UTC()
	}
	if p.End != 0 {
		e.End = time.Unix(p.End, 0).UTC()
	}
	return e
}

func seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt64/int64(time.Second))) * time.Second
}
