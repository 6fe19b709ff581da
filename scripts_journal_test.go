package delayqueue

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tokenOf is that of a short name.
func tokenOf(name string) string { return fmt.Sprintf("%016x", name) }

// notes writes into the journal; made is "" of what is new.
func (r *rig) notes(name string, word journalWord, made, text string) (at string, said journalWord) {
	r.t.Helper()
	return r.noted(name, word, made, text, 0)
}

func (r *rig) noted(name string, word journalWord, made, text string, tried time.Duration) (at string, said journalWord) {
	r.t.Helper()
	got, err := r.store.note(ctxB, &journalNote{word: word, token: tokenOf(name), made: made, text: text, keep: time.Hour}, tried)
	if err != nil {
		r.t.Fatalf("note: %v", err)
	}
	return got.made, got.said
}

// journaled are the entries, the newest first, each as <name>:<word>:<text>, page by page.
func (r *rig) journaled(limit int) string {
	r.t.Helper()
	var all []string
	for q := (journalRequest{limit: limit}); ; {
		got, err := r.store.journal(ctxB, q)
		if err != nil || len(got.entries) > limit {
			r.t.Fatalf("journal: %+v, %v", got, err)
		}
		for _, e := range got.entries {
			words := strings.SplitN(e.line, " ", 4)
			name, _ := strconv.Unquote(`"` + hexText(words[0]) + `"`)
			all = append(all, name+":"+words[1]+":"+words[3])
			q.after = entryName{e.made, words[0]}
		}
		if !got.more {
			return strings.Join(all, " ")
		}
	}
}

// hexText is what tokenOf was made of.
func hexText(token string) string {
	var text strings.Builder
	for digits := strings.TrimLeft(token, "0"); len(digits) >= 2; digits = digits[2:] {
		text.WriteString(`\x` + digits[:2])
	}
	return text.String()
}

// TestScriptNote: what comes twice is written once; entries change where they stand, and say if they are to stop.
func TestScriptNote(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		want := func(what, entries string) {
			r.t.Helper()
			for limit := range 3 {
				r.equal(what, r.journaled(limit+1), entries)
			}
			r.read()
		}
		want("nothing", "")
		bulk, said := r.notes("b", journalBegins, "", "0")
		r.equal("made", bulk, strconv.FormatInt(r.now, 10))
		r.equal("said", said, journalRuns)
		r.notes("a", journalDone, "", "10")
		r.noted("a", journalDone, "", "10", time.Millisecond) // its reply was lost
		want("of the same us", "b:runs:0 a:done:10")
		r.at(time.Second)
		r.notes("c", journalDone, "", "[2, 3]")
		r.at(time.Hour)
		r.noted("c", journalDone, "", "[2, 3]", time.Hour)
		want("an hour later", "c:done:[2, 3] b:runs:0 a:done:10")
		for range 2 {
			at, said := r.notes("b", journalRuns, bulk, "1")
			r.equal("stays", at, bulk)
			r.equal("goes on", said, journalRuns)
		}
		for _, before := range []journalWord{journalRuns, journalStop} {
			_, said = r.notes("b", journalStop, bulk, "")
			r.equal("asked to stop", said, before)
		}
		_, said = r.notes("b", journalRuns, bulk, "2")
		r.equal("is told", said, journalStop)
		want("asked", "c:done:[2, 3] b:stop:2 a:done:10")
		_, said = r.notes("b", journalBegins, bulk, "3")
		r.equal("continued", said, journalRuns)
		_, said = r.notes("b", journalDone, bulk, "4")
		r.equal("ended", said, journalDone)
		_, said = r.notes("b", journalStop, bulk, "")
		r.equal("stop what has ended", said, journalDone)
		_, said = r.notes("nobody", journalStop, bulk, "")
		r.equal("stop what is not there", said, journalWord(""))
		want("in the end", "c:done:[2, 3] b:done:4 a:done:10")
		r.do("DEL", r.keys.journal)
		r.notes("b", journalRuns, bulk, "5")
		want("written anew", "b:runs:5")
	})
}

// TestScriptNoteMost: the journal keeps the last 1,000 entries, for as long as the last one says, whatever is there.
func TestScriptNoteMost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for i := range 1010 {
			r.at(time.Duration(i/4) * time.Microsecond)
			r.notes(strconv.Itoa(i), journalDone, "", "{}")
		}
		r.equal("entries", r.cli.ZCard(ctxB, r.keys.journal).Val(), int64(1000))
		if ttl := r.cli.TTL(ctxB, r.keys.journal).Val(); ttl <= 0 || ttl > time.Hour {
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
		bulk := strconv.FormatInt(r.now-int64(time.Hour/time.Microsecond), 10) // of a call that still runs, and was pushed out
		if at, said := r.notes("b", journalRuns, bulk, "7"); at != bulk || said != journalRuns {
			r.t.Errorf("it was made at %s, want %s; %s", at, bulk, said)
		}
		if all := r.journaled(200); !strings.HasSuffix(all, " b:runs:7") || strings.Contains(all, " "+old+" ") ||
			len(strings.Fields(all)) != 1000 {
			r.t.Errorf("what runs is not among the 1,000: …%s", all[len(all)-40:])
		}
		if _, said := r.notes("b", journalStop, bulk, ""); said != journalRuns {
			r.t.Errorf("stopped: %q", said)
		}
		r.do("DEL", r.keys.journal)
		for i := range 30 { // each of 64 KB
			r.notes(strconv.Itoa(i), journalDone, "", strings.Repeat("x", 64<<10))
		}
		got, err := r.store.journal(ctxB, journalRequest{limit: 30})
		if err != nil || !got.more || len(got.entries) < 10 || len(got.entries) > 17 {
			r.t.Errorf("%d large entries on a page, %v", len(got.entries), err)
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
				c.r.notes(strconv.Itoa(i), journalDone, "", `"`+strings.Repeat("x", bytes)+`"`)
			}
		}
	}
	page := func(want int, q journalRequest) func() {
		return func() {
			got, err := c.r.store.journal(ctxB, q)
			if err != nil || len(got.entries) != want {
				c.r.t.Errorf("%d entries, want %d; %v", len(got.entries), want, err)
			}
		}
	}
	c.cost(t, []costsRow{
		{"nothing", entries(0, 0), page(0, journalRequest{limit: 50}), 1 + 1},
		{"few", entries(3, 1), page(3, journalRequest{limit: 50}), 1 + 1},
		{"a page of 15", entries(99, 1), page(15, journalRequest{limit: 15}), 1 + 1},
		{"a page of 200", entries(300, 1), page(200, journalRequest{limit: 200}), 1 + 13},
		{"large ones", entries(40, 64<<10), page(15, journalRequest{limit: 40}), 1 + 1},
		{"one", entries(9, 1), page(0, journalRequest{limit: 1, after: entryName{"5", tokenOf("x")}, alone: true}), 1 + 2},
	})
}

