package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var fourNumbers = regexp.MustCompile(`^([0-9]+ ){4}`)

var tooLarge = regexp.MustCompile(`^([0-9]+ ){0,3}[0-9]{10,} `)

func FuzzFail(f *testing.F) {
	for _, raw := range []string{"", "2 0 0 1717200000000000 ", "3 1 2 1717200000000000 a b  c\n", "2 0 x 1 ", "2  0 0 1 ", "2 0 0 1 \x1f", "2 0 0 1 \x1f\x1fno",
		"3 2 0 1 \x1e5 2 b\x1e4 1 a", "3 2 0 1 \x1e\x1e5", "-1 +1 0 1 x", "99999999999999999999 0 0 1 "} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := parseFail(raw)
		if (err == nil) != fourNumbers.MatchString(raw) && !tooLarge.MatchString(raw) {
			t.Fatalf("%q: %v", raw, err)
		}
		if err != nil {
			return
		}
		errors := r.errors
		if r.superseded {
			errors = supersededMark + errors
		}
		written := fmt.Sprintf("%d %d %d %d %s", r.delivery, r.failures, r.losses, r.when, errors)
		if again, err := parseFail(written); err != nil || again != r || !strings.HasSuffix(raw, " "+errors) {
			t.Fatalf("%q is %+v, and written anew %+v, %v", raw, r, again, err)
		}
		more := errorMark + "7 " + withError(r.delivery, "new", r.errors)
		all := keptErrors(more, 9)
		if n := min(len(keptErrors(r.errors, 9)), maxErrors-1); len(all) != n+1 ||
			all[0] != (KeptError{time.UnixMicro(7), r.delivery, "new"}) || len(more) > 1100 {
			t.Fatalf("%q with one more is %q, %+v", raw, more, all)
		}
	})
}

// answering is a client whose server answers every command with the same.
type answering struct {
	redis.UniversalClient
	reply []string
}

func (c answering) Process(_ context.Context, cmd redis.Cmder) error {
	switch cmd := cmd.(onceCmd).Cmder.(type) {
	case *redis.StringSliceCmd:
		cmd.SetVal(c.reply)
	case *redis.IntCmd:
		n, err := strconv.ParseInt(strings.Join(c.reply, " "), 10, 64)
		if err != nil {
			n = -1 // what is no number the client refuses by itself
		}
		cmd.SetVal(n)
	}
	return cmd.Err()
}

