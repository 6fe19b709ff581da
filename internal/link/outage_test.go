package link

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestOutageLog: an outage is in the log once, however many calls fail, and it is over when all of them work again.
func TestOutageLog(t *testing.T) {
	log := &queuetest.LogBuffer{}
	o := &Outage{Log: slog.New(slog.NewTextHandler(log, nil))}
	long, soon := time.Now().Add(-time.Hour), time.Now().Add(time.Hour) // what began in the future has not lasted for long
	for i, step := range []struct {
		call         string
		begun        time.Time
		err          error
		begins, ends int // lines of the log from here on
		failing      bool
	}{
		{"fetch", soon, queuetest.ErrBoom, 0, 0, true},
		{"fetch", long, queuetest.ErrBoom, 0, 0, true}, // it counts from the first failure
		{"fetch", soon, nil, 0, 0, false},
		{"fetch", long, queuetest.ErrBoom, 0, 0, false}, // another attempt has got through since it began
		{"extend", long, queuetest.ErrBoom, 1, 0, true},
		{"settle", long, io.EOF, 1, 0, true},
		{"extend", long, nil, 1, 0, true},
		{"fetch", soon, nil, 1, 0, true},
		{"settle", long, nil, 1, 1, false},
		{"settle", long, nil, 1, 1, false},
		{"settle", long, io.EOF, 1, 1, false},
		{"send", long, io.EOF, 2, 1, true},
	} {
		o.Report(step.call, "", step.begun, step.err)
		if begins, ends := log.Count("cannot work with Redis"),
			log.Count("working with Redis again"); begins != step.begins || ends != step.ends {
			t.Errorf("step %d: %d and %d lines, want %d and %d", i, begins, ends, step.begins, step.ends)
		}
		if cause := o.Cause(""); (cause != nil) != step.failing || o.Cause("another shard") != nil {
			t.Errorf("step %d: the cause is %v", i, cause)
		}
	}
}

// TestOutageAfterAGap: a send that failed once and was given up does not make an outage of one that fails hours later.
func TestOutageAfterAGap(t *testing.T) {
	log := new(queuetest.LogBuffer)
	o := &Outage{Log: slog.New(slog.NewTextHandler(log, nil))}
	fails := func(what string, since, last, begun time.Duration, outages int) {
		t.Helper()
		o.mu.Lock()
		o.failing = map[kind]failing{{call: "send"}: {since: time.Now().Add(since), last: time.Now().Add(last)}}
		o.mu.Unlock()
		o.Report("send", "", time.Now().Add(begun), queuetest.ErrBoom)
		if n := log.Count("cannot work with Redis", "call=send"); n != outages {
			t.Errorf("%s: %d outages", what, n)
		}
	}
	o.Report("send", "", time.Now(), nil)
	fails("hours after it", -3*time.Hour, -3*time.Hour, time.Hour, 0) // it began in the future: no machine is slow enough
	fails("at once", -time.Hour, 0, time.Second, 1)
}
