package ops

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

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// finds is a whole search: what was found, by payload and where, and in how many calls.
func finds(f *face.Fixture, m *Queue, text string, how Find) (all []string, calls int) {
	f.T.Helper()
	for cursor := ""; ; {
		got, err := m.Find(queuetest.CtxB, text, how, cursor)
		f.Must(err)
		for _, one := range got.Matches {
			all = append(all, one.Payload+" in "+one.In+one.Header)
		}
		calls++
		if how.Limit > 0 && len(got.Matches) > how.Limit || got.Looked > got.Total || got.Next == "" &&
			got.Looked != got.Total {
			f.T.Fatalf("%q: %+v", text, got)
		}
		if cursor = got.Next; cursor == "" {
			return all, calls
		}
	}
}

func TestFind(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	buriedIn(f, "dead one") // one after the other: they die in this order
	buriedIn(f, "dead two")
	pending := f.Send(q, "pending needle", face.InAnHour, delayqueue.WithKey("needle")).ID
	f.Send(q, "due", delayqueue.WithHeader("trace", "a needle b"), delayqueue.WithHeader("other", "x"))
	f.Send(q, "the one "+pending, face.InAnHour)
	search := func(what, text string, how Find, calls int, want ...string) {
		t.Helper()
		got, n := finds(f, m, text, how)
		if !slices.Equal(got, want) || n != calls {
			t.Errorf("%s: %q in %d calls, want %q in %d", what, got, n, want, calls)
		}
	}
	search("a key, and elsewhere", "needle", Find{}, 2, "pending needle in key", "due in headertrace")
	search("an id, and elsewhere", pending, Find{}, 2, "pending needle in id", "the one "+pending+" in payload")
	// With a space, which is in no id: "ead" may be in one, and so in the payload that holds one.
	search("a text", "ead ", Find{}, 1, "dead one in key", "dead two in key")
	search("a header with its name", "trace=a need", Find{}, 1, "due in headertrace")
	search("the name of a header alone", "trace", Find{}, 1)
	search("another header with this value", "other=a", Find{}, 1)
	search("in a payload", "he one", Find{}, 1, "the one "+pending+" in payload")
	search("in an error", "no dead two", Find{}, 1, "dead two in error")
	search("the key of a dead one", "key of dead two", Find{States: []delayqueue.State{delayqueue.StateGarbage}}, 1,
		"dead two in key")
	search("no id", "01a0c447-4440-7c3e-9d41-6f0e8a2b4c55", Find{}, 1)
	search("a live one's key among the dead", "needle", Find{States: []delayqueue.State{delayqueue.StateGarbage}}, 1)
	search("one at a time", "e", Find{Limit: 1}, 6, "dead one in key", "dead two in key", "due in headertrace",
		"pending needle in key",
		"the one "+pending+" in payload")
	search("two looked at in a call", "ead ", Find{Messages: 2}, 3, "dead one in key", "dead two in key")
	only := Find{Filter: Filter{Headers: map[string]string{"trace": "a needle b"}}}
	search("a header", "", only, 1, "due in ")
	search("a header, and a text", "x", only, 1, "due in headerother")
	search("another text", "y ", only, 1)
	search("a part of a header", "", Find{Filter: Filter{Headers: map[string]string{"trace": "a needle"}}}, 1)
	search("a key", "", Find{Filter: Filter{Key: "needle"}}, 2, "pending needle in key")
	search("a part of a key", "", Find{Filter: Filter{Key: "needl"}}, 1)
	search("the key of a dead one alone", "", Find{Filter: Filter{Key: "key of dead one"}}, 1, "dead one in ")
	search("a key with other things", "", Find{Filter: Filter{Key: "needle", Error: "x"}}, 1)
	search("a time", "", Find{Filter: Filter{From: time.Now().Add(30 * time.Minute)}}, 1, "pending needle in ",
		"the one "+pending+" in ")
	dead := []delayqueue.State{delayqueue.StateGarbage}
	search("a state", "", Find{States: dead}, 1, "dead one in ", "dead two in ")
	search("the latest first", "", Find{States: dead, Filter: Filter{LatestFirst: true}}, 1, "dead two in ",
		"dead one in ")
	search("little read in a call", "ead ", Find{Bytes: 1, Messages: 1}, 6, "dead one in key", "dead two in key")
	f.Send(q, "counts", face.InAnHour, delayqueue.WithCounts("a total"))
	search("a key that it counts for", "a total", Find{}, 1, "counts in counts")
	search("a part of that", "a tota", Find{}, 1)
	refused(t, map[string]error{
		"nothing":        refusal(m.Find(queuetest.CtxB, "", Find{}, "")),
		"nowhere":        refusal(m.Find(queuetest.CtxB, "x", Find{States: []delayqueue.State{delayqueue.StateGone}}, "")),
		"no cursor":      refusal(m.Find(queuetest.CtxB, "x", Find{}, "x")),
		"another cursor": refusal(m.Find(queuetest.CtxB, "x", Find{}, "eyJwIjoyMH0")),
		"a score NaN":    refusal(m.Find(queuetest.CtxB, "x", Find{}, "eyJzIjoibmFuIn0")),
	})
}

