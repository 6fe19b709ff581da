package web

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func (h *Handler) journalRoutes() []route {
	return []route{{name: "journal", title: "Journal", queue: true, file: "journal", load: h.journal, live: []string{"entries"}}}
}

const journalRows = 50

// A journalView is a page of the journal.
type journalView struct {
	Rows []journalRow // the newest first
	Next string       // address of the older ones
}

// A journalRow is an entry.
type journalRow struct {
	delayqueue.JournalEntry
	Phase string // of a job, in words
	Job   string // its address
}

// payloadWanted is the part of an entry's detail that says what the payloads of its messages contain. Of a long detail the end is
// missing, and perhaps that of this part.
var payloadWanted = regexp.MustCompile(`payload "(?:[^"\\]|\\.)*(?:"|\\?$)`)

func (h *Handler) journal(ctx context.Context, r *request) (any, error) {
	read := func(ctx context.Context) (*delayqueue.JournalPage, error) {
		return r.Monitor().Journal(ctx, journalRows, r.Arg("cursor"))
	}
	var page *delayqueue.JournalPage
	var err error
	if r.Arg("cursor") == "" {
		page, err = shared(ctx, h, "journal\x00"+r.Queue, 2*time.Second, read)
	} else { // which anybody can make up: it is not kept
		page, err = read(ctx)
	}
	if errors.Is(err, delayqueue.ErrBadCursor) {
		err = errNoPage
	}
	if err != nil {
		return nil, err
	}
	v := &journalView{}
	for _, entry := range page.Entries {
		one := journalRow{JournalEntry: entry}
		if h.cfg.Payload != nil && entry.Bulk != nil {
			one.Detail = payloadWanted.ReplaceAllString(entry.Detail, "payload …")
		}
		if b := entry.Bulk; b != nil {
			one.Phase, one.Job = r.lang.phase(b), jobLink(r.Queue, entry.ID)
		}
		v.Rows = append(v.Rows, one)
	}
	if page.Next != "" {
		v.Next = linkOf("journal", "q", r.Queue, "cursor", page.Next)
	}
	return v, nil
}

// act is what somebody did, in words.
func (l *language) act(a delayqueue.Act) string {
	switch a {
	case "pause":
		return l.say("pause")
	case "resume":
		return l.say("resume")
	case "reschedule":
		return l.say("reschedule")
	case "run now":
		return l.say("run now")
	case "requeue":
		return l.say("requeue")
	case "delete":
		return l.say("delete")
	case "cancel":
		return l.say("cancel")
	case "set limits":
		return l.say("set limits")
	case "lift throttle":
		return l.say("lift a throttle")
	case "release key":
		return l.say("release a key")
	case "intercept":
		return l.say("take back")
	case "drop sequence":
		return l.say("drop a sequence")
	case "pass sequence":
		return l.say("move a sequence on")
	case delayqueue.ActSetSchedule:
		return l.say("set a schedule")
	case delayqueue.ActPauseSchedule:
		return l.say("pause a schedule")
	case delayqueue.ActResumeSchedule:
		return l.say("resume a schedule")
	case delayqueue.ActRemoveSchedule:
		return l.say("remove a schedule")
	case delayqueue.ActRunSchedule:
		return l.say("run a schedule")
	case "delete queue":
		return l.say("delete the queue")
	case "stop":
		return l.say("stop a job")
	case "continue":
		return l.say("go on with a job")
	}
	return shown(string(a))
}

// phase is how a job stands, in words.
func (l *language) phase(b *delayqueue.BulkState) string {
	switch {
	case b.Interrupted():
		return l.say("interrupted, its process is not heard of any more")
	case b.Phase == delayqueue.BulkRunning && b.StopAsked:
		return l.say("running, asked to stop")
	case b.Phase == delayqueue.BulkRunning:
		return l.say("running")
	case b.Phase == delayqueue.BulkFinished:
		return l.say("finished")
	case b.Phase == delayqueue.BulkStopped:
		return l.say("stopped")
	}
	return l.say("failed")
}
