package script

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// tokenOf is the token of a short name.
func tokenOf(name string) string { return fmt.Sprintf("%016x", name) }

// notes writes an entry into the journal. made is "" for a new entry.
func (r *rig) notes(name string, word JournalWord, made, text string) (at string, said JournalWord) {
	r.t.Helper()
	return r.noted(name, word, made, text, 0)
}

func (r *rig) noted(name string, word JournalWord, made, text string,
	tried time.Duration) (at string, said JournalWord) {
	r.t.Helper()
	got, err := r.Store.Note(queuetest.CtxB, &JournalNote{Word: word, Token: tokenOf(name), Made: made, Text: text,
		Keep: time.Hour}, tried)
	if err != nil {
		r.t.Fatalf("note: %v", err)
	}
	return got.Made, got.Said
}

// journaled lists the entries page by page, the newest first, each as <name>:<word>:<text>.
func (r *rig) journaled(limit int) string {
	r.t.Helper()
	var all []string
	for q := (JournalRequest{Limit: limit}); ; {
		got, err := r.Store.Journal(queuetest.CtxB, q)
		if err != nil || len(got.Entries) > limit {
			r.t.Fatalf("journal: %+v, %v", got, err)
		}
		for _, e := range got.Entries {
			words := strings.SplitN(e.Line, " ", 4)
			name, err := hex.DecodeString(words[0])
			queuetest.Must(r.t, err)
			all = append(all, strings.TrimLeft(string(name), "\x00")+":"+words[1]+":"+words[3])
			q.After = EntryName{e.Made, words[0]}
		}
		if !got.More {
			return strings.Join(all, " ")
		}
	}
}

// TestScriptNote: a repeated note is written once. A note of an entry that is there changes it in its place, and says
// whether the call is to stop.
func TestScriptNote(t *testing.T) {
	onBoth(t, func(r *rig) {
		want := func(what, entries string) {
			r.t.Helper()
			for limit := range 3 {
				r.equal(what, r.journaled(limit+1), entries)
			}
			r.read()
		}
		want("nothing", "")
		bulk, said := r.notes("b", JournalRuns, "", "0")
		r.equal("made", bulk, strconv.FormatInt(r.now, 10))
		r.equal("said", said, JournalRuns)
		r.notes("a", JournalDone, "", "10")
		r.noted("a", JournalDone, "", "10", time.Millisecond) // its reply was lost
		want("of the same us", "b:runs:0 a:done:10")
		r.at(time.Second)
		r.notes("c", JournalDone, "", "[2, 3]")
		r.at(time.Hour)
		r.noted("c", JournalDone, "", "[2, 3]", time.Hour)
		want("an hour later", "c:done:[2, 3] b:runs:0 a:done:10")
		for range 2 {
			at, said := r.notes("b", JournalRuns, bulk, "1")
			r.equal("stays", at, bulk)
			r.equal("goes on", said, JournalRuns)
		}
		for _, before := range []JournalWord{JournalRuns, JournalStop} {
			_, said = r.notes("b", JournalStop, bulk, "")
			r.equal("asked to stop", said, before)
		}
		_, said = r.notes("b", JournalRuns, bulk, "2")
		r.equal("is told", said, JournalStop)
		want("asked", "c:done:[2, 3] b:stop:2 a:done:10")
		for _, word := range []JournalWord{JournalDone, JournalRuns} { // a step's comes late
			_, said = r.notes("b", word, bulk, map[JournalWord]string{JournalDone: "4", JournalRuns: "3"}[word])
			r.equal("ended", said, JournalDone)
		}
		_, said = r.notes("b", JournalStop, bulk, "")
		r.equal("stop what has ended", said, JournalDone)
		_, said = r.notes("nobody", JournalStop, bulk, "")
		r.equal("stop what is not there", said, JournalWord(""))
		want("in the end", "c:done:[2, 3] b:done:4 a:done:10")
		r.do("DEL", r.Keys.of("journal"))
		r.notes("b", JournalRuns, bulk, "5")
		want("written anew", "b:runs:5")
	})
}

