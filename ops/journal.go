package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/go-delayqueue/delayqueue/internal/userlog"
)

// The journal says who did what to a queue. Only Queues write it: sends and deliveries are not in it.

// A JournalEntry is one act, or one call for many.
type JournalEntry struct {
	ID     string    // of the entry
	At     time.Time // when the act was done, or the call began, by the server's clock
	By     string    // who acted (WithOperator); "" if unknown
	Reason string    // why (WithReason); "" if unknown
	// Act says what was done: "pause", "resume", "reschedule", "run now", "requeue", "delete", "release key", "intercept",
	// "cancel", "set limits", "lift throttle", "drop sequence", "pass sequence", "skip", "accept balance", "delete queue";
	// "stop" of StopBulk; of schedules "set schedule", "pause schedule", "resume schedule", "remove schedule", "run
	// schedule".
	Act      string
	Target   string     // the id or key of a message, the name of a sequence or schedule, or the ID of another entry
	Detail   string     // in words: until when, by how much, which messages
	Messages int64      // how many messages were changed until now, or were accepted as missing, too many or lost
	Bulk     *BulkState // of a call for many; else nil
}

// A BulkState is how far a call for many has come.
type BulkState struct {
	Phase string // "running", "finished", "failed"; "stopped": by its Progress, StopBulk, or the end of its context
	// Updated is when the process of the call wrote the entry last, by the server's clock: before each step that changes
	// something, and after about a second without such a step. Silent is how long ago that was.
	Updated   time.Time
	Silent    time.Duration
	Total     int64            // as BulkResult.Total
	Looked    int64            // as BulkResult.Looked
	Passed    map[Reason]int64 // as BulkResult.Passed
	Task      *BulkTask        // what the call was told; nil if that is too long for the journal
	Error     string           // why the call failed, or which shards it left out
	StopAsked bool             // StopBulk was called, and the call still runs
}

// Interrupted says whether a call that runs has written nothing for a minute: it has probably ended with its process.
// JournalEntry.Rest is for the call that does the rest.
func (b *BulkState) Interrupted() bool { return b.Phase == journal.Running && b.Silent > time.Minute }

// A BulkTask is what a call for many was told.
type BulkTask struct {
	Action string             // "delete", "requeue", "run now", "reschedule" or "reschedule by"
	States []delayqueue.State // as Bulk.States
	Filter Filter             // as Bulk.Filter
	To     time.Time          // reschedule: until when
	By     time.Duration      // reschedule by: how much later
	Spread time.Duration      // as Bulk.Spread
	Rate   int                // as Bulk.Rate
	Most   int64              // as Bulk.Most
	Anew   bool               // as Bulk.Anew
	At     time.Time          // as BulkResult.At
}

func (t *task) public(begun int64) *BulkTask {
	p := &BulkTask{
		Action: verbs[t.What], States: t.States, Filter: *t.Filter.hot(), Spread: message.Microseconds(t.Spread),
		Rate: t.Rate, Most: t.Most,
		Anew: t.Anew, At: message.InstantTime(begun),
	}
	switch {
	case t.What == script.SteerBy:
		p.Action, p.By = "reschedule by", message.Microseconds(t.Us)
	case t.What == script.SteerAt && t.Us == 0:
		p.Action = "run now"
	case t.What == script.SteerAt:
		p.To = message.InstantTime(t.Us)
	}
	return p
}

// Rest is the Bulk with which the same call does the rest of a call for many that was stopped, has failed or was
// interrupted. ok is false if there is no rest, if the call still runs, if its task was too long for the journal, or
// if it was BulkRescheduleBy, which would shift messages twice.
func (e *JournalEntry) Rest() (b Bulk, ok bool) {
	if e.Bulk == nil || e.Bulk.Task == nil || e.Bulk.Phase == journal.Finished || e.Bulk.Phase == journal.Running &&
		!e.Bulk.Interrupted() {
		return b, false
	}
	t := e.Bulk.Task
	b = Bulk{States: t.States, Filter: t.Filter, Spread: t.Spread, Rate: t.Rate, Anew: t.Anew, Before: t.At}
	if t.Most > 0 {
		b.Most = max(t.Most-e.Messages, 0)
	}
	return b, t.By == 0 && (t.Most == 0 || b.Most > 0)
}

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
	maxEntryTask     = 64 << 10
	journalOutlives  = 31 * 24 * time.Hour // how long the journal of a deleted queue is kept
)

// entryToken finds the token of an entry, as journal.lua does. It finds none in an entry of another program.
var entryToken = regexp.MustCompile(`^[0-9A-Fa-f]+ `)

func parseEntryName(id string) (n script.EntryName, err error) {
	made, token, _ := strings.Cut(id, "-")
	_, err = strconv.ParseUint(made, 10, 53)
	if err == nil {
		_, err = strconv.ParseUint(token, 16, 64)
	}
	if err != nil || len(token) != 16 {
		return n, fmt.Errorf("%w: %q is no ID of an entry of the journal", delayqueue.ErrNotFound, id)
	}
	return script.EntryName{Made: made, Token: token}, nil
}