// refusal is the error of a call that has a result all the same.
func refusal[T any](got *T, err error) error {
	if got == nil {
		return fmt.Errorf("without a result: %v", err)
	}
	return err
}

// refused wants calls to be refused for what they were told.
func refused(t testing.TB, errs map[string]error) {
	t.Helper()
	for what, err := range errs {
		if !errors.Is(err, delayqueue.ErrBadOption) && !errors.Is(err, ErrBadCursor) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestFindTellsNoPayload: who may not know payloads learns nothing from a guess, not how much was looked at either.
func TestFindTellsNoPayload(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	for range 5 {
		f.Send(q, "card 4711", face.InAnHour, delayqueue.WithKey(uuid.NewString()), delayqueue.WithHeader("h", "v 4711"))
	}
	for _, how := range []Find{{NoPayload: true}, {NoPayload: true, Limit: 1}, {NoPayload: true, Messages: 2}} {
		for _, cursor := range []string{"", "eyJsIjoxLCJuIjo1fQ"} {
			right, err := m.Find(queuetest.CtxB, "card 4711", how, cursor)
			f.Must(err)
			wrong, err := m.Find(queuetest.CtxB, "card 4712", how, cursor)
			f.Must(err)
			if !reflect.DeepEqual(right, wrong) || len(right.Matches) > 0 {
				t.Errorf("%+v: a right guess tells %+v, a wrong one %+v", how, right, wrong)
			}
		}
	}
	if got, _ := finds(f, m, "v 4711", Find{NoPayload: true}); len(got) != 5 || got[0] != "card 4711 in headerh" {
		t.Errorf("%q", got)
	}
}

// TestFindIsCutOff: what was found until then is kept, and it goes on where it was.
func TestFindIsCutOff(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	const n = walkPage + 50
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: fmt.Sprint("m", i),
			Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour)}}
	}
	f.Must(queuetest.Failure(q.SendBatch(queuetest.CtxB, batch)))
	cli := f.Client()
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	defer cancel()
	pages := 0
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Args()[1] == script.ListScripts["pending"].SHA && len(cmd.Args()) > 3 &&
				fmt.Sprint(cmd.Args()[8]) == fmt.Sprint(walkPage) {
				if pages++; pages == 2 {
					cancel()
					return context.Canceled
				}
			}
			return next(c, cmd)
		})))
	got, err := Of(delayqueue.NewMonitor(f.Name, cli)).Find(ctx, "m",
		Find{Limit: 500, States: []delayqueue.State{delayqueue.StatePending}}, "")
	if !errors.Is(err, context.Canceled) || len(got.Matches) != walkPage || got.Looked != walkPage || got.Total != n ||
		got.Next == "" {
		t.Fatalf("%d found, %+v, %v", len(got.Matches), got, err)
	}
	rest, err := Of(delayqueue.NewMonitor(f.Name, f.Cli)).Find(queuetest.CtxB, "m",
		Find{Limit: 500, States: []delayqueue.State{delayqueue.StatePending}}, got.Next)
	if err != nil || len(rest.Matches) != n-walkPage || rest.Next != "" || rest.Looked != n {
		t.Errorf("%d found, %v", len(rest.Matches), err)
	}
}

