package typed

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

func nothing[T any](context.Context, T, *delayqueue.Message) error { return nil }

// of makes a message as a handler gets it.
func of(kind, payload string) *delayqueue.Message {
	return &delayqueue.Message{ID: "id", Payload: payload, Headers: map[string]string{Header: kind}, Due: time.Now(),
		Delivery: leastTries}
}

func quiet() *Mux { return NewMux().WithLogger(slog.New(slog.DiscardHandler)) }

func TestNamesAreExact(t *testing.T) {
	t.Parallel()
	var got []string
	m := quiet()
	for _, name := range []string{"order", "order:close", "Order", " order", "*"} {
		Handle(m, Kind[int](name), func(context.Context, int, *delayqueue.Message) error {
			got = append(got, name)
			return nil
		})
	}
	for _, name := range []string{"order:close", "order", "Order", " order", "*"} {
		if err := m.Handler(t.Context(), of(name, "1")); err != nil || got[len(got)-1] != name {
			t.Errorf("%q went to %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "order:", "order:close:now", "ORDER", "order ", "o", ".*"} {
		if err := m.Handler(t.Context(), of(name, "1")); !errors.Is(err, ErrUnknownKind) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if len(got) != 5 {
		t.Error(got)
	}
}

func TestPanicsOfAMux(t *testing.T) {
	t.Parallel()
	m := quiet()
	Handle(m, closeOrder, nothing)
	m.HandleUntyped(func(context.Context, *delayqueue.Message) error { return nil })
	for want, f := range map[string]func(){
		`typed: kind "close-order" has a handler already: a Mux has one for each kind`: func() {
			Handle(m, closeOrder, nothing)
		},
		`typed: the handler of kind "a" must not be nil`: func() {
			Handle(m, Kind[int]("a"), nil)
		},
		`typed: the handler of kind "b" must not be nil`: func() {
			HandleGroup(m, Kind[int]("b"), nil)
		},
		`typed: the handler of kind "c" must not be nil`: func() {
			HandleCall(m, CallKind[int, int]("c"), nil)
		},
		"typed: messages without a kind have a handler already": func() {
			m.HandleUntyped(func(context.Context, *delayqueue.Message) error { return nil })
		},
		"typed: HandleUntyped: the handler must not be nil": func() {
			NewMux().HandleUntyped(nil)
		},
		"typed: WithLogger: the logger must not be nil; for silence use slog.DiscardHandler": func() {
			NewMux().WithLogger(nil)
		},
		"typed: this kind was not made by typed.Kind or typed.CallKind": func() {
			Handle(m, KindOf[int]{}, nothing)
		},
	} {
		panics(t, want, f)
	}
	if err := m.Handler(t.Context(), of("close-order", "{}")); err != nil {
		t.Error(err) // the panics left it as it was
	}
}

// A Mux may learn more while it is at work.
func TestMuxIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var m Mux // the zero value has no handlers
	m.WithLogger(slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for i := range 50 {
		name := fmt.Sprint("kind", i)
		all.Go(func() { Handle(&m, Kind[int](name), nothing) })
		all.Go(func() {
			if err := m.Handler(context.Background(), of(name, "1")); err != nil && !errors.Is(err, delayqueue.ErrSnoozed) {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// An unknown kind is given up on only if both the message and the meeting are an hour old, and it came often.
func TestUnknownForAnHour(t *testing.T) {
	t.Parallel()
	base := time.Now()
	for _, tt := range []struct {
		name     string
		due, now time.Duration // since the meeting
		over     bool
		tries    int
	}{
		{"at once", 0, 0, false, 60},
		{"before an hour", 0, time.Hour - 1, false, 60},
		{"after an hour", 0, time.Hour, true, 60},
		{"waited for consumers for a day", -24 * time.Hour, 0, false, 60},
		{"waited for consumers for a day, and an hour here", -24 * time.Hour, time.Hour, true, 60},
		{"sent when its kind was long unknown", time.Hour, 2*time.Hour - 1, false, 60},
		{"the same, an hour later", time.Hour, 2 * time.Hour, true, 60},
		{"waited for a long retry", 0, 2 * time.Hour, false, 59},
		{"met again after a day: of another release", -time.Hour, 24*time.Hour + 1, false, 60},
	} {
		m := quiet()
		if err := m.unknown("new", of("new", ""), base); !errors.Is(err, delayqueue.ErrSnoozed) {
			t.Fatal(err)
		}
		msg := of("new", "")
		msg.Due, msg.Delivery = base.Add(tt.due), tt.tries
		err := m.unknown("new", msg, base.Add(tt.now))
		if !errors.Is(err, ErrUnknownKind) || errors.Is(err, delayqueue.ErrSkipRetry) != tt.over ||
			errors.Is(err, delayqueue.ErrSnoozed) == tt.over {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Names come from Redis: however many there are, they take little room, and each message has its hour.
func TestMeetingsAreBounded(t *testing.T) {
	t.Parallel()
	m, now := quiet(), time.Now()
	old := of("x", "")
	for i := range 3 * maxMeetings {
		_ = m.unknown(fmt.Sprint(i), old, now)
	}
	if n := len(m.met); n > maxMeetings+1 {
		t.Errorf("%d kinds are remembered", n)
	}
	if err := m.unknown("one more", old, now.Add(2*time.Hour)); !errors.Is(err, delayqueue.ErrSkipRetry) {
		t.Error(err)
	}
	_ = m.unknown("a day later", old, now.Add(49*time.Hour))
	if n := len(m.met); n > 2 {
		t.Errorf("%d kinds are remembered a day later", n)
	}
	_ = m.unknown(strings.Repeat("long", 1<<20), old, now)
	for kind := range m.met {
		if len(kind) > longestName {
			t.Errorf("%d bytes of a name are remembered", len(kind))
		}
	}
	if err := m.unknown(strings.Repeat("long", 1<<20), old, now); len(err.Error()) > 500 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

type badLog struct{ slog.Handler }

func (badLog) Enabled(context.Context, slog.Level) bool { panic("log") }

// The log hears of each kind once, and may do what it likes.
func TestUnknownKindsAreLogged(t *testing.T) {
	t.Parallel()
	log := &testkit.Buffer{}
	m := NewMux().WithLogger(slog.New(slog.NewTextHandler(log, nil)))
	for range 3 {
		for _, kind := range []string{"new", "newer", ""} {
			_ = m.Handler(t.Context(), of(kind, ""))
		}
	}
	if n := strings.Count(log.String(), "no handler knows this kind"); n != 3 {
		t.Errorf("%d lines:\n%s", n, log)
	}
	testkit.Has(t, log.String(), "kind=newer ", `kind="" `, "message.id=id")
	if err := NewMux().WithLogger(slog.New(badLog{})).Handler(t.Context(), of("new", "")); !errors.Is(err,
		delayqueue.ErrSnoozed) {
		t.Error(err)
	}
}

// What doc.go says that this package may import.
func TestImports(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(".")
	testkit.Must(t, err)
	n := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.ImportsOnly)
		testkit.Must(t, err)
		for _, one := range parsed.Imports {
			n++
			path := strings.Trim(one.Path.Value, `"`)
			if strings.Contains(strings.Split(path, "/")[0], ".") && path != "github.com/go-delayqueue/delayqueue" &&
				path != "github.com/go-delayqueue/delayqueue/internal/clock" {
				t.Errorf("%s imports %s", file.Name(), path)
			}
		}
	}
	if n == 0 {
		t.Error("no imports were looked at")
	}
}

// Of a group each part is handled, and what does not decode is said with its number. What a handler returns is returned
// as it is.
func TestGroups(t *testing.T) {
	t.Parallel()
	var each []int
	var sums [][]int
	fail := errors.New("not this one")
	m := quiet()
	Handle(m, Kind[int]("each"), func(_ context.Context, v int, _ *delayqueue.Message) error {
		if each = append(each, v); v == 13 {
			return fail
		}
		return nil
	})
	HandleGroup(m, Kind[int]("sum"), func(_ context.Context, all []int, _ *delayqueue.Message) error {
		sums = append(sums, all)
		return nil
	})
	group := func(kind string, parts ...string) error {
		msg := of(kind, parts[0])
		msg.Parts = parts
		return m.Handler(t.Context(), msg)
	}
	if err := group("each", "1", "2", "3"); err != nil || !slices.Equal(each, []int{1, 2, 3}) {
		t.Error(each, err)
	}
	if err := m.Handler(t.Context(), of("each", "13")); err != fail {
		t.Error(err)
	}
	each = each[:3]
	if err := group("each", "12", "13", "14"); err != fail || !slices.Equal(each[3:], []int{12, 13}) {
		t.Error(each, err)
	}
	if err := errors.Join(group("sum", "1", "2", "3"), m.Handler(t.Context(), of("sum", "4"))); err != nil ||
		fmt.Sprint(sums) != "[[1 2 3] [4]]" {
		t.Error(sums, err)
	}
	each, sums = nil, nil
	for _, kind := range []string{"each", "sum"} {
		err := group(kind, "1", "2", "x")
		if !errors.Is(err, delayqueue.ErrSkipRetry) || !errors.Is(err, ErrCodec) || each != nil || sums != nil {
			t.Error(kind, err, each, sums)
		}
		testkit.Has(t, fmt.Sprint(err), `kind "`+kind+`"`, "part 3 of 3, of 1 bytes", "at byte 1")
	}
}

// A handler of one part after the other is not called any more when its delivery is over.
func TestGroupThatIsOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	n := 0
	m := quiet()
	Handle(m, Kind[int]("each"), func(context.Context, int, *delayqueue.Message) error {
		n++
		cancel(over)
		return nil
	})
	msg := of("each", "1")
	msg.Parts = []string{"1", "2"}
	if err := m.Handler(ctx, msg); err != over || n != 1 {
		t.Error(n, err)
	}
}
