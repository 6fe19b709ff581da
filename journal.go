package delayqueue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The journal says who did what to a queue. Monitors write it; it is no part of what sends and consumes.

// An Act is what somebody did to a queue by a Monitor.
type Act string

// The acts.
const (
	ActPause        Act = "pause"
	ActResume       Act = "resume"
	ActReschedule   Act = "reschedule"
	ActRunNow       Act = "run now"
	ActRequeue      Act = "requeue"
	ActDelete       Act = "delete"
	ActReleaseKey   Act = "release key"
	ActIntercept    Act = "intercept"
	ActCancel       Act = "cancel"
	ActSetLimits    Act = "set limits"
	ActUnthrottle   Act = "lift throttle"
	ActDropSequence Act = "drop sequence"
	ActPassSequence Act = "pass sequence"

	// Of entries of schedules (the module schedule/), whose name is the target.
	ActSetSchedule    Act = "set schedule"
	ActPauseSchedule  Act = "pause schedule"
	ActResumeSchedule Act = "resume schedule"
	ActRemoveSchedule Act = "remove schedule"
	ActRunSchedule    Act = "run schedule"

	ActDeleteQueue  Act = "delete queue"
	ActStopBulk     Act = "stop"     // somebody asked a call for many to stop
	ActContinueBulk Act = "continue" // somebody goes on with one
)

// A JournalEntry is one act, or one call for many.
type JournalEntry struct {
	ID       string     // of the entry
	At       time.Time  // when it was done, or had begun, by the server's clock
	By       string     // who (WithOperator), and
	Reason   string     // why (WithReason); "" if that was not said
	Act      Act        // what
	Target   string     // the id or key of a message, the name of a sequence, or the ID of another entry
	Detail   string     // in words: until when, by how much, which messages
	Messages int64      // that were touched, until now
	Bulk     *BulkState // of a call for many; else nil
}

// A BulkPhase is how a call for many stands.
type BulkPhase string

// The phases.
const (
	BulkRunning  BulkPhase = "running"
	BulkFinished BulkPhase = "finished"
	BulkStopped  BulkPhase = "stopped" // by its Progress, StopBulk, or the end of its context
	BulkFailed   BulkPhase = "failed"
)

// A BulkState is how far a call for many has come.
type BulkState struct {
	Phase BulkPhase
	// Updated is when the process that runs it said so last, by the server's clock: before each step, and after a second without
	// one; Silent is how long ago that was.
	Updated   time.Time
	Silent    time.Duration
	Total     int64            // as BulkResult.Total
	Looked    int64            // as BulkResult.Looked
	Passed    map[Reason]int64 // as BulkResult.Passed
	Next      string           // for BulkContinue, of this or any other process; "" if it is finished
	Error     string           // why it failed
	StopAsked bool             // by StopBulk, while it runs
}

// Interrupted says whether a call that runs has not said anything for a minute: it has probably ended with its process. It can be
// continued; if its process lives after all, one of the two is refused (ErrBadCursor), and nothing is done twice.
func (b *BulkState) Interrupted() bool { return b.Phase == BulkRunning && b.Silent > time.Minute }

// A JournalPage is a part of the journal, the newest entry first.
type JournalPage struct {
	Entries []JournalEntry
	Next    string    // the cursor of the page that follows; "" if there is none
	Now     time.Time // by the server's clock
}

// Bounds of the journal.
const (
	maxJournalPage   = 200
	usualJournalPage = 50
	maxTarget        = 1000 // bytes of an entry's texts
	maxDetail        = 1000
	maxEntryNext     = 64 << 10
	journalOutlives  = 31 * 24 * time.Hour // a queue that was deleted
)

// entryToken is what journal.lua takes for the token of an entry; "" of what another program wrote.
var entryToken = regexp.MustCompile(`^[0-9A-Fa-f]+ `)

// An entryName is the ID of an entry.
type entryName struct{ Made, Token string }

func (n entryName) String() string {
	if n.Made == "" {
		return ""
	}
	return n.Made + "-" + n.Token
}

func parseEntryName(id string) (n entryName, err error) {
	made, token, _ := strings.Cut(id, "-")
	_, err = strconv.ParseUint(made, 10, 53)
	if err == nil {
		_, err = strconv.ParseUint(token, 16, 64)
	}
	if err != nil || len(token) != 16 {
		return n, fmt.Errorf("%w: %q is no ID of an entry of the journal", ErrNotFound, id)
	}
	return entryName{made, token}, nil
}

func newToken() string { return fmt.Sprintf("%016x", rand.Uint64()) }