func newToken() string { return fmt.Sprintf("%016x", rand.Uint64()) }

// A journalRecord is the JSON of an entry.
type journalRecord struct {
	By     string      `json:"by,omitempty"`
	Why    string      `json:"why,omitempty"`
	Act    string      `json:"act"`
	Target string      `json:"to,omitempty"`
	Detail string      `json:"how,omitempty"`
	N      int64       `json:"n"`
	Bulk   *bulkRecord `json:"bulk,omitempty"`
}

type bulkRecord struct {
	Phase  string           `json:"is"`
	Total  int64            `json:"of"`
	Looked int64            `json:"looked"`
	Passed map[Reason]int64 `json:"passed,omitempty"`
	Task   *task            `json:"do,omitempty"`
	Begun  int64            `json:"begun"` // us of the server
	Error  string           `json:"error,omitempty"`
}

// journalEntryOf reads a line of the journal. now is the server's instant in us. ok is false if another program wrote
// the line.
func journalEntryOf(l *script.JournalLine, now int64) (e JournalEntry, ok bool) {
	words := strings.SplitN(l.Line, " ", 4)
	at := script.ScoreInstant(l.Made)
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
		ID: name.String(), At: message.InstantTime(at), By: script.OneLine(r.By, script.MaxBy),
		Reason: script.OneLine(r.Why, script.MaxWhy), Act: script.OneLine(r.Act, script.MaxBy),
		Target: script.OneLine(r.Target, maxTarget), Detail: script.OneLine(r.Detail, maxDetail), Messages: r.N,
	}
	if b := r.Bulk; b != nil {
		e.Bulk = &BulkState{
			Phase: script.OneLine(b.Phase, script.MaxBy), Updated: message.InstantTime(updated), Total: b.Total,
			Looked: b.Looked,
			Passed: b.Passed,
			Error:  script.OneLine(b.Error, message.MaxErrorText), StopAsked: script.JournalWord(words[1]) == script.JournalStop,
		}
		if b.Task != nil {
			e.Bulk.Task = b.Task.public(b.Begun)
		}
		e.Bulk.Silent = max(message.InstantTime(now).Sub(e.Bulk.Updated), 0)
	}
	return e, true
}

// Journal returns a page of the acts on the queue, on all machines, the newest first. cursor is "" for the first
// page, and then the Next of the page before. limit is the number of entries, at most 200; 0: 50. Redis keeps the
// last 1,000 entries, and keeps them for 31 days after DeleteQueue.
//
// A call for one message or for the queue acts first, and then writes its entry with a second call. If the entry
// cannot be written, the act stands, its result is returned, and the log has an error with all that the entry would
// say. A call for many writes its entry before it changes anything.
//
// Not in the journal: calls for one message that failed or changed nothing, dry runs, what a DelayQueue, a Publisher
// or a delayqueue.Monitor does, and a PassSequence without WithOperator, because programs call that.
func (m *Queue) Journal(ctx context.Context, limit int, cursor string) (*JournalPage, error) {
	page, err := m.journalPage(ctx, limit, cursor)
	if err == nil && len(page.Entries) == 0 && cursor == "" {
		err = m.there(ctx)
	}
	if err != nil {
		return nil, m.failed(err, "journal")
	}
	return page, nil
}

func (m *Queue) journalPage(ctx context.Context, limit int, cursor string) (*JournalPage, error) {
	q := script.JournalRequest{Limit: limit}
	if limit < 0 || limit > maxJournalPage {
		return nil, fmt.Errorf("%w: a page of %d entries: it has at most %d", delayqueue.ErrBadOption, limit, maxJournalPage)
	}
	q.Limit = cmp.Or(limit, usualJournalPage)
	if cursor != "" {
		if err := readCursor(cursor, &q.After); err != nil {
			return nil, err
		}
		if score, err := strconv.ParseFloat(q.After.Made, 64); err != nil || score != score {
			return nil, fmt.Errorf("%w %q", ErrBadCursor, cursor)
		}
	}
	got, err := m.readJournal(ctx, q)
	if err != nil {
		return nil, err
	}
	page := &JournalPage{Now: message.InstantTime(got.Now)}
	for _, line := range got.Entries {
		if e, ok := journalEntryOf(&line, got.Now); ok {
			page.Entries = append(page.Entries, e)
		}
	}
	if last := len(got.Entries) - 1; got.More && last >= 0 {
		page.Next, err = cursorOf(script.EntryName{Made: got.Entries[last].Made,
			Token: strings.TrimSuffix(entryToken.FindString(got.Entries[last].Line), " ")})
	}
	return page, err
}

func (m *Queue) readJournal(ctx context.Context, q script.JournalRequest) (script.JournalReply, error) {
	return link.Read(ctx, func(ctx context.Context) (script.JournalReply, error) { return m.store.Journal(ctx, q) })
}

