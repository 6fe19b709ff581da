package script

import (
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

func list(parts ...string) []string { return parts }

// A repliesCase is a typed call, with replies that it takes and replies that it refuses.
type repliesCase struct {
	call func(s *Store) error
	good [][]string
	bad  [][]string
}

func takesGoodRepliesOnly(t *testing.T, cases map[string]repliesCase) {
	t.Helper()
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			call := func(reply []string) error {
				return c.call(NewStore(answering{reply: reply}, "dq", "q"))
			}
			for _, reply := range c.good {
				if err := call(reply); err != nil {
					t.Errorf("%#v: %v", reply, err)
				}
			}
			for _, reply := range c.bad {
				if err := call(reply); !errors.Is(err, ErrBadReply) {
					t.Errorf("%#v: %v, want errBadReply", reply, err)
				}
			}
		})
	}
}

// TestBadRepliesToProducers: the calls of producers take the replies that their scripts make, and refuse any other.
func TestBadRepliesToProducers(t *testing.T) {
	takesGoodRepliesOnly(t, map[string]repliesCase{
		"send": {
			func(s *Store) error {
				_, err := s.Send(queuetest.CtxB, NewCaller(), SendRequest{Messages: []*SendMessage{msg("a", 0), msg("b", 0)}})
				return err
			},
			[][]string{list("5", ""), list("5", "1=a 2=b ")},
			[][]string{nil, list("OK"), list("5"), list("", ""), list("now", ""), list("5", "", ""),
				list("5", "1"), list("5", "x=a"), list("5", "0=a"), list("5", "3=a"), list("5", "-1=a")},
		},
		"put": {
			func(s *Store) error {
				_, err := s.Send(queuetest.CtxB, NewCaller(), SendRequest{Messages: []*SendMessage{numbered(msg("a", 0), "s", 1), numbered(msg("b", 0), "s", 2)}})
				return err
			},
			[][]string{list("5", "+6 =a"), list("5", "#09223372036854775809 #18446744073709551615"), list("5", "! !"), list("5", "+6")},
			[][]string{nil, list("5", "+6 !7"), list("5"), list("5", ""), list("5", "+6 +7 +8"), list("5", "+6 +x"),
				list("5", "+6 #1"), list("5", "+6 ?"),
				list("5", "+6 #18446744073709551616"), list("x", "+6 +7"), list("5", "+6 +7", "lane", "")},
		},
		"intercept": {
			func(s *Store) error {
				_, err := s.Intercept(queuetest.CtxB, NewCaller(), "id", "a", false)
				return err
			},
			[][]string{list("gone", ""), list("pending", "a"), list("ready", "a"), list("unack", "a"), list("retry", "a"), list("garbage", "a")},
			[][]string{nil, list(""), list("gone"), list("Gone", ""), list("elsewhere", "a"), list("gone", "gone", "gone")},
		},
	})
}

