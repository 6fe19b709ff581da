package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	for _, cases := range []map[string]repliesCase{repliesToUsers, repliesToMonitors} {
		for _, c := range cases {
			for _, reply := range slices.Concat(c.good, c.bad) {
				f.Add(strings.ReplaceAll(reply, "|", "\n"))
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw string) {
		s := NewStore(answering{reply: strings.Split(raw, "\n")}, "dq", "q")
		for _, cases := range []map[string]repliesCase{repliesToUsers, repliesToMonitors} {
			for name, c := range cases {
				if err := c.call(s); err != nil && !errors.Is(err, ErrBadReply) {
					t.Errorf("%s of %q: unknown error %v", name, raw, err)
				}
			}
		}
	})
}

// within is the error of a call, or one that says which of the indices in its reply is not among n.
func within(n int, err error, lists ...[]int) error {
	for _, i := range slices.Concat(lists...) {
		if err == nil && (i < 0 || i >= n) {
			return fmt.Errorf("index %d of %d", i, n)
		}
	}
	return err
}

// A repliesCase is a typed call, with replies that it takes and replies that it refuses. Their parts stand between
// bars. The call refuses also the first good reply without its last part, with one part more, and with a word in
// place of a number.
type repliesCase struct {
	call    func(s *Store) error
	numbers []int // parts of the first good reply that are numbers
	good    []string
	bad     []string
}

// caseOf is a case of a call that has a result.
func caseOf[T any](call func(s *Store) (T, error), numbers []int, good []string, bad ...string) repliesCase {
	return repliesCase{func(s *Store) error { return queuetest.Failure(call(s)) }, numbers, good, bad}
}

// fetchReply has part i in place of what a good reply has there; -1: none.
func fetchReply(i int, part string) string {
	reply := strings.Split("envelope|a|5|0|0|0|0|1|10000000||0|7|5 3 1 1|1||9|1|40|1|0|1", "|")
	if i >= 0 {
		reply[i] = part
	}
	return strings.Join(reply, "|")
}