// TestScriptNoteMost: the journal keeps the last 1,000 entries, and expires as its last entry says.
func TestScriptNoteMost(t *testing.T) {
	onReal(t, func(r *rig) {
		for i := range 1010 {
			if i%4 == 0 {
				r.at(time.Duration(i/4) * time.Microsecond)
			}
			r.notes(strconv.Itoa(i), JournalDone, "", "{}")
		}
		r.equal("entries", r.Cli.ZCard(queuetest.CtxB, r.Keys.of("journal")).Val(), int64(1000))
		if ttl := r.Cli.TTL(queuetest.CtxB, r.Keys.of("journal")).Val(); ttl <= 0 || ttl > time.Hour {
			r.t.Errorf("it expires in %v", ttl)
		}
		pages := strings.Fields(r.journaled(7))
		seen := map[string]bool{}
		for _, one := range pages {
			seen[one] = true
		}
		if len(pages) != 1000 || len(seen) != 1000 || !seen["1009:done:{}"] || seen["9:done:{}"] {
			r.t.Errorf("%d entries on the pages, %d of them different", len(pages), len(seen))
		}
		old := pages[len(pages)-1]
		bulk := strconv.FormatInt(r.now-int64(time.Hour/time.Microsecond),
			10) // of a call that still runs, and was pushed out
		if at, said := r.notes("b", JournalRuns, bulk, "7"); at != bulk || said != JournalRuns {
			r.t.Errorf("it was made at %s, want %s; %s", at, bulk, said)
		}
		if all := r.journaled(200); !strings.HasSuffix(all, " b:runs:7") || strings.Contains(all, " "+old+" ") ||
			len(strings.Fields(all)) != 1000 {
			r.t.Errorf("what runs is not among the 1,000: …%s", all[len(all)-40:])
		}
		if _, said := r.notes("b", JournalStop, bulk, ""); said != JournalRuns {
			r.t.Errorf("stopped: %q", said)
		}
		r.do("DEL", r.Keys.of("journal"))
		for i := range 30 { // each of 64 KB
			r.notes(strconv.Itoa(i), JournalDone, "", strings.Repeat("x", 64<<10))
		}
		got, err := r.Store.Journal(queuetest.CtxB, JournalRequest{Limit: 30})
		if err != nil || !got.More || len(got.Entries) < 10 || len(got.Entries) > 17 {
			r.t.Errorf("%d large entries on a page, %v", len(got.Entries), err)
		}
	})
}

// TestScriptCostsOfTheJournal: a page loads little more than it returns, however large entries are.
func TestScriptCostsOfTheJournal(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	entries := func(n, bytes int) func() {
		return func() {
			for i := range n {
				c.r.notes(strconv.Itoa(i), JournalDone, "", `"`+strings.Repeat("x", bytes)+`"`)
			}
		}
	}
	page := func(want int, q JournalRequest) func() {
		return func() {
			got, err := c.r.Store.Journal(queuetest.CtxB, q)
			if err != nil || len(got.Entries) != want {
				c.r.t.Errorf("%d entries, want %d; %v", len(got.Entries), want, err)
			}
		}
	}
	c.cost(t, []costsRow{
		{"nothing", entries(0, 0), page(0, JournalRequest{Limit: 50}), 1 + 1},
		{"few", entries(3, 1), page(3, JournalRequest{Limit: 50}), 1 + 1},
		{"a page of 15", entries(99, 1), page(15, JournalRequest{Limit: 15}), 1 + 1},
		{"a page of 200", entries(300, 1), page(200, JournalRequest{Limit: 200}), 1 + 13},
		{"large ones", entries(40, 64<<10), page(15, JournalRequest{Limit: 40}), 1 + 1},
		{"one", entries(9, 1), page(0, JournalRequest{Limit: 1, After: EntryName{"5", tokenOf("x")}, Alone: true}), 1 + 2},
	})
}

// TestScriptNoteRubbish: entries of another program stop nothing.
func TestScriptNoteRubbish(t *testing.T) {
	onReal(t, func(r *rig) {
		members := append(rubbish, "0123456789abcdef runs 5", "0123456789abcdef runs x {}", "0123456789abcdef runs 5 {",
			"0123456789abcdef  5 {}", `0123456789abcdef runs 5 {"bulk":{},"n":-1}`)
		for i, member := range members {
			now := strconv.FormatInt(r.now, 10)
			for _, score := range testkit.Size([]string{"5", "+inf", "-inf", "1.5", now}, []string{"+inf", now}) {
				r.do("ZADD", r.Keys.of("journal"), score, member)
				r.do("ZADD", r.Keys.of("journal"), "1e300", member+"!")
				name := fmt.Sprint(i % 10)
				r.noted(name, JournalDone, "", "{}", time.Second)
				at, _ := r.noted(name, JournalDone, "", "{}", time.Second)
				r.notes(name, JournalStop, at, "")
				for _, token := range []string{tokenOf(name), "0123456789abcdef"} {
					if _, err := r.Store.Journal(queuetest.CtxB,
						JournalRequest{Limit: 1, After: EntryName{"5", token}, Alone: true}); err != nil {
						r.t.Errorf("%q: %v", member, err)
					}
				}
				pages, q := 0, JournalRequest{Limit: 2}
				for more := true; more; pages++ {
					page, err := r.Store.Journal(queuetest.CtxB, q)
					if err != nil || pages > 100 {
						r.t.Fatalf("%q at %s: page %d: %v", member, score, pages, err)
					}
					if more = page.More && len(page.Entries) > 0; more {
						last := page.Entries[len(page.Entries)-1]
						token, _, _ := strings.Cut(last.Line, " ")
						q.After = EntryName{last.Made, token}
					}
				}
				r.do("DEL", r.Keys.of("journal"))
			}
		}
	})
}