// JournalEntry returns one entry of the journal. It returns ErrNotFound if there is no such entry, or no longer.
func (m *Queue) JournalEntry(ctx context.Context, id string) (*JournalEntry, error) {
	name, err := parseEntryName(id)
	if err == nil {
		var got script.JournalReply
		got, err = m.readJournal(ctx, script.JournalRequest{Limit: 1, After: name, Alone: true})
		for _, line := range got.Entries {
			if e, ok := journalEntryOf(&line, got.Now); ok {
				return &e, nil
			}
		}
		err = cmp.Or(err, delayqueue.ErrNotFound)
	}
	return nil, m.failed(err, "entry %s of the journal", id)
}

// StopBulk asks the process that runs a call for many to stop the call. It stops before its next step, and its caller
// gets ErrBulkStopped. id is the ID of the call's entry in the journal. StopBulk returns ErrNotFound if there is no
// such entry, and ErrWrongState if no call runs under that entry.
func (m *Queue) StopBulk(ctx context.Context, id string) error {
	name, err := parseEntryName(id)
	if err == nil {
		var got script.JournalAnswer
		got, err = m.write(ctx, &script.JournalNote{Word: script.JournalStop, Token: name.Token, Made: name.Made})
		switch {
		case err != nil:
		case got.Said == "":
			err = delayqueue.ErrNotFound
		case got.Said == script.JournalDone:
			err = fmt.Errorf("%w: the call has ended", delayqueue.ErrWrongState)
		}
	}
	if err != nil {
		return m.failed(err, "stop %s", id)
	}
	m.done(ctx, journalRecord{Act: journal.StopBulk, Target: id})
	return nil
}

// write writes into the journal, again and again until Redis answers or ctx ends, with the effect of one call.
func (m *Queue) write(ctx context.Context, n *script.JournalNote) (got script.JournalAnswer, err error) {
	begun := time.Now()
	first := true
	err = link.Repeat(ctx, func() (err error) {
		var tried time.Duration
		if !first {
			tried = max(time.Since(begun), 1)
		}
		first = false
		got, err = m.store.Note(ctx, n, tried)
		return err
	})
	return got, err
}

// journalTime bounds the attempts to write the entry of an act that is done, also after the context of the act has
// ended. Only tests change it.
var journalTime = 2 * time.Second

// Note writes an act into the journal that was done by other means than a Queue, as schedule/ does for its entries.
// act is a word as of JournalEntry.Act, or any other; target names the object of the act, detail says how. If the
// entry cannot be written, the log says so: see Journal.
func (m *Queue) Note(ctx context.Context, act string, target, detail string) {
	m.done(ctx, journalRecord{Act: act, Target: target, Detail: detail})
}

// done writes the entry of an act that is done, or logs that it cannot: see Journal.
func (m *Queue) done(ctx context.Context, r journalRecord) {
	keep := time.Duration(0) // for ever
	if r.Act == journal.DeleteQueue {
		keep = journalOutlives
	}
	ctx, cancel := briefly(ctx)
	defer cancel()
	note := func(ctx context.Context, _ *script.Store) (script.JournalAnswer, error) {
		return m.writeDown(ctx, &r, script.JournalNote{Word: script.JournalDone, Token: newToken(), Keep: keep})
	}
	_, err := shard.One(ctx, m.store.Known().All[0], note)
	m.missing(&r, err)
}

// writeDown fills in who acts, and writes until Redis answers or ctx ends.
func (m *Queue) writeDown(ctx context.Context, r *journalRecord,
	n script.JournalNote) (got script.JournalAnswer, err error) {
	if m.unwritable.Load() {
		return got, errUnwritable
	}
	if r.Bulk == nil {
		r.By, r.Why = m.who.by, m.who.why
	}
	r.Target, r.Detail = script.OneLine(r.Target, maxTarget), script.OneLine(r.Detail, maxDetail)
	text, err := json.Marshal(r)
	if err != nil {
		return got, err
	}
	n.Text = string(text)
	return m.write(ctx, &n)
}

// briefly is the context for the entry of an act that is done: see journalTime.
func briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), journalTime)
}

// errUnwritable: this user may not write the journal. It was logged before.
var errUnwritable = errors.New("this user may not write the journal")

// missing logs an entry that could not be written. A user without the right to write the journal is told once, and
// later entries are not tried.
func (m *Queue) missing(r *journalRecord, err error) {
	if err == nil || errors.Is(err, errUnwritable) {
		return
	}
	text := "delayqueue: what was done is not in the journal"
	if link.Denied(err) {
		m.unwritable.Store(true)
		text += ": this user may not write it, and what it does next by this Queue will not be there either"
	}
	userlog.Contain(cmp.Or(m.log, slog.Default())).Error(text, slog.String("queue", m.store.Queue),
		slog.String("act", r.Act), slog.String("by", m.who.by),
		slog.String("reason", m.who.why), slog.String("target", r.Target), slog.String("detail", r.Detail),
		slog.Int64("messages", r.N), slog.Any("error", err))
}
