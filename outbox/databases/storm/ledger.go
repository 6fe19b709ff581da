package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The kinds of entries.
const (
	tried    = "tried"    // a transaction is about to begin that sends a message of an order
	told     = "told"     // a COMMIT was answered
	back     = "back"     // a ROLLBACK was answered
	violated = "violated" // an INSERT was refused because of a unique key
	unsure   = "unsure"   // the transaction ended by an error
	handled  = "handled"  // a handler is about to return
	finished = "finished" // a service has tried all its orders
)

// An entry is one line of a ledger.
type entry struct {
	Kind  string `json:"k"`
	At    int64  `json:"t"` // unix us
	Order string `json:"o,omitempty"`
	ID    string `json:"i,omitempty"` // of the message that was handled
	Delay int64  `json:"d,omitempty"` // of the message that is sent, us
	Again bool   `json:"a,omitempty"` // it is sent in place of an earlier one of the same order

	who string // the service, which is the name of the file
}

// A ledger is a file that one service appends to. It is outside of Redis and of the database, and what a killed service
// has written stays. It is safe for concurrent use: each entry is one write.
type ledger struct{ file *os.File }

const ledgerExt = ".ledger"

func openLedger(dir, who string) (ledger, error) {
	file, err := os.OpenFile(filepath.Join(dir, who+ledgerExt), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return ledger{file}, err
}

// write adds an entry, dated now. A service that cannot write is of no use.
func (l ledger) write(e entry) {
	e.At = time.Now().UnixMicro()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("ledger: %v", err))
	}
}

// books are all ledgers of a folder, read as they grow.
type books struct {
	dir     string
	read    map[string]int64 // bytes of each file
	entries []entry
	next    map[string]int  // of each service: the first number that no order of it has
	tried   int             // orders
	ended   map[string]bool // services that have tried all their orders
}

// catchUp reads what was added since the last call. A line without an end is not read.
func (b *books) catchUp() error {
	paths, err := filepath.Glob(filepath.Join(b.dir, "*"+ledgerExt))
	if err != nil {
		return err
	}
	for _, path := range paths {
		who := strings.TrimSuffix(filepath.Base(path), ledgerExt)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fresh := text[b.read[who] : bytes.LastIndexByte(text, '\n')+1]
		b.read[who] += int64(len(fresh))
		for line := range bytes.Lines(fresh) {
			e := entry{who: who}
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("ledger of %s: %q: %w", who, line, err)
			}
			b.note(e)
		}
	}
	return nil
}

func (b *books) note(e entry) {
	b.entries = append(b.entries, e)
	switch {
	case e.Kind == finished:
		b.ended[e.who] = true
	case e.Kind == tried && !e.Again:
		b.tried++
		var n int
		if _, err := fmt.Sscanf(e.Order, e.who+"-%d", &n); err == nil {
			b.next[e.who] = max(b.next[e.who], n+1)
		}
	}
}