// FuzzReply: whatever a server answers to a script's call, the call returns what its caller can
// work with, or ErrBadReply.
func FuzzReply(f *testing.F) {
	const now = "1717200000000000"
	e := envelope{key: "k", retries: 3, ttl: time.Second, headers: map[string]string{"a": "b"}, payload: "x"}
	text := e.encode(when{absolute: true})
	record := "3 1 1 " + now + " no"
	for _, reply := range [][]string{
		{}, {"garbage"}, {"gone"}, {"nowhere"},
		{now, ""},
		{now, "1=" + idOf("a") + " 3=" + idOf("b") + " "},
		{now, "4=a 0=b "},
		{now, "1 2 "},
		{now, "0", "2 ", "2=" + idOf("b") + " "},
		{now, "0", "", "3=" + idOf("b") + " "},
		{now, "4 0 -1 "},
		{now, "0", "0", "0", "0", "1", "0", "0", "0"},
		{now, now, "1", "2", "3", "0", "10000000", "3", "0", "0", "2", "1", "1", "0", "3:" + idOf("a"), idOf("b"), text, text,
			record, idOf("c"), text, record},
		{now, now, "1", "2", "3", "0", "10000000", "3", "0", "0", "2", "1", "1", "0", "3:" + idOf("a"), idOf("b"), text},
		{now, now, "1", "2", "3", "0", "10000000", "3", "0", "0", "0", "0", "0", "1", "3:" + idOf("a"), "5", record, "k"},
		{now, now, "1", "2", "3", "0", "10000000", "3", "0", "0", "-1", "99999999999999999999", "x"},
		{"0", "1", "2"}, {"0", "1", "2", "3", "4"},
	} {
		f.Add(strings.Join(reply, "\n"))
	}
	outcomes := []settlement{then(ack("a"), msg("x", 0), msg("y", 0, keyed("y"))), ends(outcomeGarbage, "2:b", 1, 0, "x", "key"),
		ends(outcomeRetry, "3:c", 0, 0, "")}
	batch := []*sendMessage{msg("a", 0), msg("b", 0, keyed("k")), msg("c", time.Hour)}
	f.Fuzz(func(t *testing.T, raw string) {
		reply := strings.Split(raw, "\n")
		ctx, s := context.Background(), newStore(answering{reply: reply}, "dq", "q")
		bad := func(err error) bool {
			if err != nil && !errors.Is(err, ErrBadReply) && !errors.Is(err, errTakenOver) {
				t.Fatalf("%v: unknown error %v", reply, err)
			}
			return err != nil
		}
		if out, err := s.send(ctx, &caller{}, sendRequest{messages: batch}); !bad(err) {
			for i := range out.refused {
				if i < 0 || i >= len(batch) {
					t.Errorf("%v: message %d of %d is refused", reply, i, len(batch))
				}
			}
		}
		if got, err := s.fetch(ctx, &caller{}, fetchRequest{settings: &fetchSettings{}}); !bad(err) {
			for i, d := range decode(nil, &got, 0, time.Time{}, time.Time{}) {
				if d.tag != got.tags[i] || !strings.HasSuffix(d.tag, d.msg.ID) {
					t.Errorf("%v: delivery %+v of %q", reply, d, got.tags[i])
				}
			}
		}
		if got, err := s.settle(ctx, &caller{}, outcomes); !bad(err) {
			for _, i := range got.void {
				if i < 0 || i >= len(outcomes) {
					t.Errorf("%v: outcome %d of %d is void", reply, i, len(outcomes))
				}
			}
		}
		if answers, err := s.extend(ctx, time.Second, []string{"a", "2:b"}); !bad(err) && len(answers) != 2 {
			t.Errorf("%v: %d answers for 2", reply, len(answers))
		}
		if err := s.overrun(ctx, time.Second, []string{"a"}); !bad(err) && len(reply) != 1 {
			t.Errorf("%v: %v", reply, err)
		}
		if got, err := s.intercept(ctx, &caller{}, "id", "x", false); !bad(err) && got.State.String() != reply[0] {
			t.Errorf("%v is %v", reply, got.State)
		}
		if done, err := s.steer(ctx, &caller{}, steerRequest{what: "at", targets: []spot{{tag: "a"}, {tag: "b"}}}); !bad(err) && len(done) != 2 {
			t.Errorf("%v: %d answers for 2", reply, len(done))
		}
		if got, err := s.list(ctx, listRequest{place{in: StatePending}, 10, spot{}}); !bad(err) && len(got.entries) > 10 {
			t.Errorf("%v: %d messages of 10", reply, len(got.entries))
		}
		for _, call := range []func() error{
			func() error { _, err := s.counts(ctx); return err },
			func() error { _, err := s.look(ctx, "id", "a"); return err },
			func() error { _, _, err := s.drop(ctx, false); return err },
			func() (err error) {
				for _, err = range s.consumers(ctx) {
				}
				return err
			},
			func() error { _, err := s.history(ctx); return err },
			func() error { _, err := s.forecast(ctx, 0, time.Second, 3); return err },
			func() error { return s.pause(ctx, &caller{}, 0, onBehalf{}) },
		} {
			bad(call())
		}
	})
}

// FuzzDelivery: whatever a message and its record hold, what follows from them can be settled.
func FuzzDelivery(f *testing.F) {
	e := envelope{key: "k", retries: 3, ttl: time.Second, payload: "x"}
	text := e.encode(when{us: 1, absolute: true})
	limited := e
	limited.deadline, limited.timeout = rigBase+1, noTimeout
	grown := e
	grown.group = group{count: 3, bytes: 2, key: "k"}
	for _, record := range []string{"", "2 0 0 1 no", "2 -5 0 1700000000000000 x",
		"2 2147483647 2147483647 9223372036854775807 ", "2 99999999999 1 1 "} {
		for _, envelope := range []string{text, "\x03" + text[1:], e.inFields(map[byte]string{200: "x", 9: "y"}), e.inFields(nil),
			limited.encode(when{us: 1, absolute: true}), grown.encode(when{us: 1, absolute: true}), "",
			"foreign text of some length, which nobody can read"} {
			f.Add("2:"+idOf("a"), envelope, record, 3)
		}
	}
	f.Fuzz(func(t *testing.T, tag, envelope, record string, maxLosses int) {
		set := defaultSettings(nil)
		set.log = slog.New(slog.DiscardHandler)
		s := &settler{settings: &set}
		got := fetchReply{now: serverTime(rigBase), tags: []string{tag}, envelopes: []string{envelope}, fails: []string{record},
			parts: map[int][]string{0: {"a", "b"}}}
		d := decode(s, &got, maxLosses, time.Time{}, time.Time{})[0]
		if o, ok := unfit(d, got.now); ok {
			s.settle(o)
		} else {
			d.conclude(context.Background(), verdict{err: errBoom})
		}
		s.settle(notReceived(s, heldMessage{tag: tag, size: len(envelope), fail: record}, maxLosses, time.Time{}))
		noticeOfPoison(deadMessage{tag, envelope, record}, []string{record})
		for _, o := range s.outbox.some(10) {
			if o.delay < 0 || o.delay > maxDelay || o.failures < 0 || o.losses < 0 || o.d.msg.Delivery < 1 {
				t.Errorf("outcome %+v of %q, %q, %q", o, tag, envelope, record)
			}
		}
	})
}