// TestBadRepliesToConsumers: so do the calls of consumers.
func TestBadRepliesToConsumers(t *testing.T) {
	fetchReply := func(i int, part string) []string {
		reply := list("envelope", "a", "5", "0", "0", "0", "0", "1", "10000000", "3", "0", "0", "0", "", "0", "1", "0", "0", "7", "5 3 1", "2",
			"id", "envelope", "fail", "1", "40", "-1", "0", "1")
		if i >= 0 {
			reply[i] = part
		}
		return reply
	}
	takesGoodRepliesOnly(t, map[string]repliesCase{
		"fetch": {
			func(s *Store) error {
				_, err := s.Fetch(queuetest.CtxB, NewCaller(), FetchRequest{Want: 1, Settings: &FetchSettings{Lease: time.Second, MaxLosses: 3}})
				return err
			},
			[][]string{fetchReply(-1, ""), fetchReply(3, "6"),
				list("", "5", "0", "0", "0", "0", "0", "1", "3", "0", "0", "0", "10 1000000 3 5 1 7", "0", "0", "0", "0", "0", "", "0", "0")},
			[][]string{nil, list("OK"), fetchReply(-1, "")[:28], fetchReply(-1, "")[1:], append(fetchReply(-1, ""), ""),
				fetchReply(1, ""), fetchReply(1, "a b"), fetchReply(2, "now"), fetchReply(2, ""), fetchReply(3, "x"), fetchReply(4, ""),
				fetchReply(5, "1.5"), fetchReply(6, "-"), fetchReply(8, "x"), fetchReply(12, "x"), fetchReply(13, "1"),
				fetchReply(13, "1 2 3 4 5"), fetchReply(13, "1 2 3 4 5 6 7"), fetchReply(14, "1"), fetchReply(14, "-1"),
				fetchReply(15, "2"), fetchReply(15, "0"), fetchReply(16, "1"), fetchReply(16, "-1"), fetchReply(17, "x"),
				fetchReply(17, "-1"), fetchReply(18, "x"), fetchReply(20, "3"), fetchReply(20, "-1"), fetchReply(20, "x"),
				fetchReply(24, "0"), fetchReply(24, "2"), fetchReply(25, "x"), fetchReply(26, "-2"),
				fetchReply(28, "2"), fetchReply(28, "0"), fetchReply(28, "-1"),
				fetchReply(28, "9000000000000000000"), fetchReply(28, "x")},
		},
		"settle": {
			func(s *Store) error {
				all := []Settlement{then(ack("a"), msg("c", 0), msg("d", 0)), ends(OutcomeRetry, "b", 1, 0, "x")}
				all[0].Lease, all[1].Lease = &Lease{Name: "a:1"}, &Lease{Name: "a:2"}
				_, err := s.Settle(queuetest.CtxB, NewCaller(), all)
				return err
			},
			[][]string{list("5", "0", "0", "", "", "", "0"), list("5", "3", "4", "1 2 ", "1=x 2=y ", "2 ", "1"), list("5", "0", "0", "", "", "", "2!"),
				list("5", "0", "0", "", "1~7:x 2=acked:y ", "", "2")},
			[][]string{nil, list(""), list("5"), list("5", "0"), list("5", "0", "0"), list("5", "0", "0", ""), list("5", "0", "0", "", ""),
				list("5", "0", "0", "", "", ""), list("now", "0", "0", "", "", "", "0"), list("5", "0", "0", "", "", "", "0", ""),
				list("5", "x", "0", "", "", "", "0"), list("5", "0", "x", "", "", "", "0"),
				list("5", "0", "0", "0", "", "", "0"), list("5", "0", "0", "3", "", "", "0"), list("5", "0", "0", "1 -1", "", "", "0"),
				list("5", "0", "0", "1.0 ", "", "", "0"),
				list("5", "0", "0", "", "3=x ", "", "0"), list("5", "0", "0", "", "0=x ", "", "0"), list("5", "0", "0", "", "1", "", "0"),
				list("5", "0", "0", "", "1~x:y ", "", "0"), list("5", "0", "0", "", "=x ", "", "0"), list("5", "0", "0", "", "1?x ", "", "0"),
				list("5", "0", "0", "", "", "3 ", "0"), list("5", "0", "0", "", "", "", "3"), list("5", "0", "0", "", "", "", "0!"), list("5", "0", "0", "", "", "", "1?"), list("5", "0", "0", "", "", "", "-1")},
		},
		"overrun": {
			func(s *Store) error { return s.Overrun(queuetest.CtxB, time.Second, []string{"a"}) },
			[][]string{list("0"), list("5")},
			[][]string{nil, list("x"), list("1", "1")},
		},
		"keep": {
			func(s *Store) error { _, err := s.Keep(queuetest.CtxB, "a:1", []string{"a"}); return err },
			[][]string{list("0"), list("5")},
			[][]string{nil, list("x"), list("1", "1")},
		},
		"extend": {
			func(s *Store) error {
				_, err := s.Extend(queuetest.CtxB, time.Second, []string{"a:1"}, []string{"b"})
				return err
			},
			[][]string{list("7", "0", "1")},
			[][]string{nil, list("0"), list("0", "0"), list("0", "x", "0"), list("", "0", "0"), list("0", "0", "0", "0"), list("0", "2", "x"),
				list("0", "-1", "0")},
		},
	})
}