// repliesToUsers are calls of producers and consumers.
var repliesToUsers = map[string]repliesCase{
	"send": caseOf(func(s *Store) (SendReply, error) {
		out, err := s.Send(queuetest.CtxB, NewCaller(), SendRequest{Messages: []*SendMessage{msg("a", 0), msg("b", 0)}})
		return out, within(2, err, slices.Collect(maps.Keys(out.refused)))
	}, []int{0}, []string{"5|", "5|1=a 2=b "}, "OK", "|", "5|1", "5|x=a", "5|0=a", "5|3=a", "5|-1=a"),
	"put": caseOf(func(s *Store) (SendReply, error) {
		ms := []*SendMessage{numbered(msg("a", 0), "s", 1), numbered(msg("b", 0), "s", 2)}
		return s.Send(queuetest.CtxB, NewCaller(), SendRequest{Messages: ms})
	}, []int{0}, []string{"5|+6 =a", "5|#09223372036854775809 #18446744073709551615", "5|! !", "5|+6"}, "5|+6 !7", "5|",
		"5|+6 +7 +8",
		"5|+6 +x", "5|+6 #1", "5|+6 ?", "5|+6 #18446744073709551616", "5|+6 +7|lane|"),
	"intercept": caseOf(func(s *Store) (InterceptReply, error) {
		return s.Intercept(queuetest.CtxB, NewCaller(), "id", "a", false)
	},
		nil, []string{"gone|", "pending|a", "ready|a", "unack|a", "retry|a", "garbage|a"}, "", "Gone|", "elsewhere|a"),
	"fetch": caseOf(func(s *Store) (FetchReply, error) {
		with := &FetchSettings{Lease: time.Second, MaxLosses: 3}
		return s.Fetch(queuetest.CtxB, NewCaller(), FetchRequest{Want: 1, Settings: with})
	}, []int{2, 3, 4, 8, 10, 11, 13, 15, 17, 20},
		[]string{fetchReply(-1, ""), fetchReply(3, "6"), fetchReply(4, "1"),
			"|5|0|0|0|0|1|10000000|10 1000000 3 5 1 7|0|0|0 0 0 0|0||0|0"},
		"OK", strings.TrimPrefix(fetchReply(-1, ""), "envelope|"), fetchReply(1, ""), fetchReply(1, "a b"), fetchReply(2, ""),
		fetchReply(3, ""), fetchReply(4, "1.5"), fetchReply(5, "-"), fetchReply(9, "1"), fetchReply(9, "1 2 3 4 5"),
		fetchReply(9, "1 2 3 4 5 6 7"), fetchReply(10, "1"), fetchReply(10, "-1"), fetchReply(13, "2"), fetchReply(13, "-1"),
		fetchReply(15, "-1"), fetchReply(16, "0"), fetchReply(16, "2"), fetchReply(18, "-2"), fetchReply(20, "2"),
		fetchReply(20, "0"),
		fetchReply(20, "-1"), fetchReply(20, "9000000000000000000")),
	"tick": caseOf(func(s *Store) (TickReply, error) {
		return s.Tick(queuetest.CtxB, NewCaller(), TickRequest{Settings: &FetchSettings{Lease: time.Second, MaxLosses: 3}})
	}, []int{0, 1, 2, 3, 4, 5, 6},
		[]string{"5|0|0|0|0|0|0", "5|1|2|3|4|1|1|id|envelope|fail|-1|40|-1|1|part"},
		"", "5", "5|0|0|0|-1|0|0", "5|0|0|0|0|1|0|id|envelope", "5|0|0|0|0|0|1|-1|40", "5|0|0|0|0|1|0|id|e|f|1|0",
		"5|0|0|0|0|1|0|id|e|f|-2|0"),
	"settle": caseOf(func(s *Store) (SettleReply, error) {
		all := []Settlement{then(ack("a"), msg("c", 0), msg("d", 0)), ends(OutcomeRetry, "b", 1, 0, "x")}
		all[0].Lease, all[1].Lease = &Lease{Name: "a:1"}, &Lease{Name: "a:2"}
		got, err := s.Settle(queuetest.CtxB, NewCaller(), all, false)
		return got, within(2, err, got.Left, got.Void)
	}, []int{0, 1}, []string{"5|0;0;;;0;0;", "5|3;4;1 2 ;2 ;1;1;1=x 2=y ", "5|0;0;;;2!;0;",
		"5|0;0;;;2;0;1~7:x 2=acked:y;z "},
		"", "5", "5|0", "5|x;0;;;0;0;", "5|0;x;;;0;0;", "5|0;0;;;0;x;", "5|0;0", "5|0;0;", "5|0;0;;", "5|0;0;0;;0;0;",
		"5|0;0;3;;0;0;", "5|0;0;1 -1;;0;0;", "5|0;0;1.0 ;;0;0;", "5|0;0;;;0;0;3=x ",
		"5|0;0;;;0;0;0=x ", "5|0;0;;;0;0;1", "5|0;0;;;0;0;1~x:y ", "5|0;0;;;0;0;=x ", "5|0;0;;;0;0;1?x ", "5|0;0;;3 ;0;0;",
		"5|0;0;;;3;0;",
		"5|0;0;;;0!;0;", "5|0;0;;;1?;0;", "5|0;0;;;-1;0;"),
	"keep": caseOf(func(s *Store) (int, error) { return s.Keep(queuetest.CtxB, "a:1", []string{"a"}) }, []int{0},
		[]string{"0", "5"}),
	"extend": caseOf(func(s *Store) (ExtendReply, error) {
		return s.Extend(queuetest.CtxB, time.Second, []string{"a:1"}, []string{"b"})
	}, []int{0, 1, 2}, []string{"7|0|1"}, "0", "|0|0", "0|-1|0"),
}

