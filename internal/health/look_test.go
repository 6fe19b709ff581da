package health

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/go-delayqueue/delayqueue/ops"
)

type numbers = delayqueue.Counts

// english writes a text as plainly as may be.
func english(t Text) string {
	return t.In(func(s string) string { return s }, func(arg any) string {
		if at, ok := arg.(time.Time); ok {
			return at.UTC().Format("15:04")
		}
		return fmt.Sprint(arg)
	})
}

// TestJudge: each situation has its verdict, which is that of whoever asks.
func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 6, 30, 0, 0, time.UTC)
	seven := now.Add(30 * time.Minute)
	hour := func(sent, acked, failed int64) []ops.Tally {
		return []ops.Tally{{Start: now.Truncate(time.Hour), Sent: sent, Acked: acked, Failed: failed}}
	}
	idle := []ops.Consumer{{Concurrency: 2}}
	busy := []ops.Consumer{{Concurrency: 1, Handling: []ops.Handling{{ID: "a"}, {ID: "b"}}}}
	waits := func(d time.Duration) ops.Counts {
		return ops.Counts{Counts: numbers{Unack: 1, Waiting: 50}, LaneSince: now.Add(-d)}
	}
	lane := func(holders ...ops.Holder) *ops.Lane {
		return &ops.Lane{Name: "customer-42", Waiting: 50, Holders: holders}
	}
	retried := ops.Holder{State: delayqueue.StateRetry, At: seven}
	soon := func(delivery int) ops.Holder {
		return ops.Holder{State: delayqueue.StateRetry, At: now.Add(time.Second), Delivery: delivery}
	}
	begun := func(d time.Duration) ops.Holder { return ops.Holder{State: delayqueue.StateUnack, At: now.Add(-d)} }
	hung := func(all ...time.Duration) []ops.Consumer {
		c := ops.Consumer{Concurrency: len(all)}
		for _, d := range all {
			c.Handling = append(c.Handling, ops.Handling{For: d})
		}
		return []ops.Consumer{c}
	}
	before := func(sent, acked int64) []Sample {
		return []Sample{{At: now.Add(-time.Hour)}, {At: now.Add(-10 * time.Second),
			Hour: ops.Tally{Start: now.Truncate(time.Hour), Sent: sent, Acked: acked}}}
	}
	for _, c := range []struct {
		look  Look
		level Level
		code  Code
		text  string
	}{
		{Look{Err: errors.New("no answer")}, Critical, Unreadable, "cannot be read: no answer"},
		{Look{Missing: &shard.MissingError{Answered: 11, Of: 12, Missing: []int{3}, Err: errors.New("no answer")},
			Counts: ops.Counts{Paused: true}}, Critical, Missing,
			"only 11 of 12 shards answer: no answer; paused"},
		{Look{Counts: ops.Counts{Unaccounted: 12, Paused: true}}, Critical, Unaccounted,
			"messages have vanished without a word: 12"},
		{Look{Counts: ops.Counts{Counts: numbers{Unack: 1}, Unaccounted: 12}}, Critical, NoConsumers, "no consumers"},
		{Look{Counts: ops.Counts{Unaccounted: -3}, Consumers: idle}, Critical, Unaccounted,
			"messages have appeared without a word: 3"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 5, Behind: time.Hour}, Paused: true}}, Warning, Paused, "paused"},
		{Look{Counts: ops.Counts{Counts: numbers{Waiting: 5}, Paused: true, LaneSince: now.Add(-time.Hour)}}, Warning, Paused,
			"paused"},
		{Look{Counts: ops.Counts{Paused: true, PausedUntil: seven, PauseReason: "card provider down"}}, Notice, Paused,
			"paused until 07:00: card provider down"},
		{Look{Counts: ops.Counts{Paused: true, PausedUntil: seven, PausedBy: "ann"}}, Notice, Paused,
			"paused until 07:00, by ann"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1, Behind: 4 * time.Minute}}}, Critical, NoConsumers,
			"no consumers, 4m0s behind"},
		{Look{Counts: ops.Counts{Counts: numbers{Unack: 1}}}, Critical, NoConsumers, "no consumers"},
		{Look{Counts: ops.Counts{Counts: numbers{Retry: 1}}}, Warning, NoConsumers, "no consumers"},
		{Look{Counts: ops.Counts{Counts: numbers{Waiting: 1}}}, Warning, NoConsumers, "no consumers"},
		{Look{Counts: ops.Counts{Counts: numbers{Pending: 1, NextDue: now.Add(4 * time.Minute)}}}, Warning, NoConsumers,
			"no consumers"},
		{Look{Counts: ops.Counts{Counts: numbers{Pending: 1, NextDue: seven}}}, Notice, NoConsumers,
			"no consumers; the first message is due at 07:00"},
		{Look{Counts: ops.Counts{Counts: numbers{Pending: 1, NextDue: seven}}, Hours: hour(9, 63, 37)}, Warning, Failed,
			"37% of deliveries failed since 06:00"},
		{Look{Counts: ops.Counts{Counts: numbers{Waiting: 1}, LaneSince: now.Add(-time.Second)}}, Critical, NoConsumers,
			"no consumers"},
		{Look{Counts: ops.Counts{Counts: numbers{Waiting: 5}, Paused: true}}, Notice, Paused, "paused"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1}, Limited: true, ThrottledUntil: seven}, Consumers: idle}, Notice,
			Throttled, "throttled until 07:00"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1, Behind: 2 * time.Hour}, ThrottledUntil: seven}, Consumers: idle},
			Warning, Throttled,
			"throttled until 07:00, and 2h0m0s behind"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1, Behind: time.Hour}, Limited: true, LimitedSince: now},
			Consumers: idle}, Notice, Limited,
			"waits for its limit since 06:30, the oldest message for 1h0m0s"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1}, ThrottledUntil: seven}, Consumers: idle, Hours: hour(9, 4, 5)},
			Critical, Failed, "56% of deliveries failed since 06:00"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1, Behind: time.Hour}, Limited: true, LimitedSince: now},
			Consumers: idle, Hours: hour(9, 4, 5)},
			Critical, Failed, "56% of deliveries failed since 06:00"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1, Behind: 6 * time.Second}}, Consumers: busy}, Warning, Behind,
			"6s behind"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1, Behind: 2 * time.Minute}}, Consumers: busy}, Critical, Behind,
			"2m0s behind"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 60, Behind: 2 * time.Minute}}, Consumers: busy,
			Hours: hour(100, 110, 0), Samples: before(90, 80)},
			Critical, Behind, "2m0s behind, drains in 30s"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 60, Waiting: 1, Behind: 2 * time.Minute}}, Consumers: busy,
			Hours:   hour(100, 110, 0),
			Samples: before(90, 80)}, Critical, Behind, "2m0s behind"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 60, Behind: 6 * time.Second}}, Consumers: busy,
			Hours: hour(101, 100, 0), Samples: before(90, 90)},
			Critical, Behind, "6s behind, and it grows"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 60, Behind: 6 * time.Second}}, Consumers: busy,
			Hours: hour(100, 100, 0), Samples: before(90, 90)},
			Warning, Behind, "6s behind"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1, Behind: time.Second}}, Consumers: idle, Hours: hour(9, 4, 5)},
			Critical,
			Failed, "56% of deliveries failed since 06:00"},
		{Look{Consumers: idle, Hours: hour(9, 9, 1)}, Warning, Failed, "10% of deliveries failed since 06:00"},
		{Look{Consumers: idle, Hours: hour(9, 91, 9)}, Fine, Well, "fine"},
		{Look{Counts: ops.Counts{Counts: numbers{Garbage: 3, Done: 2}}}, Quiet, Empty, "empty, no consumers"},
		{Look{Counts: ops.Counts{Counts: numbers{Unack: 1, Waiting: 3}, LaneSince: now.Add(-time.Minute)}, Consumers: busy},
			Fine, Well, "fine"},
		{Look{Counts: ops.Counts{Counts: numbers{Unack: 1, Waiting: 3}, LaneSince: now.Add(-30 * time.Minute)},
			Consumers: busy}, Notice, Lane,
			"messages wait for others of their lanes since 06:00"},
		{Look{Counts: ops.Counts{Counts: numbers{Retry: 1, Waiting: 3}, LaneSince: now.Add(-90 * time.Minute)},
			Consumers: idle, Lane: &ops.Lane{Name: "customer-42"}},
			Warning, Lane, "messages of lane customer-42 wait for others of it since 05:00"},
		{Look{Counts: waits(4 * time.Minute), Consumers: idle, Lane: lane(retried)}, Notice, Lane,
			"messages of lane customer-42 wait for others of it since 06:26"},
		{Look{Counts: waits(6 * time.Minute), Consumers: idle, Lane: lane(retried)}, Warning, Lane,
			"lane customer-42 stands still, messages wait since 06:24: the one in front is retried at 07:00 (behind it: 50)"},
		{Look{Counts: waits(6 * time.Minute), Consumers: idle, Lane: lane(retried, begun(time.Minute))}, Notice, Lane,
			"messages of lane customer-42 wait for others of it since 06:24"},
		{Look{Counts: waits(6 * time.Minute), Consumers: idle, Lane: lane(begun(6*time.Minute), retried)}, Warning, Lane,
			"lane customer-42 stands still, messages wait since 06:24: the one in front is handled since 06:24 (behind it: 50)"},
		{Look{Counts: waits(6 * time.Minute), Consumers: idle, Lane: lane(ops.Holder{State: delayqueue.StateUnack})}, Notice,
			Lane, "messages of lane customer-42 wait for others of it since 06:24"},
		{Look{Counts: waits(6 * time.Minute), Consumers: idle, Lane: lane(soon(2))}, Notice, Lane,
			"messages of lane customer-42 wait for others of it since 06:24"},
		{Look{Counts: waits(6 * time.Minute), Consumers: idle, Lane: lane(soon(3))}, Warning, Lane,
			"lane customer-42 stands still, messages wait since 06:24: the one in front is retried at 06:30 (behind it: 50)"},
		{Look{Counts: waits(6 * time.Minute), Consumers: idle,
			Lane: lane(ops.Holder{State: delayqueue.StateUnack, At: now, Delivery: 3, LastError: "x"})}, Warning, Lane,
			"lane customer-42 stands still, messages wait since 06:24: " +
				"the one in front fails, now at delivery 3 (behind it: 50)"},
		{Look{Counts: waits(6 * time.Minute), Consumers: idle, Lane: lane(retried), Limits: Limits{Lane: time.Hour}}, Notice,
			Lane, "messages of lane customer-42 wait for others of it since 06:24"},
		{Look{Consumers: idle, Stuck: []Countdown{{"0a", "import-42", 2, "0b1f", 0, now},
			{"0c", "import-43", 1, "0b20", 0, now}}},
			Warning, Incomplete,
			"countdowns that cannot complete: 2 (import-42: acks missing 2, message 0b1f is dead)"},
		{Look{Consumers: idle, Stuck: []Countdown{{"0a", "import-42", 2, "0b1f", 1, now}}}, Warning, Incomplete,
			"countdowns that cannot complete: 1 (import-42: acks missing 2, dead are 0b1f and 1 more)"},
		{Look{Counts: waits(6 * time.Minute), Consumers: idle, Lane: lane(retried), Hours: hour(9, 4, 5)}, Critical, Failed,
			"56% of deliveries failed since 06:00"},
		{Look{Consumers: hung(11*time.Minute, 3*time.Minute)}, Warning, Hung,
			"handlers that run for more than 10m0s: 1, of 2 workers"},
		{Look{Consumers: hung(11*time.Minute, 12*time.Minute)}, Critical, Hung,
			"handlers that run for more than 10m0s: 2, of 2 workers"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 5, Unack: 1}, Limited: true, LimitedSince: now},
			Consumers: hung(11*time.Minute, 0)}, Critical, Hung, "handlers that run for more than 10m0s: 1, of 2 workers"},
		{Look{Consumers: []ops.Consumer{{Concurrency: 300,
			Handling: slices.Repeat([]ops.Handling{{For: 11 * time.Minute}}, reported)}}},
			Critical, Hung, "handlers that run for more than 10m0s: 300, of 300 workers"},
		{Look{Consumers: hung(11*time.Minute, 12*time.Minute), Limits: Limits{Handler: time.Hour}}, Fine, Well, "fine"},
		{Look{Consumers: idle, Unsent: []Unsent{{Name: "report", Reason: "sequence moved"}, {Name: "b", Reason: "refused"}}},
			Critical, NotSent,
			"schedules that are not sent: 2 (report: its sequence has gone on without it)"},
		{Look{Counts: ops.Counts{Counts: numbers{Pending: 1}}, Unsent: []Unsent{{Name: "report", Reason: "unheard of"}}},
			Critical, NotSent, "schedules that are not sent: 1 (report: unheard of)"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1, Waiting: 3, Behind: 6 * time.Second},
			LaneSince: now.Add(-90 * time.Minute)}, Consumers: idle},
			Warning, Behind, "6s behind"},
		{Look{Counts: ops.Counts{Counts: numbers{Ready: 1}}, Consumers: busy}, Notice, Busy, "all workers are busy"},
		{Look{Consumers: busy}, Fine, Well, "fine"},
	} {
		c.look.At = now
		if v := c.look.Judge(); v.Level != c.level || v.Code != c.code || english(v.Text) != c.text {
			t.Errorf("%s %q: %q, want %s %q: %q", v.Level, v.Code, english(v.Text), c.level, c.code, c.text)
		}
	}
}