func TestFoldError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                           noError,
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
		"order-7f3a9c21be, pi_3Nk4Lx2eZvKYlo2C":      "order-#, pi_#",
		"at 2026-11-22T14:13:20Z":                    "at #-#-#T#Z",
		"feedback: deadline":                         "feedback: deadline",
		"main.go:42:7: sha256 no 1,000":              "main.go:#: sha# no #",
		"键 12 \xff":                                  "键 # \xff",
		" two\nlines\tand \u00a0 blanks\x00 ":        "two lines and blanks",
		"\r\n":                                       noError,
		"from 2001:db8::d:1: refused":                "from #: refused",
		"from [fe80::1a:1]:80, std::bad, ::1":        "from [#]:#, std::bad, #",
		"at 12:30:45: add:bad:cafe":                  "at #: add:bad:cafe",
		"at 12:30:45.678 from ::ffff:10.0.0.1: no":   "at # from #: no",
		`{\"code\":\"E1\"} 'open`:                    `{\"code\":\"E#\"} 'open`,
		"'abc'12":                                    "'abc'#",
		"smtp 550: user7@example.com":                "smtp 550: user#@example.com",
		"SMTP: 421 5.7.0, code=404, status_code 503": "SMTP: 421 #, code=404, status_code 503",
		"HTTP/1.1 503 of https 404, HTTP/2 500 1":    "HTTP/# 503 of https 404, HTTP/# 500 #",
		"HTTP/# 503, status 99, code 1062, code 600": "HTTP/# 503, status …, code …, code …",
		"http404, decode 404, code 404ms, smtp x 42": "http#, decode #, code …ms, smtp x #",
		"code 7f3a9c21be, Code: #, status=":          "code …, Code: …, status=",
	} {
		if got := FoldError(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestPatternsOfStatusCodes: a pattern selects its group alone, and one with # for status codes those of all codes, as
// before the codes were kept.
func TestPatternsOfStatusCodes(t *testing.T) {
	t.Parallel()
	texts := []string{"smtp 550: user 7", "smtp 421: user 8", "smtp 5: user 9", "user 10"}
	for pattern, want := range map[string][]string{"smtp #: user #": texts[:3], "user #": texts[3:],
		"smtp 550: user #": texts[:1], "smtp 421: user #": texts[1:2], "smtp …: user #": texts[2:3]} {
		var got []string
		for _, text := range texts {
			if f := (Filter{ErrorLike: pattern}); f.matches(&MessageStatus{LastError: text}) {
				got = append(got, text)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q selects %q, want %q", pattern, got, want)
		}
	}
}

func FuzzFoldError(f *testing.F) {
	for _, text := range []string{"", "a 1 'b", `"\`, "`", "1.", "a-_1", "0x", "\x00\xff", strings.Repeat(`"'`, 3000)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		folded := FoldError(text)
		if folded == "" || len(folded) > 5*(4<<10)+len(noError) || strings.ContainsAny(foldError(text, false), "0123456789") {
			t.Errorf("%q: %q", text, folded)
		}
	})
}

// TestErrorGroups: the groups of several calls are those of one, and each selects itself.
func TestErrorGroups(t *testing.T) {
	f, m := newQueue(t)
	f.Send(f.Queue(nil), "other", face.InAnHour)
	if got, err := m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 0, ""); err != nil ||
		len(got.Groups) != 0 || got.Next != "" {
		t.Errorf("of no garbage: %+v, %v", got, err)
	}
	ids := buriedIn(f, "card 1", "card 22", "stock", "card 333", "stock 'a'", "stock 'b 7'")
	whole, err := m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 0, "")
	f.Must(err)
	var words []string
	for _, g := range whole.Groups {
		words = append(words, fmt.Sprint(g.Count, " ", g.Pattern))
		if last := statusInQueue(f, m, g.ID); last.LastError != g.Error || !last.At.Equal(g.Last) || g.First.After(g.Last) ||
			!slices.Contains(ids, g.ID) {
			t.Errorf("%+v, of which the last is %+v", g, last)
		}
	}
	if want := []string{"3 skip retry: no card #", "2 skip retry: no stock '…'",
		"1 skip retry: no stock"}; !slices.Equal(words, want) ||
		whole.Looked != 6 || whole.Total != 6 || whole.Next != "" {
		t.Errorf("%q, %+v; want %q", words, whole, want)
	}
	parts := &ErrorGroups{}
	for cursor, calls := "", 0; calls == 0 || cursor != ""; calls++ {
		got, err := m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 4, cursor)
		f.Must(err)
		parts.Merge(got)
		parts.Total, cursor = got.Total, got.Next
		if calls > 3 {
			t.Fatalf("%+v", got)
		}
	}
	if a, b := asJSON(t, whole), asJSON(t, parts); a != b {
		t.Errorf("in parts %s\nat once %s", b, a)
	}
	for _, latest := range []bool{false, true} {
		page, err := m.List(queuetest.CtxB, delayqueue.StateGarbage, Filter{Limit: 1, LatestFirst: latest}, "")
		f.Must(err)
		one, err := m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{LatestFirst: latest}, 1, "")
		if err != nil || len(one.Groups) != 1 || one.Groups[0].ID != page.Messages[0].ID {
			t.Errorf("of one, the latest first %v: %+v, %v; the list begins with %+v", latest, one, err, page.Messages[0])
		}
	}
	got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateGarbage},
		Filter: Filter{ErrorLike: whole.Groups[1].Pattern, Limit: 2}})
	if err != nil || got.Done != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	left, err := m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{Contains: "stock"}, 0, "")
	if err != nil || len(left.Groups) != 1 || left.Groups[0] != whole.Groups[2] {
		t.Errorf("left: %+v, %v", left, err)
	}
	refused(t, map[string]error{
		"of another state": refusal(m.ErrorGroups(queuetest.CtxB, delayqueue.StatePending, Filter{}, 0, "")),
		"no cursor":        refusal(m.ErrorGroups(queuetest.CtxB, delayqueue.StateRetry, Filter{}, 0, "x")),
		"another cursor":   refusal(m.ErrorGroups(queuetest.CtxB, delayqueue.StateRetry, Filter{}, 0, "eyJwIjoyMH0")),
		"a score NaN":      refusal(m.ErrorGroups(queuetest.CtxB, delayqueue.StateRetry, Filter{}, 0, "eyJzIjoibmFuIn0")),
	})
}