// repliesToMonitors are calls of Monitors.
var repliesToMonitors = map[string]repliesCase{
	"counts": caseOf(func(s *Store) (CountsReply, error) { return s.Counts(queuetest.CtxB) }, []int{2, 14, 16, 18, 20, 22},
		[]string{"1|2|3|4|5|6|7|8|9|10|11|1|||0|0|0||0|0|-7||0",
			"1|2|3|4|5|6|7|8|9|10|11||x|1 1 1 1|5|6|7|x|3|4|5|x|8"},
		"1|2|3|4|5|6|7|8|9|10|11", "1|2|3|4|5|6|7|8|9|10|11|1|13"),
	"look": caseOf(func(s *Store) (*lookReply, error) { return s.Look(queuetest.CtxB, "id", "a", 0) }, []int{3, 7, 8},
		[]string{"5|a|garbage|6|envelope|x||3|0", "5|a|ready|0|envelope||||0", "5|a|done|6|envelope||result|0|1|part"},
		"5", "5|a|nowhere|0|envelope||||0", "5|a|ready|0|envelope|", "5|a|ready|0|envelope|||-1|0",
		"5|a|ready|0|envelope||||2|odd"),
	"list": caseOf(func(s *Store) (PageReply, error) {
		return s.List(queuetest.CtxB, ListRequest{In: statePending, Limit: 2})
	},
		nil, []string{"5|0|0", "5|9|1|a|6|envelope||", "5|1|1|a|1.5|||7", "5|1|1|a|inf|e||"},
		"5", "5|1|1|a|6|envelope|", "5|1|1|a|6|envelope||x", "5|3|3|a|6||||b|6||||c|6|||"),
	"steer": caseOf(func(s *Store) ([]Steered, error) {
		return s.Steer(queuetest.CtxB, NewCaller(), SteerRequest{What: "at", Targets: []Spot{{Tag: "a"}, {Tag: "b"}}})
	}, []int{0}, []string{"5|pending !gone", "5|=c retry"}, "5|", "5|pending retry ready", "5|pending nowhere"),
	"lanes": caseOf(func(s *Store) (LanesReply, error) { return s.Lanes(queuetest.CtxB, LanesRequest{Limit: 10}) },
		[]int{0},
		[]string{"5|", "5|a|a|1|1|7|6|1|id|ready|6||b|2|0|0|0|0"},
		"5||a|1|1|7|6", "5||a|1|1|7|6|x", "5||a|1|1|7|6|1|id|nowhere|6|", "5||a|1|1|7|6|2|id|ready|6|"),
	"sequences": caseOf(func(s *Store) (SequencesReply, error) { return s.Sequences(queuetest.CtxB, "", "0") }, []int{0},
		[]string{"5|0", "5|7|a|09223372036854775809|b|somebody else's"}),
	"dropsequence": caseOf(func(s *Store) (bool, error) { return s.DropSequence(queuetest.CtxB, NewCaller(), "a") },
		[]int{0},
		[]string{"0", "1"}, "2", "-1"),
	"passsequence": {func(s *Store) error { _, _, err := s.PassSequence(queuetest.CtxB, NewCaller(), "a", 1); return err },
		[]int{0},
		[]string{"09223372036854775809", ""}, []string{"1"}},
	"forecast": caseOf(func(s *Store) (ForecastReply, error) { return s.Forecast(queuetest.CtxB, 0, time.Second, 1) },
		[]int{0, 1, 2, 3, 6, 7}, []string{"5|5|0|0|0|0|0|0"}),
	"pause": {func(s *Store) error { return s.Pause(queuetest.CtxB, NewCaller(), 0, "", "") }, []int{0}, []string{"5|"},
		nil},
	"drop": caseOf(func(s *Store) (Holding, error) { return s.Drop(queuetest.CtxB, DropEmpty) }, []int{0, 1, 2},
		[]string{"0|7|0", "5|0|1"}),
	"note": caseOf(func(s *Store) (JournalAnswer, error) { return s.Note(queuetest.CtxB, &JournalNote{}, 0) }, []int{0},
		[]string{"5|4|runs", "5|0|", "5|x|somebody else's"}),
	"journal": caseOf(func(s *Store) (JournalReply, error) { return s.Journal(queuetest.CtxB, JournalRequest{}) },
		[]int{0},
		[]string{"5|0", "5|1|4|a done 4 {}", "5||x|somebody else's"}),
	"consumers": caseOf(func(s *Store) ([]ConsumerEntry, error) { return s.Consumers(queuetest.CtxB) }, []int{0},
		[]string{"5|0", "5|0|c|5 1 {}", "5|0|somebody else's|x", "5|7"}), // the last: for ever
	"history": caseOf(func(s *Store) (HistoryReply, error) { return s.History(queuetest.CtxB) }, []int{0},
		[]string{"5", "5|1|1 2 3 4 5 6|d1|1 2 3 4 5 6", "5|1|somebody else's"}, "5|1:sent|1 2 3 4 5 6", "5|dd1|"),
}

// TestBadReplies: each call takes the replies that its script makes, and refuses any other.
func TestBadReplies(t *testing.T) {
	t.Parallel()
	all := maps.Clone(repliesToUsers)
	maps.Copy(all, repliesToMonitors)
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			call := func(reply []string) error { return c.call(NewStore(answering{reply: reply}, "dq", "q")) }
			for _, reply := range c.good {
				if err := call(strings.Split(reply, "|")); err != nil {
					t.Errorf("%q: %v", reply, err)
				}
			}
			first := strings.Split(c.good[0], "|")
			bad := [][]string{first[:len(first)-1]}
			if name != "put" { // which may name a lane
				bad = append(bad, append(slices.Clone(first), ""))
			}
			for _, i := range c.numbers {
				bad = append(bad, slices.Replace(slices.Clone(first), i, i+1, "x"))
			}
			for _, reply := range c.bad {
				bad = append(bad, strings.Split(reply, "|"))
			}
			if err := call(nil); name == "look" && err != nil || name != "look" && !errors.Is(err, ErrBadReply) {
				t.Errorf("without a part: %v", err)
			}
			for _, reply := range bad {
				if err := call(reply); !errors.Is(err, ErrBadReply) {
					t.Errorf("%q: %v, want ErrBadReply", reply, err)
				}
			}
		})
	}
}
