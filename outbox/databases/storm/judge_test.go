package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/outbox"
)

const second = 1_000_000 // us

// fine is a storm in which nothing is wrong: of four orders one was rolled back and one violated a key, and Redis
// forgot a message that had been handled.
func fine() evidence {
	e := evidence{
		orders: map[string]bool{"s1-0": true, "s1-1": true}, sends: 2,
		strikes: []strike{{kind: redisRestored, since: 2 * second, from: 5 * second, to: 6 * second},
			{kind: relayKilled, from: 7 * second, to: 7 * second}},
		want:  map[string]int{redisRestored: 1, relayKilled: 1},
		stats: outbox.Stats{Sent: 3, Healed: 1},
	}
	for _, order := range []string{"s1-0", "s1-1", "s1-2", "s1-3"} {
		e.entries = append(e.entries, entry{Kind: tried, At: second, Order: order, Delay: second})
	}
	e.entries = append(e.entries,
		entry{Kind: told, At: second, Order: "s1-0"},
		entry{Kind: back, At: second, Order: "s1-2"},
		entry{Kind: violated, At: second, Order: "s1-3"}, entry{Kind: back, At: second, Order: "s1-3"},
		entry{Kind: handled, At: 3 * second, Order: "s1-0", ID: "a"},
		entry{Kind: handled, At: 3 * second, Order: "s1-1", ID: "b"},
		entry{Kind: handled, At: 7 * second, Order: "s1-0", ID: "c"},
		entry{Kind: handled, At: 8 * second, Order: "s1-0", ID: "c"},
	)
	return e
}

func TestNothingIsWrong(t *testing.T) {
	v := judge(fine())
	if len(v.Findings) > 0 {
		t.Error(v.Findings)
	}
	if v.Orders != 4 || v.Committed != 2 || v.RolledBack != 2 || v.Violated != 1 || v.Sent != 2 || v.Healed != 1 ||
		v.Gap != 0 || v.Handled != 2 || v.Runs != 4 || v.Twice != 1 || v.Strikes[relayKilled] != 1 {
		t.Errorf("%+v", v)
	}
	var out bytes.Buffer
	printTable(&out, v)
	if strings.Contains(out.String(), "WRONG") || !strings.Contains(out.String(), "orders handled") {
		t.Error(out.String())
	}
}

// TestFindings: the judge finds each thing that may be wrong, and nothing else with it.
func TestFindings(t *testing.T) {
	add := func(entries ...entry) func(e *evidence) {
		return func(e *evidence) { e.entries = append(e.entries, entries...) }
	}
	drop := func(kind, order string) func(e *evidence) {
		return func(e *evidence) {
			e.entries = slices.DeleteFunc(e.entries, func(x entry) bool { return x.Kind == kind && x.Order == order })
		}
	}
	for want, spoil := range map[string]func(e *evidence){
		"order s1-1 was committed, and no message of it was handled": drop(handled, "s1-1"),
		"order s1-2 was rolled back, and a message of it was handled": add(
			entry{Kind: handled, At: 4 * second, Order: "s1-2"}),
		"order s1-2 was committed, and is not in the database": add(entry{Kind: told, Order: "s1-2"}),
		"order s1-1 was rolled back, and is in the database":   add(entry{Kind: back, Order: "s1-1"}),
		"order s1-1 was handled 1s early": func(e *evidence) {
			e.entries = append(e.entries, entry{Kind: handled, At: second, Order: "s1-1", ID: "b"})
		},
		"order s1-1 was never tried": drop(tried, "s1-1"),
		"order s1-9 was never tried": func(e *evidence) { e.orders["s1-9"] = true },
		"order s1-1 has 2 messages that were handled, and Redis may have forgotten 0": add( // the first before the RDB
			entry{Kind: handled, At: 2*second - 1, Order: "s1-1", ID: "d"}),
		"order s1-0 has 3 messages that were handled, and Redis may have forgotten 1": add(
			entry{Kind: handled, At: 6 * second, Order: "s1-0", ID: "d"}),
		"1001 messages more than orders were handled, and 0 were healed": func(e *evidence) {
			e.stats.Sent, e.stats.Healed = 2, 0
			for i := range notNoted {
				e.entries = append(e.entries, entry{Kind: handled, At: 6 * second, Order: "s1-1", ID: fmt.Sprint(i)})
			}
		},
		"1 rows wait":                          func(e *evidence) { e.stats.Waiting = 1 },
		"1 rows are dead":                      func(e *evidence) { e.stats.Dead = 1 },
		"1 messages were refused":              func(e *evidence) { e.stats.Refused = 1 },
		"1 messages are in the queue":          func(e *evidence) { e.live = 1 },
		"-1 messages are missing by the books": func(e *evidence) { e.missing = -1 },
		"2 messages were sent, of 3 rows":      func(e *evidence) { e.sends = 3 },
		"relay killed: it struck 1 times":      func(e *evidence) { e.want[relayKilled] = 2 },
		"service killed: it struck 0 times":    func(e *evidence) { e.want[serviceKilled] = 1 },
		"no unique key was violated":           drop(violated, "s1-3"),
		"3 messages were healed, and Redis forgo": func(e *evidence) {
			e.strikes[0].since, e.stats = 0, outbox.Stats{Sent: 5, Healed: 3}
		},
		"Redis forgot nothing": func(e *evidence) {
			e.stats = outbox.Stats{Sent: 2}
			drop(handled, "s1-0")(e)
			e.entries = append(e.entries, entry{Kind: handled, At: 3 * second, Order: "s1-0", ID: "a"})
		},
	} {
		t.Run(want, func(t *testing.T) {
			e := fine()
			spoil(&e)
			v := judge(e)
			if !slices.ContainsFunc(v.Findings, func(f string) bool { return strings.Contains(f, want) }) {
				t.Errorf("found %q", v.Findings)
			}
			var out bytes.Buffer
			if printTable(&out, v); len(v.Findings) > 0 && !strings.Contains(out.String(), "WRONG: "+v.Findings[0]) {
				t.Error(out.String())
			}
		})
	}
}

// TestGap: what passes before the first message and after the last order does not count.
func TestGap(t *testing.T) {
	entries := []entry{{Kind: tried, At: 1}, {Kind: handled, At: 9 * second}, {Kind: handled, At: 5 * second},
		{Kind: tried, At: 10 * second}, {Kind: tried, At: 90 * second, Again: true}, {Kind: handled, At: 12 * second},
		{Kind: handled, At: 60 * second}}
	if got := gap(entries); got != 4*time.Second {
		t.Error(got)
	}
}

// TestBooks: a ledger is read as it grows, without a line that has no end.
func TestBooks(t *testing.T) {
	b := &books{dir: t.TempDir(), read: map[string]int64{}, next: map[string]int{}, ended: map[string]bool{}}
	l, err := openLedger(b.dir, "s1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.file.Close()
	for _, order := range []string{"s1-000000", "s1-000007", "s1-000003"} {
		l.write(entry{Kind: tried, Order: order})
	}
	l.write(entry{Kind: tried, Order: "s1-000003", Again: true})
	if _, err := l.file.WriteString(`{"k":"fin`); err != nil {
		t.Fatal(err)
	}
	if err := b.catchUp(); err != nil || len(b.entries) != 4 || b.tried != 3 || b.next["s1"] != 8 || b.ended["s1"] {
		t.Errorf("%v: %+v", err, b)
	}
	if _, err := l.file.WriteString(`ished","t":1}` + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := b.catchUp(); err != nil || len(b.entries) != 5 || !b.ended["s1"] {
		t.Errorf("%v: %+v", err, b)
	}
}
