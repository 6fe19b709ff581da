package check

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// What is written anew while pages are read is no entry too many.
func TestInspectJournalThatChanges(t *testing.T) {
	cli := redistest.Start(t).Client(t)
	b := build(t, cli, "dq")
	p := &pager{cli: cli, state: newState(b.q)}
	for i := range maxJournal {
		b.do("ZADD", "journal", i, fmt.Sprintf(`%016x done %d {}`, i, i))
		p.state.Journal = append(p.state.Journal, Marker{Member: fmt.Sprintf(`%016x done %d {}`, i, i), Score: int64(i)})
	}
	p.state.Journal = append(p.state.Journal, Marker{Member: `0000000000000000 runs 0 {}`})
	if err := p.journal(t.Context(), b.q.Key("journal")); err != nil || len(p.state.Journal) != maxJournal ||
		p.state.Journal[1].Score != 1 {
		t.Errorf("%d entries, %v", len(p.state.Journal), err)
	}
}

// No page goes through more than a bounded number of bytes, and reading ends.
func TestInspectPages(t *testing.T) {
	cli := redistest.Start(t).Client(t) // the embedded server takes no heed of COUNT
	const n, size = 300, 64 << 10
	b := build(t, cli, "dq")
	payload := strings.Repeat("x", size)
	for i := range n {
		id := fmt.Sprintf("0190f3a0-0000-7000-8000-%012x", 0x1000+i)
		b.do("HSET", "msg", id, encode(b.now+60*second, "", 0, 3, payload))
		b.do("ZADD", "pending", b.now+60*second, id)
	}
	b.do("HSET", "state", "big", size+1000)
	p := &pager{cli: cli, state: newState(b.q)}
	if err := p.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.largest > 4*pageBytes { // HSCAN may return some more than COUNT
		t.Errorf("a page of %d bytes", p.largest)
	}
	s, found, err := Inspect(t.Context(), cli, b.q.Prefix, b.q.Name, nil)
	if err != nil || len(found) != 0 || len(s.Messages) != n+7 || len(s.Pending) != n+2 {
		t.Errorf("%v, %d messages, %d pending, %v", texts(found), len(s.Messages), len(s.Pending), err)
	}
	if e := s.Messages[fmt.Sprintf("0190f3a0-0000-7000-8000-%012x", 0x1000)]; e.Problem != "" || e.Size <= size ||
		e.Payload != "" || e.Retries != 3 {
		t.Errorf("head of an envelope: %d bytes, retries %d, %q", e.Size, e.Retries, e.Problem)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Inspect(ctx, cli, b.q.Prefix, b.q.Name, nil); err == nil {
		t.Error("it did not end with its context")
	}
}