// A journalRecord is the text of an entry, as it is kept.
type journalRecord struct {
	By     string      `json:"by,omitempty"`
	Why    string      `json:"why,omitempty"`
	Act    Act         `json:"act"`
	Target string      `json:"to,omitempty"`
	Detail string      `json:"how,omitempty"`
	N      int64       `json:"n"`
	Bulk   *bulkRecord `json:"bulk,omitempty"`
}

type bulkRecord struct {
	Phase  BulkPhase        `json:"is"`
	Total  int64            `json:"of"`
	Looked int64            `json:"looked"`
	Passed map[Reason]int64 `json:"passed,omitempty"`
	Next   string           `json:"next,omitempty"`
	Error  string           `json:"error,omitempty"`
}

// entry reads a line of the journal as it was at now, us; ok is false of what another program wrote.
func (l *journalLine) entry(now int64) (e JournalEntry, ok bool) {
	words := strings.SplitN(l.line, " ", 4)
	at := scoreInstant(l.made)
	if len(words) != 4 {
		return e, false
	}
	name, err := parseEntryName(strconv.FormatInt(at, 10) + "-" + words[0])
	updated, uerr := strconv.ParseInt(words[2], 10, 64)
	var r journalRecord
	if errors.Join(err, uerr, json.Unmarshal([]byte(words[3]), &r)) != nil {
		return e, false
	}
	e = JournalEntry{
		ID: name.String(), At: instantTime(at), By: oneLine(r.By, maxBy), Reason: oneLine(r.Why, maxWhy), Act: Act(oneLine(string(r.Act), maxBy)),
		Target: oneLine(r.Target, maxTarget), Detail: oneLine(r.Detail, maxDetail), Messages: r.N,
	}
	if b := r.Bulk; b != nil {
		e.Bulk = &BulkState{
			Phase: BulkPhase(oneLine(string(b.Phase), maxBy)), Updated: instantTime(updated), Total: b.Total, Looked: b.Looked,
			Passed: b.Passed, Next: b.Next,
			Error: oneLine(b.Error, maxErrorText), StopAsked: journalWord(words[1]) == journalStop,
		}
		e.Bulk.Silent = max(instantTime(now).Sub(e.Bulk.Updated), 0)
	}
	return e, true
}

// Journal returns a page of what was done to the queue by Monitors, on all machines, the newest first; cursor is "" for
// the first page, and then the Next of the page before. limit is how many entries, at most 200; 0: 50. Redis keeps the last
// 1,000; they outlive DeleteQueue by 31 days.
//
// What one message's or one queue's call does is done first, and is written down then, by a second call: if that
// cannot be done, the act stands, its result is returned, and the log has an error with all that the entry would say. A
// call for many is written down before it touches anything. What failed or was refused is not in the journal, nor
// what publishers do, nor a PassSequence without WithOperator, for programs do that.
func (m *Monitor) Journal(ctx context.Context, limit int, cursor string) (*JournalPage, error) {
	page, err := m.journalPage(ctx, limit, cursor)
	if err == nil && len(page.Entries) == 0 && cursor == "" {
		err = m.there(ctx)
	}
	if err != nil {
		return nil, m.failed(err, "journal")
	}
	return page, nil
}

func (m *Monitor) journalPage(ctx context.Context, limit int, cursor string) (*JournalPage, error) {
	q := journalRequest{limit: limit}
	if limit < 0 || limit > maxJournalPage {
		return nil, fmt.Errorf("%w: a page of %d entries: it has at most %d", ErrBadOption, limit, maxJournalPage)
	}
	q.limit = cmp.Or(limit, usualJournalPage)
	if cursor != "" {
		if err := readCursor(cursor, &q.after); err != nil {
			return nil, err
		}
		if score, err := strconv.ParseFloat(q.after.Made, 64); err != nil || score != score {
			return nil, fmt.Errorf("%w %q", ErrBadCursor, cursor)
		}
	}
	got, err := m.readJournal(ctx, q)
	if err != nil {
		return nil, err
	}
	page := &JournalPage{Now: instantTime(got.now)}
	for _, line := range got.entries {
		if e, ok := line.entry(got.now); ok {
			page.Entries = append(page.Entries, e)
		}
	}
	if last := len(got.entries) - 1; got.more && last >= 0 {
		page.Next, err = cursorOf(entryName{got.entries[last].made, strings.TrimSuffix(entryToken.FindString(got.entries[last].line), " ")})
	}
	return page, err
}

func (m *Monitor) readJournal(ctx context.Context, q journalRequest) (journalReply, error) {
	return read(ctx, func(ctx context.Context) (journalReply, error) { return m.store.journal(ctx, q) })
}

