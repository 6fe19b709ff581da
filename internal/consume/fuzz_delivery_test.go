package consume

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// FuzzDelivery: whatever a message and its record hold, what follows from them can be settled.
func FuzzDelivery(f *testing.F) {
	const fuzzedAt = 1717200000000000
	e := message.Envelope{Key: "k", Retries: 3, TTL: time.Second, Payload: "x"}
	text := e.Encode(message.When{Us: 1, Absolute: true})
	limited := e
	limited.Deadline, limited.Timeout = fuzzedAt+1, message.NoTimeout
	grown := e
	grown.Group = message.Group{Count: 3, Bytes: 2}
	laned := e
	laned.Lane = message.Lane{Name: "customer-42", Width: 5}
	const inFields = "\x020000000000000000\x00\x01k\x04\x03\xc0\x84=\x03\x01\x03\x01\x01x" // e, as version 2 has it
	for _, record := range []string{"", "2 0 0 1 no", "2 -5 0 1700000000000000 x",
		"2 2147483647 2147483647 9223372036854775807 ", "2 99999999999 1 1 "} {
		for _, envelope := range []string{text, "\x03" + text[1:], inFields[:20] + "\xc8\x01x\t\x01y" + inFields[20:],
			inFields,
			limited.Encode(message.When{Us: 1, Absolute: true}), grown.Encode(message.When{Us: 1, Absolute: true}),
			laned.Encode(message.When{Us: 1, Absolute: true}), "",
			"foreign text of some length, which nobody can read"} {
			f.Add("2:0190f3a0-0000-7000-8000-000000000061", envelope, record, 3)
		}
	}
	f.Fuzz(func(t *testing.T, tag, envelope, record string, maxLosses int) {
		c := &Consumer{settings: Settings{Log: slog.New(slog.DiscardHandler)}}
		s := &c.settler
		s.settings, s.lifecycle = &c.settings, newLifecycle(time.Hour, c.settings.Log, nil)
		got := script.FetchReply{Lease: &script.Lease{Name: "x:1"}, Now: message.ServerTime(fuzzedAt), Tags: []string{tag},
			Envelopes: []string{envelope}, Fails: []string{record},
			Extras: script.Extras{Parts: map[int][]string{0: {"a", "b"}}}}
		d := decode(c, &got, time.Time{}, time.Time{})[0]
		if d.tag != tag || !strings.HasSuffix(tag, d.msg.ID) {
			t.Errorf("delivery %+v of %q", d, tag)
		}
		if o, ok := unfit(d, got.Now); ok {
			s.settle(o)
		} else {
			d.conclude(context.Background(), Verdict{Err: queuetest.ErrBoom})
		}
		noticeOfPoison(&script.TickReply{Dead: []script.DeadMessage{{ID: tag, Envelope: envelope, Fail: record}},
			Extras: script.Extras{Parts: map[int][]string{-1: {record}}}}, 0)
		for _, o := range s.outbox.All() {
			if o.delay < 0 || o.delay > message.MaxDelay || o.failures < 0 || o.losses < 0 || o.d.msg.Delivery < 1 {
				t.Errorf("outcome %+v of %q, %q, %q", o, tag, envelope, record)
			}
		}
	})
}
