package delayqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// finds is a whole search: what was found, by payload and where, and in how many calls.
func (f *fixture) finds(m *Monitor, text string, how Find) (all []string, calls int) {
	f.t.Helper()
	for cursor := ""; ; {
		got, err := m.Find(ctxB, text, how, cursor)
		f.must(err)
		for _, one := range got.Matches {
			all = append(all, one.Payload+" in "+one.In+one.Header)
		}
		calls++
		if how.Limit > 0 && len(got.Matches) > how.Limit || got.Looked > got.Total || got.Next == "" && got.Looked != got.Total {
			f.t.Fatalf("%q: %+v", text, got)
		}
		if cursor = got.Next; cursor == "" {
			return all, calls
		}
	}
}

func TestFind(t *testing.T) { onSharedServer(t, findsInEveryState) }

func findsInEveryState(f *fixture, m *Monitor) {
	if _, err := m.Find(ctxB, "x", Find{}, ""); !errors.Is(err, ErrNoQueue) {
		f.t.Errorf("in nothing: %v", err)
	}
	q := f.queue(nil)
	f.buried("dead one") // one after the other: they die in this order
	f.buried("dead two")
	pending := f.send(q, "pending needle", inAnHour, WithKey("needle")).ID
	f.send(q, "due", WithHeader("trace", "a needle b"), WithHeader("other", "x"))
	f.send(q, "the one "+pending, inAnHour)
	search := func(what, text string, how Find, calls int, want ...string) {
		f.t.Helper()
		got, n := f.finds(m, text, how)
		if !slices.Equal(got, want) || n != calls {
			f.t.Errorf("%s: %q in %d calls, want %q in %d", what, got, n, want, calls)
		}
	}
	search("a key, and elsewhere", "needle", Find{}, 2, "pending needle in key", "due in headertrace")
	search("an id, and elsewhere", pending, Find{}, 2, "pending needle in id", "the one "+pending+" in payload")
	// With a space, which is in no id: "ead" may be in one, and so in the payload that holds one.
	search("a text", "ead ", Find{}, 1, "dead one in key", "dead two in key")
	search("in a payload", "he one", Find{}, 1, "the one "+pending+" in payload")
	search("in an error", "no dead two", Find{}, 1, "dead two in error")
	search("the key of a dead one", "key of dead two", Find{States: []State{StateGarbage}}, 1, "dead two in key")
	search("no id", "01a0c447-4440-7c3e-9d41-6f0e8a2b4c55", Find{}, 1)
	search("a live one's key among the dead", "needle", Find{States: []State{StateGarbage}}, 1)
	search("one at a time", "e", Find{Limit: 1}, 6, "dead one in key", "dead two in key", "due in headertrace", "pending needle in key",
		"the one "+pending+" in payload")
	search("two looked at in a call", "ead ", Find{Messages: 2}, 3, "dead one in key", "dead two in key")
	search("little read in a call", "ead ", Find{Bytes: 1, Messages: 1}, 6, "dead one in key", "dead two in key")
	for what, call := range map[string]func() (*Found, error){
		"nothing":        func() (*Found, error) { return m.Find(ctxB, "", Find{}, "") },
		"nowhere":        func() (*Found, error) { return m.Find(ctxB, "x", Find{States: []State{StateGone}}, "") },
		"no cursor":      func() (*Found, error) { return m.Find(ctxB, "x", Find{}, "x") },
		"another cursor": func() (*Found, error) { return m.Find(ctxB, "x", Find{}, "eyJwIjoyMH0") },
	} {
		if got, err := call(); got == nil || !errors.Is(err, ErrBadOption) && !errors.Is(err, ErrBadCursor) {
			f.t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

// TestFindTellsNoPayload: who may not know payloads learns nothing from a guess, not how much was looked at either.
func TestFindTellsNoPayload(t *testing.T) { onSharedServer(t, findsNoPayload) }

func findsNoPayload(f *fixture, m *Monitor) {
	q := f.queue(nil)
	for range 5 {
		f.send(q, "card 4711", inAnHour, WithKey(uuid.NewString()), WithHeader("h", "v 4711"))
	}
	for _, how := range []Find{{NoPayload: true}, {NoPayload: true, Limit: 1}, {NoPayload: true, Messages: 2}} {
		for _, cursor := range []string{"", "eyJsIjoxLCJuIjo1fQ"} {
			right, err := m.Find(ctxB, "card 4711", how, cursor)
			f.must(err)
			wrong, err := m.Find(ctxB, "card 4712", how, cursor)
			f.must(err)
			if !reflect.DeepEqual(right, wrong) || len(right.Matches) > 0 {
				f.t.Errorf("%+v: a right guess tells %+v, a wrong one %+v", how, right, wrong)
			}
		}
	}
	if got, _ := f.finds(m, "v 4711", Find{NoPayload: true}); len(got) != 5 || got[0] != "card 4711 in headerh" {
		f.t.Errorf("%q", got)
	}
}

// TestFindIsCutOff: what was found until then is kept, and it goes on where it was.
func TestFindIsCutOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	const n = walkPage + 50
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i] = Outgoing{Payload: fmt.Sprint("m", i), Options: []MsgOption{WithDelay(time.Hour)}}
	}
	_, err := q.SendBatch(ctxB, batch)
	f.must(err)
	cli := f.client()
	ctx, cancel := context.WithCancel(ctxB)
	defer cancel()
	pages := 0
	hookOwn(t, cli, commandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Args()[1] == listScripts[StatePending].sha && len(cmd.Args()) > 3 && fmt.Sprint(cmd.Args()[7]) == fmt.Sprint(walkPage) {
			if pages++; pages == 2 {
				cancel()
				return context.Canceled
			}
		}
		return next(c, cmd)
	}))
	got, err := unhurriedMonitor(f.name, cli).Find(ctx, "m", Find{Limit: 500, States: []State{StatePending}}, "")
	if !errors.Is(err, context.Canceled) || len(got.Matches) != walkPage || got.Looked != walkPage || got.Total != n || got.Next == "" {
		t.Fatalf("%d found, %+v, %v", len(got.Matches), got, err)
	}
	rest, err := NewMonitor(f.name, f.cli).Find(ctxB, "m", Find{Limit: 500, States: []State{StatePending}}, got.Next)
	if err != nil || len(rest.Matches) != n-walkPage || rest.Next != "" || rest.Looked != n {
		t.Errorf("%d found, %v", len(rest.Matches), err)
	}
}

