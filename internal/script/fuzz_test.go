package script

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// answering is a client whose server gives the same answer to every command.
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
	e := message.Envelope{Key: "k", Retries: 3, TTL: time.Second, Headers: map[string]string{"a": "b"}, Payload: "x"}
	text := e.Encode(message.When{Absolute: true})
	record := "3 1 1 " + now + " no"
	for _, reply := range [][]string{
		{}, {"garbage"}, {"gone"}, {"nowhere"},
		{now, ""},
		{now, "1=" + queuetest.IDOf("a") + " 3=" + queuetest.IDOf("b") + " "},
		{now, "4=a 0=b "},
		{now, "1 2 "},
		{now, "0", "2 ", "2=" + queuetest.IDOf("b") + " "},
		{now, "0", "", "3=" + queuetest.IDOf("b") + " "},
		{now, "4 0 -1 "},
		{now, "0", "0", "0", "0", "1", "0", "0", "0"},
		{now, "0", "0", "", "1~" + now + ":" + queuetest.IDOf("x") + " 2=y ", "", "1"},
		{text, "a", "5", "0", "0", "0", "0", "1", "10000000", "3", "0", "0", "0", "", "0", "1", "0", "0", "7", "2", "id", text, record, "40", "-1", "0", "1"},
		{now, now, "1", "2", "3", "0", "10000000", "3", "0", "0", "2", "1", "1", "0", "3:" + queuetest.IDOf("a"), queuetest.IDOf("b"), text, text,
			record, queuetest.IDOf("c"), text, record},
		{now, now, "1", "2", "3", "0", "10000000", "3", "0", "0", "2", "1", "1", "0", "3:" + queuetest.IDOf("a"), queuetest.IDOf("b"), text},
		{now, now, "1", "2", "3", "0", "10000000", "3", "0", "0", "0", "0", "0", "1", "3:" + queuetest.IDOf("a"), "5", record, "k"},
		{now, now, "1", "2", "3", "0", "10000000", "3", "0", "0", "-1", "99999999999999999999", "x"},
		{"0", "1", "2"}, {"0", "1", "2", "3", "4"},
	} {
		f.Add(strings.Join(reply, "\n"))
	}
	outcomes := []Settlement{then(ack("a"), msg("x", 0), msg("y", 0, keyed("y"))), ends(OutcomeGarbage, "2:b", 1, 0, "x", "key"),
		ends(OutcomeRetry, "3:c", 0, 0, "")}
	batch := []*SendMessage{msg("a", 0), msg("b", 0, keyed("k")), msg("c", time.Hour)}
	f.Fuzz(func(t *testing.T, raw string) {
		reply := strings.Split(raw, "\n")
		ctx, s := context.Background(), NewStore(answering{reply: reply}, "dq", "q")
		bad := func(err error) bool {
			if err != nil && !errors.Is(err, ErrBadReply) {
				t.Fatalf("%v: unknown error %v", reply, err)
			}
			return err != nil
		}
		if out, err := s.Send(ctx, &Caller{}, SendRequest{Messages: batch}); !bad(err) {
			for i := range out.refused {
				if i < 0 || i >= len(batch) {
					t.Errorf("%v: message %d of %d is refused", reply, i, len(batch))
				}
			}
		}
		if got, err := s.Fetch(ctx, &Caller{}, FetchRequest{Settings: &FetchSettings{}}); !bad(err) {
			if len(got.Envelopes) != len(got.Tags) {
				t.Errorf("%v: %d envelopes of %d messages", reply, len(got.Envelopes), len(got.Tags))
			}
		}
		for i := range outcomes {
			outcomes[i].Lease = &Lease{Name: "a:1"}
		}
		if got, err := s.Settle(ctx, &Caller{}, outcomes); !bad(err) {
			for _, i := range got.Left {
				if i < 0 || i >= len(outcomes) {
					t.Errorf("%v: settlement %d of %d is left", reply, i, len(outcomes))
				}
			}
			for _, i := range got.Void {
				if i < 0 || i >= len(outcomes) {
					t.Errorf("%v: outcome %d of %d is void", reply, i, len(outcomes))
				}
			}
		}
		if got, err := s.Extend(ctx, time.Second, []string{"a:1"}, []string{"a", "b"}); !bad(err) && len(got.Left)+len(got.There) != 3 {
			t.Errorf("%v: %+v", reply, got)
		}
		if err := s.Overrun(ctx, time.Second, []string{"a"}); !bad(err) && len(reply) != 1 {
			t.Errorf("%v: %v", reply, err)
		}
		if got, err := s.Intercept(ctx, &Caller{}, "id", "x", false); !bad(err) && got.State != reply[0] {
			t.Errorf("%v is %v", reply, got.State)
		}
		if done, err := s.Steer(ctx, &Caller{}, SteerRequest{What: "at", Targets: []Spot{{Tag: "a"}, {Tag: "b"}}}); !bad(err) && (len(done) == 0 || len(done) > 2) {
			t.Errorf("%v: %d answers for 2", reply, len(done))
		}
		if got, err := s.List(ctx, ListRequest{In: statePending, Limit: 10}); !bad(err) && len(got.Entries) > 10 {
			t.Errorf("%v: %d messages of 10", reply, len(got.Entries))
		}
		for _, call := range []func() error{
			func() error { _, err := s.Counts(ctx); return err },
			func() error { _, err := s.Look(ctx, "id", "a", 0); return err },
			func() error { _, _, err := s.Drop(ctx, false); return err },
			func() error { _, err := s.Lanes(ctx, LanesRequest{Limit: 10}); return err },
			func() (err error) {
				for _, err = range s.Consumers(ctx) {
				}
				return err
			},
			func() error { _, err := s.History(ctx); return err },
			func() error { _, err := s.Forecast(ctx, 0, time.Second, 3); return err },
			func() error { return s.Pause(ctx, &Caller{}, 0, "", "") },
		} {
			bad(call())
		}
	})
}