// TestFindings: what is wrong hides nothing else that is wrong.
func TestFindings(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := Look{At: now, Counts: ops.Counts{Counts: numbers{Ready: 3, Behind: 6 * time.Second, Waiting: 3},
		LaneSince: now.Add(-2 * time.Minute), Unaccounted: 7},
		Consumers: []ops.Consumer{{Concurrency: 2, Handling: []ops.Handling{{For: time.Hour}}}},
		Unsent:    []Unsent{{Name: "report", Reason: "overdue"}}}
	var codes []string
	for _, v := range l.Findings() {
		codes = append(codes, string(v.Code))
	}
	want := "schedules not sent, unaccounted, behind, handlers hang, lane"
	if got := strings.Join(codes, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestLately: what cannot be read for a moment is as it was.
func TestLately(t *testing.T) {
	t.Parallel()
	var u lately[Unsent]
	at, bad := time.Now(), errors.New("no answer")
	for _, step := range []struct {
		after time.Duration
		all   []Unsent
		err   error
		want  int
	}{{0, make([]Unsent, 2), nil, 2}, {30 * time.Second, nil, bad, 2}, {time.Minute, nil, bad, 2},
		{61 * time.Second, nil, bad, 0}, {70 * time.Second, make([]Unsent, 1), nil, 1}, {80 * time.Second, nil, nil, 0}} {
		now := at.Add(step.after)
		u.note(now, step.all, step.err)
		if len(u.all) != step.want {
			t.Errorf("after %v: %+v", step.after, u)
		}
	}
}

// TestWorstFirst: of queues of one level, those that have lost most come first, then those that are latest, then those
// in which most waits. How late a queue is that is meant to be, because it is paused, does not count.
func TestWorstFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	fine := []ops.Consumer{{Concurrency: 1}}
	late := func(name string, d time.Duration, ready int64) *Look {
		return &Look{Name: name, At: now, Counts: ops.Counts{Counts: numbers{Ready: ready, Behind: d}}}
	}
	var names []string
	for _, l := range WorstFirst([]*Look{{Name: "c", Consumers: fine}, {Name: "b", Consumers: fine}, {Name: "quiet"},
		{Name: "z", Err: errors.New("x")}, late("a-little", 2*time.Minute, 9), late("most", time.Hour, 1),
		late("more", 3*time.Minute, 100), {Name: "lost", Counts: ops.Counts{Unaccounted: 3}},
		{Name: "planned", At: now, Counts: ops.Counts{Counts: numbers{Ready: 1, Behind: 48 * time.Hour}, Paused: true}},
		{Name: "hung", At: now, Consumers: []ops.Consumer{{Concurrency: 2, Handling: []ops.Handling{{For: time.Hour}}}}},
		{Name: "idle", At: now, Counts: ops.Counts{Counts: numbers{Pending: 1}}}}) {
		names = append(names, l.Name)
	}
	if got := strings.Join(names, " "); got != "z lost most more a-little hung planned idle b c quiet" {
		t.Error(got)
	}
}

// TestRecent: the present hour and the one before count whole, however long the present one is.
func TestRecent(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	l := Look{At: start.Add(15 * time.Minute), Hours: []ops.Tally{{Start: start.Add(-2 * time.Hour), Sent: 1000},
		{Start: start.Add(-time.Hour), Sent: 100, Failed: 2}, {Start: start, Sent: 7}}}
	for range 2 {
		if n := l.Recent(); n.Sent != 107 || n.Failed != 2 || !n.Start.Equal(start.Add(-time.Hour)) {
			t.Errorf("at %v: %+v", l.At, n)
		}
		l.At = l.At.Add(40 * time.Minute)
	}
	late := Sum([]ops.Tally{{}, {Started: 3, Lateness: time.Second, MaxLateness: 2 * time.Second},
		{Started: 1, Lateness: 5 * time.Second, MaxLateness: 5 * time.Second}, {}})
	if late != (ops.Tally{Started: 4, Lateness: 2 * time.Second, MaxLateness: 5 * time.Second}) {
		t.Errorf("%+v", late)
	}
	if n := (&Look{}).Recent(); n != (ops.Tally{}) {
		t.Errorf("%+v", n)
	}
	if in, out := l.Rates(); in.Known || out.Known {
		t.Errorf("rates of one look: %v %v", in, out)
	}
}

// TestNoLoss: the books of queues that can be read are told although others cannot be read.
func TestNoLoss(t *testing.T) {
	t.Parallel()
	kept := func(hour int) *Look {
		return &Look{Counts: ops.Counts{BooksSince: time.Date(2026, 11, 22, hour, 0, 0, 0, time.UTC)}}
	}
	away, part := &Look{Err: errors.New("no answer")}, kept(9)
	part.Missing = errors.New("no answer")
	at := func(t time.Time) string { return t.Format("15:04") }
	for _, c := range []struct {
		all  []*Look
		want string
	}{
		{nil, ""}, {[]*Look{{}}, ""},
		{[]*Look{kept(7), kept(8)}, "No loss is known. The books of each queue go back to 08:00 at least."},
		{[]*Look{kept(7), away, part}, "No loss is known. Queues that cannot be read, or not whole: 2. " +
			"The books of each other queue go back to 07:00 at least."},
		{[]*Look{away, part}, "Whether messages were lost is not known, because no queue can be read whole"},
	} {
		if got := english(NoLoss(c.all, at)); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]fmt.Stringer{
		"–": Percent(-1), "0%": Percent(0), "<0.1%": Percent(.05), "1.5%": Percent(1.5), "56%": Percent(55.6),
		"0": Rate{0, true}, "<0.1": Rate{.01, true}, "2.5": Rate{2.5, true}, "1235": Rate{1234.6, true},
		"95 B": Bytes(95), "2.0 GB": Bytes(2 << 30), "12 MB": Bytes(12 << 20),
	} {
		if got.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if english(Text{}) != "" || (Rate{}).String() != "–" {
		t.Error("nothing is something")
	}
}