// TestBadRepliesToMonitors: so do the calls of Monitors.
func TestBadRepliesToMonitors(t *testing.T) {
	takesGoodRepliesOnly(t, map[string]repliesCase{
		"counts": {
			func(s *Store) error { _, err := s.Counts(queuetest.CtxB); return err },
			[][]string{list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "1", "", "", "0", "0", "0", "", "0", "0", "0", "-7"),
				list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "", "x", "1 1 1 1", "5", "6", "7", "x", "3", "4", "5", "6")},
			[][]string{nil, list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"),
				list("1", "2", "x", "4", "5", "6", "7", "8", "9", "10", "11", "1"),
				list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "1", "13"),
				list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "1", "", "", "x", "0", "0", "", "0", "0", "0", "-7"),
				list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "1", "", "", "0", "0", "0", "", "0", "0", "0"),
				list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "1", "", "", "0", "0", "x", "", "0", "0", "0", "-7"),
				list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "1", "", "", "0", "0", "0", "", "x", "0", "0", "0"),
				list("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "1", "", "", "0", "0", "0", "", "0", "0", "1", "x")},
		},
		"look": {
			func(s *Store) error { _, err := s.Look(queuetest.CtxB, "id", "a", 0); return err },
			[][]string{nil, list("5", "a", "ready", "0", "envelope", "", "", "", "0"), list("5", "a", "garbage", "6", "envelope", "x", "", "3", "0"),
				list("5", "a", "done", "6", "envelope", "", "result", "0", "1", "part")},
			[][]string{list("5"), list("5", "a", "nowhere", "0", "envelope", "", "", "", "0"),
				list("5", "a", "ready", "x", "envelope", "", "", "", "0"), list("5", "a", "ready", "0", "envelope", ""),
				list("5", "a", "ready", "0", "envelope", "", "", "x", "0"), list("5", "a", "ready", "0", "envelope", "", "", "-1", "0"),
				list("5", "a", "ready", "0", "envelope", "", "", "", "odd"), list("5", "a", "ready", "0", "envelope", "", "", "", "0", "odd"),
				list("5", "a", "ready", "0", "envelope", "", "", "", "2", "odd")},
		},
		"list": {
			func(s *Store) error {
				_, err := s.List(queuetest.CtxB, ListRequest{In: statePending, Limit: 2})
				return err
			},
			[][]string{list("5", "0", "0"), list("5", "9", "1", "a", "6", "envelope", "", ""), list("5", "1", "1", "a", "1.5", "", "", "7"),
				list("5", "1", "1", "a", "inf", "e", "", "")},
			[][]string{nil, list("5"), list("5", "0"), list("5", "1", "1", "a", "6", "envelope", ""), list("5", "0", "0", "a"),
				list("5", "1", "1", "a", "6", "envelope", "", "x"),
				list("5", "3", "3", "a", "6", "", "", "", "b", "6", "", "", "", "c", "6", "", "", "")},
		},
		"steer": {
			func(s *Store) error {
				_, err := s.Steer(queuetest.CtxB, NewCaller(), SteerRequest{What: "at", Targets: []Spot{{Tag: "a"}, {Tag: "b"}}})
				return err
			},
			[][]string{list("5", "pending !gone"), list("5", "=c retry")},
			[][]string{nil, list("5"), list("5", ""), list("5", "pending retry ready"), list("5", "pending nowhere"),
				list("x", "pending pending"), list("5", "a b", "")},
		},
		"lanes": {
			func(s *Store) error { _, err := s.Lanes(queuetest.CtxB, LanesRequest{Limit: 10}); return err },
			[][]string{list("5", ""), list("5", "a", "a", "1", "1", "7", "6", "1", "id", "ready", "6", "", "b", "2", "0", "0", "0", "0")},
			[][]string{nil, list("5"), list("x", ""), list("5", "", "a", "1", "1", "7", "6"), list("5", "", "a", "1", "1", "7", "6", "x"),
				list("5", "", "a", "1", "1", "7", "6", "1", "id", "nowhere", "6", ""),
				list("5", "", "a", "1", "1", "7", "6", "2", "id", "ready", "6", "")},
		},
		"sequences": {
			func(s *Store) error { _, err := s.Sequences(queuetest.CtxB, "", "0"); return err },
			[][]string{list("5", "0"), list("5", "7", "a", "09223372036854775809", "b", "somebody else's")},
			[][]string{nil, list("5"), list("x", "0"), list("5", "0", "a")},
		},
		"dropsequence": {
			func(s *Store) error { _, err := s.DropSequence(queuetest.CtxB, NewCaller(), "a"); return err },
			[][]string{list("0"), list("1")},
			[][]string{nil, list("x"), list("2"), list("-1"), list("1", "")},
		},
		"passsequence": {
			func(s *Store) error { _, _, err := s.PassSequence(queuetest.CtxB, NewCaller(), "a", 1); return err },
			[][]string{list("09223372036854775809"), list("")},
			[][]string{nil, list("x"), list("1"), list("09223372036854775809", "")},
		},
		"pause": {
			func(s *Store) error { return s.Pause(queuetest.CtxB, NewCaller(), 0, "", "") },
			[][]string{list("5", "")},
			[][]string{nil, list("x"), list("5"), list("5", "", "6")},
		},
		"drop": {
			func(s *Store) error { _, _, err := s.Drop(queuetest.CtxB, false); return err },
			[][]string{list("0", "7"), list("5", "0")},
			[][]string{nil, list("x", "0"), list("5"), list("5", "6", "7")},
		},
		"note": {
			func(s *Store) error { _, err := s.Note(queuetest.CtxB, &JournalNote{}, 0); return err },
			[][]string{list("5", "4", "runs"), list("5", "0", ""), list("5", "x", "somebody else's")},
			[][]string{nil, list("x", "4", "runs"), list("5", "4"), list("5", "4", "runs", "")},
		},
		"journal": {
			func(s *Store) error { _, err := s.Journal(queuetest.CtxB, JournalRequest{}); return err },
			[][]string{list("5", "0"), list("5", "1", "4", "a done 4 {}"), list("5", "", "x", "somebody else's")},
			[][]string{nil, list("x", "0"), list("5"), list("5", "0", "4")},
		},
		"consumers": {
			func(s *Store) (err error) {
				for _, err = range s.Consumers(queuetest.CtxB) {
				}
				return err
			},
			[][]string{list("5", "0"), list("5", "0", "c", "5 1 {}"), list("5", "0", "somebody else's", "x"), list("5", "7")}, // for ever
			[][]string{nil, list("x", "0"), list("5"), list("5", "0", "c")},
		},
		"history": {
			func(s *Store) error { _, err := s.History(queuetest.CtxB); return err },
			[][]string{list("5"), list("5", "1", "1 2 3 4 5 6", "d1", "1 2 3 4 5 6"), list("5", "1", "somebody else's")},
			[][]string{nil, list("x"), list("5", "1"), list("5", "1:sent", "1 2 3 4 5 6"), list("5", "dd1", "")},
		},
	})
}
