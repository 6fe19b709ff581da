package script

import (
	"context"
	"time"
)

// This file has the typed calls of the scripts of the journal.

// A JournalWord is what an entry says of itself to note.lua.
type JournalWord string

const (
	JournalDone JournalWord = "done"
	JournalRuns JournalWord = "runs"
	JournalStop JournalWord = "stop" // it runs, and is asked to stop
)

// A JournalNote is what is written into the journal.
type JournalNote struct {
	Word  JournalWord
	Token string // of the entry, in hexadecimal digits
	Made  string // us at which the entry was made; "": it is new
	Text  string
	Keep  time.Duration // for which the journal is kept from now on; 0: for ever
}

// A JournalAnswer is what note.lua says.
type JournalAnswer struct {
	Made string      // us at which the entry was made
	Said JournalWord // by the entry; of JournalStop, before
}

func (s *Store) Note(ctx context.Context, n *JournalNote, tried time.Duration) (got JournalAnswer, err error) {
	r := s.run(ctx, NoteScript, []any{string(n.Word), &n.Token, n.Made, tried.Microseconds(), &n.Text,
		int64(n.Keep / time.Second)})
	r.int64()
	got = JournalAnswer{r.text(), JournalWord(r.text())}
	return got, r.err("note")
}

// A JournalRequest asks for a page of the journal, or for one entry.
type JournalRequest struct {
	Limit int
	After EntryName // the last one of the page before; zero: this is the first
	Alone bool      // that one
}

// A JournalReply is that page.
type JournalReply struct {
	Now     int64
	More    bool
	Entries []JournalLine
}

// A JournalLine is an entry as it stands there.
type JournalLine struct{ Made, Line string }

func (s *Store) Journal(ctx context.Context, q JournalRequest) (out JournalReply, err error) {
	r := s.run(ctx, JournalScript, []any{q.Limit, q.After.Made, &q.After.Token, q.Alone})
	out.Now, out.More = r.int64(), r.text() == "1"
	for len(r.rest) > 0 && r.bad == nil {
		out.Entries = append(out.Entries, JournalLine{r.text(), r.text()})
	}
	return out, r.err("journal")
}

// An EntryName is the ID of an entry.
type EntryName struct{ Made, Token string }

func (n EntryName) String() string {
	if n.Made == "" {
		return ""
	}
	return n.Made + "-" + n.Token
}
