package userlog

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// lines is a handler that does what act says with each record, and then writes it.
type lines struct {
	slog.Handler
	act func(text string)
}

func (l lines) Handle(ctx context.Context, r slog.Record) error {
	l.act(r.Message)
	return l.Handler.Handle(ctx, r)
}

func (l lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lines{l.Handler.WithAttrs(attrs), l.act}
}

func (l lines) WithGroup(name string) slog.Handler { return lines{l.Handler.WithGroup(name), l.act} }

func newLog(act func(text string)) (*slog.Logger, *testkit.Buffer) {
	out := new(testkit.Buffer)
	text := slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	log := Contain(slog.New(lines{text, act}))
	log.Handler().(*handler).owner.wait = testkit.Patience // a slow machine is no handler that hangs
	return log, out
}

// TestWritten: a record is written when the call returns, with its attributes and groups, if the handler wants it.
func TestWritten(t *testing.T) {
	log, out := newLog(func(string) {})
	log.With("queue", "q").WithGroup("g").With("a", 1).Info("one", "b", 2)
	log.Debug("not wanted")
	log.Error("two")
	if got, want := out.String(), "level=INFO msg=one queue=q g.a=1 g.b=2\nlevel=ERROR msg=two\n"; got != want {
		t.Errorf("written:\n%s", got)
	}
	if Contain(log) != log {
		t.Error("contained twice")
	}
}

// TestContained: a panic, and the end of its goroutine, cost the handler one record, which is an error.
func TestContained(t *testing.T) {
	log, out := newLog(func(text string) {
		switch text {
		case "panic":
			panic("in the handler")
		case "end":
			runtime.Goexit()
		}
	})
	for _, text := range []string{"panic", "end"} {
		r := slog.NewRecord(time.Now(), slog.LevelInfo, text, 0)
		if err := log.Handler().Handle(context.Background(), r); err == nil {
			t.Errorf("%s: no error", text)
		}
		log.Info("after " + text)
	}
	if got := out.String(); got != "level=INFO msg=\"after panic\"\nlevel=INFO msg=\"after end\"\n" {
		t.Errorf("written:\n%s", got)
	}
}

// spoiled panics, or ends its goroutine, in all but Handle.
type spoiled struct {
	slog.Handler
	spoil func()
}

func (s spoiled) WithAttrs([]slog.Attr) slog.Handler { s.spoil(); return nil }

func (s spoiled) WithGroup(string) slog.Handler { s.spoil(); return nil }

// TestWithoutAttributes: a handler that makes no other one out of itself is used as it is.
func TestWithoutAttributes(t *testing.T) {
	for name, spoil := range map[string]func(){
		"panics": func() { panic("no") }, "ends": runtime.Goexit, "nil": func() {}} {
		out := new(testkit.Buffer)
		log := Contain(slog.New(spoiled{slog.NewTextHandler(out, nil), spoil})).With("a", 1).WithGroup("g")
		testkit.Until(t, name+": it is written", func() bool { // the first ones may be lost
			log.Info("written")
			return strings.Contains(out.String(), "msg=written")
		})
	}
}

// TestHangs: a handler that hangs is waited for once. What waits for it is written in order when it goes on, and what
// is too much is counted.
func TestHangs(t *testing.T) {
	goOn := make(chan struct{})
	log, out := newLog(func(string) { <-goOn })
	o := log.Handler().(*handler).owner
	o.wait = time.Millisecond
	log.Info("first")
	if !o.hangs {
		t.Fatal("nobody has noticed")
	}
	o.wait = testkit.Patience // from now on nobody waits at all
	for n := range maxRecords {
		log.Info(fmt.Sprint("waits ", n))
	}
	r := slog.NewRecord(time.Now(), slog.LevelInfo, "too much", 0)
	if err := log.Handler().Handle(context.Background(), r); err == nil {
		t.Error("a lost record is no error")
	}
	close(goOn)
	testkit.Until(t, "all are written", func() bool { return strings.Contains(out.String(), "waits 999") })
	log.Info("last")
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if n := len(got); n != maxRecords+3 || got[0] != "level=INFO msg=first" || got[n-1] != "level=INFO msg=last" ||
		!strings.HasSuffix(got[1], "records=1") || !strings.Contains(got[2], "waits 0") {
		t.Errorf("%d lines, %q", n, got[:3])
	}
}

// TestCallsBack: a handler may log by the same logger.
func TestCallsBack(t *testing.T) {
	var log *slog.Logger
	log, out := newLog(func(text string) {
		if text == "outer" {
			log.Info("inner")
		}
	})
	log.Handler().(*handler).owner.wait = time.Millisecond
	log.Info("outer")
	testkit.Until(t, "it is written", func() bool { return strings.Contains(out.String(), "inner") })
}