// TestScriptNoteRubbish: what another program has written there stops nothing.
func TestScriptNoteRubbish(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		members := append(rubbish, "0123456789abcdef runs 5", "0123456789abcdef runs x {}", "0123456789abcdef runs 5 {",
			"0123456789abcdef  5 {}", `0123456789abcdef runs 5 {"bulk":{},"n":-1}`)
		for i, member := range members {
			for _, score := range []string{"5", "+inf", "-inf", "1.5", strconv.FormatInt(r.now, 10)} {
				r.do("ZADD", r.keys.journal, score, member)
				r.do("ZADD", r.keys.journal, "1e300", member+"!")
				name := fmt.Sprint(i % 10)
				r.noted(name, journalDone, "", "{}", time.Second)
				at, _ := r.noted(name, journalDone, "", "{}", time.Second)
				r.notes(name, journalStop, at, "")
				for _, token := range []string{tokenOf(name), "0123456789abcdef"} {
					if _, err := r.store.journal(ctxB, journalRequest{limit: 1, after: entryName{"5", token}, alone: true}); err != nil {
						r.t.Errorf("%q: %v", member, err)
					}
				}
				m := NewMonitor(r.name, r.cli)
				pages := 0
				for cursor := ""; pages == 0 || cursor != ""; pages++ {
					page, err := m.journalPage(ctxB, 2, cursor)
					if err != nil || pages > 100 {
						r.t.Fatalf("%q at %s: page %d: %v", member, score, pages, err)
					}
					cursor = page.Next
				}
				r.do("DEL", r.keys.journal)
			}
		}
	})
}

// TestScriptNoteTaken: a process that another one has taken a call over from changes nothing, and is told; a repeat is not
// taken for another process.
func TestScriptNoteTaken(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		note := func(word journalWord, made, text, wrote string, tried time.Duration) journalAnswer {
			r.t.Helper()
			r.at(r.since(r.now) + time.Second)
			got, err := r.store.note(ctxB, &journalNote{word: word, token: tokenOf("a"), made: made, text: text,
				wrote: wrote, keep: time.Hour}, tried)
			r.equal("error", err, nil)
			return got
		}
		mine := note(journalBegins, "", "0", "", 0)
		mine = note(journalRuns, mine.made, "1", mine.wrote, 0)
		r.equal("goes on", mine.said, journalRuns)
		repeated := note(journalRuns, mine.made, "1", "5", time.Second) // its reply, with when it was written, was lost
		r.equal("repeated", repeated.said, journalRuns)
		r.equal("as written first", repeated.wrote, mine.wrote)
		r.equal("asked to stop", note(journalStop, mine.made, "", "", 0).said, journalRuns)
		mine = note(journalRuns, mine.made, "2", repeated.wrote, 0)
		r.equal("is told", mine.said, journalStop)
		other := note(journalBegins, mine.made, "3", "", 0)
		r.equal("the other", other.said, journalRuns)
		for _, word := range []journalWord{journalRuns, journalDone} {
			r.equal("taken", note(word, mine.made, "4", mine.wrote, 0).said, journalTaken)
		}
		r.equal("the entry", r.journaled(1), "a:runs:3")
		r.equal("the other goes on", note(journalDone, mine.made, "5", other.wrote, 0).said, journalDone)
		r.equal("the entry in the end", r.journaled(1), "a:done:5")
		one := note(journalBegins, mine.made, "6", "", 0)
		begins := func(text string, tried time.Duration) journalAnswer { // without a second between, even within one us
			r.t.Helper()
			got, err := r.store.note(ctxB, &journalNote{word: journalBegins, token: tokenOf("a"), made: mine.made, text: text,
				wrote: one.wrote, keep: time.Hour}, tried)
			r.equal("error", err, nil)
			return got
		}
		first := begins("7", 0)
		r.equal("the first of two who begin", first.said, journalRuns)
		if first.wrote == one.wrote {
			r.t.Errorf("two writes at %s", one.wrote)
		}
		for _, tried := range []time.Duration{0, time.Second} {
			r.equal("the second", begins("8", tried).said, journalTaken)
		}
		r.equal("the entry of the first", r.journaled(1), "a:runs:7")
		r.equal("asked to stop", note(journalStop, mine.made, "", "", 0).said, journalRuns)
		r.equal("a repeat after that", note(journalBegins, mine.made, "7", one.wrote, time.Second).said, journalStop)
		r.read()
	})
}