func asJSON(t testing.TB, v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	queuetest.Must(t, err)
	return string(text)
}

// TestLargeGroupsStay: groups that stand behind thousands of others are counted as they are, by one call and by many,
// and what goes beyond the bound is counted.
func TestLargeGroupsStay(t *testing.T) {
	f, m := newQueue(t)
	const large, small = 600, 2 * maxGroups // three large groups, and then as many errors of one message each
	sent := f.Send(f.Queue(nil), "x").ID
	text, err := f.Cli.HGet(queuetest.CtxB, f.KeyOf(sent, "msg"), sent).Result()
	f.Must(err)
	f.Must(m.Delete(queuetest.CtxB, sent))
	pipe, keys := f.Cli.Pipeline(), map[string]bool{}
	for i := range 3*large + small {
		at, why := time.Now().Add(-2*time.Hour), fmt.Sprintf("order %d: %c", i, 'a'+rune(i%3))
		if i >= 3*large {
			word := strings.Map(func(d rune) rune { return d - '0' + 'a' }, fmt.Sprint(i)) // no number is folded
			at, why = time.Now().Add(-time.Minute), "no "+word
		}
		us, id := at.UnixMicro()+int64(i), fmt.Sprintf("01a2064a-88dc-7242-b397-%012d", i)
		pipe.ZAdd(queuetest.CtxB, f.KeyOf(id, "garbage"), redis.Z{Score: float64(us), Member: id})
		pipe.HSet(queuetest.CtxB, f.KeyOf(id, "msg"), id, text)
		pipe.HSet(queuetest.CtxB, f.KeyOf(id, "fail"), id, fmt.Sprint("2 1 0 ", us, " ", why))
		keys[f.KeyOf(id, "garbage")], keys[f.KeyOf(id, "msg")], keys[f.KeyOf(id, "fail")] = true, true, true
	}
	defer func() { // no book knows of them
		for key := range keys {
			do(f, "DEL", key)
		}
	}()
	f.Must(queuetest.Failure(pipe.Exec(queuetest.CtxB)))
	for budget, latest := range map[int]bool{700: true, 100_000: false} {
		all := &ErrorGroups{}
		for n := 0; n == 0 || all.Next != ""; n++ {
			got, err := m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{LatestFirst: latest}, budget, all.Next)
			f.Must(err)
			all.Merge(got)
		}
		sum := all.Others
		for _, g := range all.Groups {
			sum += g.Count
		}
		if sum != 3*large+small || len(all.Groups) != maxGroups {
			t.Fatalf("%d messages, %d groups", sum, len(all.Groups))
		}
		for i, g := range all.Groups[:4] {
			if i < 3 && (g.Pattern != "order #: "+string(rune('a'+i)) || g.Count != large || g.LastHour != 0) ||
				i == 3 && (g.Count != 1 || g.LastHour != 1) {
				t.Errorf("latest first %v, in calls of %d: %+v", latest, budget, g)
			}
		}
	}
}
