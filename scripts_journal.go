package delayqueue

import (
	"context"
	"time"
)

// This file has the typed calls of the scripts of the journal.

// A journalWord is what an entry says of itself to note.lua.
type journalWord string

const (
	journalDone journalWord = "done"
	journalRuns journalWord = "runs"

	journalTaken  journalWord = "taken"  // another process goes on with it
	journalBegins journalWord = "begins" // it runs, whatever was asked before
	journalStop   journalWord = "stop"   // it runs, and is asked to stop
)

// A journalNote is what is written into the journal.
type journalNote struct {
	word  journalWord
	token string // of the entry, in hexadecimal digits
	made  string // us at which the entry was made; "": it is new
	text  string
	keep  time.Duration // for which the journal is kept from now on; 0: for ever
	wrote string        // when this process wrote the entry last; "": it has not
}

// A journalAnswer is what note.lua says.
type journalAnswer struct {
	made  string      // us at which the entry was made
	said  journalWord // by the entry; of journalStop, before
	wrote string      // when the entry was written
}

func (s *store) note(ctx context.Context, n *journalNote, tried time.Duration) (got journalAnswer, err error) {
	r := s.run(ctx, noteScript, []any{string(n.word), &n.token, n.made, tried.Microseconds(), &n.text, int64(n.keep / time.Second), n.wrote})
	r.int64()
	got = journalAnswer{r.text(), journalWord(r.text()), r.text()}
	return got, r.err("note")
}

// A journalRequest asks for a page of the journal, or for one entry.
type journalRequest struct {
	limit int
	after entryName // the last one of the page before; zero: this is the first
	alone bool      // that one
}

// A journalReply is that page.
type journalReply struct {
	now     int64
	more    bool
	entries []journalLine
}

// A journalLine is an entry as it stands there.
type journalLine struct{ made, line string }

func (s *store) journal(ctx context.Context, q journalRequest) (out journalReply, err error) {
	r := s.run(ctx, journalScript, []any{q.limit, q.after.Made, &q.after.Token, q.alone})
	out.now, out.more = r.int64(), r.text() == "1"
	for len(r.rest) > 0 && r.bad == nil {
		out.entries = append(out.entries, journalLine{r.text(), r.text()})
	}
	return out, r.err("journal")
}
