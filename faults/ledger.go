package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The kinds of entries.
const (
	sent     = "sent"     // Redis has accepted a message
	refused  = "refused"  // a send returned an error: the message is there or not
	taken    = "taken"    // a send was refused because a live message has its key: its own is not there
	told     = "told"     // a replica says that it has sent an instant: a failover may have forgotten it since
	started  = "started"  // a handler begins
	ended    = "ended"    // a handler is about to return Word
	standing = "standing" // what a program takes up, twice a second
	quit     = "quit"     // the same, when everything is closed
)

// How a handler ended.
const (
	succeeded = "succeeded"
	failed    = "failed"  // it returned an error
	gaveUp    = "gave up" // it returned ErrSkipRetry
	cutOff    = "cut off" // its context ended first
)

// What a send did about a message that has its key.
const (
	stored    = "stored" // there was none
	replaced  = "replaced"
	appended  = "appended"
	postponed = "postponed" // it is due at another instant, and nothing else of it has changed
)

// An entry is one line of a ledger.
type entry struct {
	Kind     string   `json:"k"`
	At       int64    `json:"t"` // unix us
	Payload  string   `json:"p,omitempty"`
	Parts    []string `json:"a,omitempty"` // of a group
	ID       string   `json:"i,omitempty"`
	Due      int64    `json:"d,omitempty"` // unix us, by the server's clock
	Delivery int      `json:"n,omitempty"`
	Failures int      `json:"f,omitempty"`
	Left     int      `json:"m,omitempty"` // acks that were missing (CountdownLeft)
	Word     string   `json:"w,omitempty"` // how it ended; the error of a send, or what it did about its key
	Took     int64    `json:"l,omitempty"` // us that a send took
	Count    int      `json:"c,omitempty"` // goroutines

	who string // the program, which is the name of the file
}

// A ledger is a program's own file. It is safe for concurrent use: each entry is one write,
// and the file is open for appending.
type ledger struct{ file *os.File }

const ledgerExt = ".ledger"

func openLedger(dir, who string) (ledger, error) {
	file, err := os.OpenFile(filepath.Join(dir, who+ledgerExt), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return ledger{file}, err
}

// write adds an entry, dated now unless it is dated. A program that cannot write is of no use.
func (l ledger) write(e entry) {
	e.At = cmp.Or(e.At, time.Now().UnixMicro())
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("ledger: %v", err))
	}
}

// books are all ledgers of a directory, read as they grow. They are safe for concurrent use.
type books struct {
	dir string

	mu      sync.Mutex
	read    map[string]int64 // bytes of each file
	entries []entry
	counts  map[string]int // by kind, and by word of those that ended
}

// catchUp reads what was added since it was called last. A line without an end is one that
// is being written, or whose writer was killed: it is not read.
func (b *books) catchUp() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read == nil {
		b.read, b.counts = map[string]int64{}, map[string]int{}
	}
	paths, err := filepath.Glob(filepath.Join(b.dir, "*"+ledgerExt))
	if err != nil {
		return err
	}
	for _, path := range paths {
		who := strings.TrimSuffix(filepath.Base(path), ledgerExt)
		if err := b.readFile(path, who); err != nil {
			return fmt.Errorf("ledger of %s: %w", who, err)
		}
	}
	return nil
}

func (b *books) readFile(path, who string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	fresh := make([]byte, info.Size()-b.read[who])
	if _, err := file.ReadAt(fresh, b.read[who]); err != nil {
		return err
	}
	fresh = fresh[:bytes.LastIndexByte(fresh, '\n')+1]
	b.read[who] += int64(len(fresh))
	for line := range bytes.Lines(fresh) {
		e := entry{who: who}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		b.entries = append(b.entries, e)
		b.counts[e.Kind]++
		b.counts[e.Word]++
	}
	return nil
}

// count says how many entries of a kind, or with a word, there are.
func (b *books) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[what]
}

// all returns the entries read so far, each program's in order.
func (b *books) all() []entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[:len(b.entries):len(b.entries)]
}