func TestFoldError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                           NoError,
		"timeout":                                    "timeout",
		"order 42 failed after 1.5s":                 "order # failed after #s",
		"dial tcp 10.0.0.1:6379: refused":            "dial tcp #: refused",
		"dial tcp 10.0.12.134:80: refused":           "dial tcp #: refused",
		`no user "ann \"x\" 7", sorry`:               `no user "…", sorry`,
		"can't open 'a b', won't":                    "can't open '…', won't",
		"key `k1` of order-42":                       "key `…` of order-#",
		`an open " quote 1`:                          `an open " quote #`,
		"01a0c447-4440-7c3e-9d41-6f0e8a2b4c55: gone": "#: gone",
		"request 7f3a9c21be and 0xc000123abc":        "request # and #",
		"charge ch1a2B3c4D5e6F7g8H declined":         "charge # declined",
		"at 2026-11-22T14:13:20Z":                    "at #-#-#T#Z",
		"feedback: deadline":                         "feedback: deadline",
		"main.go:42:7: sha256 no 1,000":              "main.go:#: sha# no #",
		"键 12 \xff":                                  "键 # \xff",
	} {
		if got := FoldError(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzFoldError(f *testing.F) {
	for _, text := range []string{"", "a 1 'b", `"\`, "`", "1.", "a-_1", "0x", "\x00\xff", strings.Repeat(`"'`, 3000)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		folded := FoldError(text)
		if folded == "" || len(folded) > 5*(4<<10)+len(NoError) || strings.ContainsAny(folded, "0123456789") && text != "" {
			t.Errorf("%q: %q", text, folded)
		}
	})
}

func TestErrorGroups(t *testing.T) { onSharedServer(t, groupsErrors) }

// groupsErrors: the groups of several calls are those of one, and each selects itself.
func groupsErrors(f *fixture, m *Monitor) {
	if _, err := m.ErrorGroups(ctxB, StateGarbage, Filter{}, 0, ""); !errors.Is(err, ErrNoQueue) {
		f.t.Errorf("of nothing: %v", err)
	}
	f.send(f.queue(nil), "other", inAnHour)
	if got, err := m.ErrorGroups(ctxB, StateGarbage, Filter{}, 0, ""); err != nil || len(got.Groups) != 0 || got.Next != "" {
		f.t.Errorf("of no garbage: %+v, %v", got, err)
	}
	ids := f.buried("card 1", "card 22", "stock", "card 333", "stock 'a'", "stock 'b 7'")
	whole, err := m.ErrorGroups(ctxB, StateGarbage, Filter{}, 0, "")
	f.must(err)
	var words []string
	for _, g := range whole.Groups {
		words = append(words, fmt.Sprint(g.Count, " ", g.Pattern))
		if last := f.status(m, g.ID); last.LastError != g.Error || !last.At.Equal(g.Last) || g.First.After(g.Last) ||
			!slices.Contains(ids, g.ID) {
			f.t.Errorf("%+v, of which the last is %+v", g, last)
		}
	}
	if want := []string{"3 skip retry: no card #", "2 skip retry: no stock '…'", "1 skip retry: no stock"}; !slices.Equal(words, want) ||
		whole.Looked != 6 || whole.Total != 6 || whole.Next != "" {
		f.t.Errorf("%q, %+v; want %q", words, whole, want)
	}
	parts := &ErrorGroups{}
	for cursor, calls := "", 0; calls == 0 || cursor != ""; calls++ {
		got, err := m.ErrorGroups(ctxB, StateGarbage, Filter{}, 4, cursor)
		f.must(err)
		parts.Merge(got)
		parts.Total, cursor = got.Total, got.Next
		if calls > 3 {
			f.t.Fatalf("%+v", got)
		}
	}
	if a, b := asJSON(f.t, whole), asJSON(f.t, parts); a != b {
		f.t.Errorf("in parts %s\nat once %s", b, a)
	}
	for _, latest := range []bool{false, true} {
		page, err := m.List(ctxB, StateGarbage, Filter{Limit: 1, LatestFirst: latest}, "")
		f.must(err)
		one, err := m.ErrorGroups(ctxB, StateGarbage, Filter{LatestFirst: latest}, 1, "")
		if err != nil || len(one.Groups) != 1 || one.Groups[0].ID != page.Messages[0].ID {
			f.t.Errorf("of one, the latest first %v: %+v, %v; the list begins with %+v", latest, one, err, page.Messages[0])
		}
	}
	got, err := m.BulkDelete(ctxB, Bulk{States: []State{StateGarbage},
		Filter: Filter{ErrorLike: whole.Groups[1].Pattern, Limit: 2}, DryRun: true})
	got, err = m.BulkCommit(ctxB, f.planned("a group", got, err, 2), nil)
	if err != nil || got.Done != 2 {
		f.t.Errorf("%+v, %v", got, err)
	}
	left, err := m.ErrorGroups(ctxB, StateGarbage, Filter{Contains: "stock"}, 0, "")
	if err != nil || len(left.Groups) != 1 || left.Groups[0] != whole.Groups[2] {
		f.t.Errorf("left: %+v, %v", left, err)
	}
	for what, call := range map[string]func() (*ErrorGroups, error){
		"of another state": func() (*ErrorGroups, error) { return m.ErrorGroups(ctxB, StatePending, Filter{}, 0, "") },
		"no cursor":        func() (*ErrorGroups, error) { return m.ErrorGroups(ctxB, StateRetry, Filter{}, 0, "x") },
		"another cursor":   func() (*ErrorGroups, error) { return m.ErrorGroups(ctxB, StateRetry, Filter{}, 0, "eyJwIjoyMH0") },
	} {
		if got, err := call(); got == nil || !errors.Is(err, ErrBadOption) && !errors.Is(err, ErrBadCursor) {
			f.t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func asJSON(t testing.TB, v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestErrorGroupsAreBounded: what goes beyond is counted.
func TestErrorGroupsAreBounded(t *testing.T) {
	t.Parallel()
	var g, more ErrorGroups
	for i := range maxGroups + 7 {
		g.add(ErrorGroup{Pattern: fmt.Sprint(i), Count: 1})
	}
	more.Others, more.Groups = 2, []ErrorGroup{{Pattern: "new", Count: 3}, {Pattern: "0", Count: 4}}
	g.Merge(&more)
	if len(g.Groups) != maxGroups || g.Others != 7+2+3 || g.Groups[0].Count != 5 {
		t.Errorf("%d groups, %d others, %+v", len(g.Groups), g.Others, g.Groups[0])
	}
}