// JournalEntry returns one entry of the journal; ErrNotFound if it is not there, or not any more.
func (m *Monitor) JournalEntry(ctx context.Context, id string) (*JournalEntry, error) {
	name, err := parseEntryName(id)
	if err == nil {
		var got journalReply
		got, err = m.readJournal(ctx, journalRequest{limit: 1, after: name, alone: true})
		for _, line := range got.entries {
			if e, ok := line.entry(got.now); ok {
				return &e, nil
			}
		}
		err = cmp.Or(err, ErrNotFound)
	}
	return nil, m.failed(err, "entry %s of the journal", id)
}

// StopBulk asks the process that runs a call for many to stop it: it does so before its next step, and its caller gets
// ErrBulkStopped. id is that of the call's entry in the journal. It returns ErrNotFound if there is no such entry, and
// ErrWrongState if it is none of a call that runs.
func (m *Monitor) StopBulk(ctx context.Context, id string) error {
	name, err := parseEntryName(id)
	if err == nil {
		var got journalAnswer
		got, err = m.write(ctx, &journalNote{word: journalStop, token: name.Token, made: name.Made})
		switch {
		case err != nil:
		case got.said == "":
			err = ErrNotFound
		case got.said == journalDone:
			err = ErrWrongState
		}
	}
	if err != nil {
		return m.failed(err, "stop %s", id)
	}
	m.done(ctx, journalRecord{Act: ActStopBulk, Target: id})
	return nil
}

// write writes into the journal, until Redis answers or ctx ends, with the effect of once.
func (m *Monitor) write(ctx context.Context, n *journalNote) (got journalAnswer, err error) {
	begun := time.Now()
	first := true
	err = repeat(ctx, math.MaxInt, func() (err error) {
		var tried time.Duration
		if !first {
			tried = max(time.Since(begun), 1)
		}
		first = false
		got, err = m.store.note(ctx, n, tried)
		return err
	})
	return got, err
}

// journalTime is how long it is tried to write down what was done, beyond the end of the act's own context. Only tests change it.
var journalTime = 2 * time.Second

// noted writes down what was done, if this is a Monitor's.
func (s *steerer) noted(ctx context.Context, r journalRecord) {
	if s.record != nil {
		s.record(ctx, r)
	}
}

// Note writes into the journal what was done to the queue by other means than a Monitor, as the entries of its schedules are changed
// (schedule/): target names what it was done to, detail says how. If it cannot be written down, the log says so: see Journal.
func (m *Monitor) Note(ctx context.Context, act Act, target, detail string) {
	m.done(ctx, journalRecord{Act: act, Target: target, Detail: detail})
}

// done writes down what was done, if it can: see Journal.
func (m *Monitor) done(ctx context.Context, r journalRecord) {
	keep := time.Duration(0) // for ever
	if r.Act == ActDeleteQueue {
		keep = journalOutlives
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	_, err := m.writeDown(ctx, &r, journalNote{word: journalDone, token: newToken(), keep: keep})
	m.missing(&r, err)
}

// writeDown fills in whose act it is, and writes until Redis answers or ctx ends.
func (m *Monitor) writeDown(ctx context.Context, r *journalRecord, n journalNote) (got journalAnswer, err error) {
	if m.unwritable.Load() {
		return got, errUnwritable
	}
	if r.Bulk == nil {
		r.By, r.Why = m.who.by, m.who.why
	}
	r.Target, r.Detail = oneLine(r.Target, maxTarget), oneLine(r.Detail, maxDetail)
	text, err := json.Marshal(r)
	if err != nil {
		return got, err
	}
	n.text = string(text)
	return m.write(ctx, &n)
}

// briefly is the context for what has been done: see journalTime.
func briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), journalTime)
}

// errUnwritable: this user may not write the journal, which was logged.
var errUnwritable = errors.New("this user may not write the journal")

// missing logs what the journal lacks. A user who has no right to it is told once, and not asked again.
func (m *Monitor) missing(r *journalRecord, err error) {
	if err == nil || errors.Is(err, errUnwritable) {
		return
	}
	text := "delayqueue: what was done is not in the journal"
	if denied(err) {
		m.unwritable.Store(true)
		text += ": this user may not write it, and what this Monitor does next will not be there either"
	}
	m.events.logger().Error(text, slog.String("queue", m.store.queue), slog.String("act", string(r.Act)), slog.String("by", m.who.by),
		slog.String("reason", m.who.why), slog.String("target", r.Target), slog.String("detail", r.Detail),
		slog.Int64("messages", r.N), slog.Any("error", err))
}
