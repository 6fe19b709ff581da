package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/redis/go-redis/v9"
)

// What is to be wrong is wrong, also with queues of a hundredth of the size. The program ends although handlers hang,
// and does not fill a Redis that has queues.
func TestTrouble(t *testing.T) {
	server := redistest.Start(t)
	cli := server.Client(t)
	startOn(t, server.Addr(), "-trouble", "-size", "0.01")
	read := health.Reader{
		Limits: health.Limits{Lane: time.Millisecond, Handler: 500 * time.Millisecond},
		Unsent: func(ctx context.Context, m *ops.Queue) (all []health.Unsent, err error) {
			list, err := schedule.Unsent(ctx, m.Monitor())
			for _, one := range list {
				all = append(all, health.Unsent{Name: one.Name, Reason: one.Reason()})
			}
			return all, err
		},
	}
	wrong := map[string]string{ // what is said of a queue, among other things
		"orders": "lane %s stands still, messages wait since %s: the one in front %s (behind it: %s) " +
			"[customer-42",
		"mails":   "garbage 67",
		"imports": "%s: acks missing %s, dead are %s and %s more) [1 import-42 2 ",
		"slow":    "handlers that run for more than %s: %s, of %s workers [500ms 2 4]",
		"limited": "waits for its limit since %s",
		"paused":  "the bank does maintenance",
		"nobody":  "no consumers, %s behind",
		"reports": "schedules that are not sent: %s (%s: %s) [1 stock {its sequence has gone on without it",
		"parcels": "garbage 6",
		"hostile": fmt.Sprintf("garbage %d pending %[1]d", len(hostileTexts)),
	}
	for i := range quietQueues {
		wrong[fmt.Sprintf("quiet-%02d", i+1)] = "no consumers; the first message is due at %s ["
	}
	for _, name := range hostileNames {
		wrong[name] = "no consumers; the first message is due at %s ["
	}
	said := ""
	defer func() {
		if t.Failed() {
			t.Log(said)
		}
	}()
	for name, text := range wrong {
		m := ops.Of(delayqueue.NewMonitor(name, cli))
		testkit.Until(t, fmt.Sprintf("%q says %q", name, text), func() bool {
			l := read.Read(t.Context(), m)
			said = fmt.Sprintf("garbage %d pending %d\n", l.Counts.Garbage, l.Counts.Pending)
			for _, v := range l.Findings() {
				said += fmt.Sprintf("%s %v\n", v.Text.English, v.Text.Args)
			}
			return strings.Contains(said, text)
		})
	}
	for name, err := range ops.Queues(t.Context(), cli) {
		if testkit.Must(t, err); wrong[name] == "" {
			t.Errorf("there is a queue %q, of which nothing is said here", name)
		}
	}
	checkTasks(t, cli)

	var out, errs testkit.Buffer
	if code := run(t.Context(), []string{"-addr", "127.0.0.1:0", "-trouble"}, &out, &errs); code != 1 ||
		!strings.Contains(errs.String(), "-trouble needs one without") {
		t.Errorf("once more: exit code %d, %s", code, &errs)
	}
}

// checkTasks: what TASKS.md asks for is there, and can be told from what is like it.
func checkTasks(t *testing.T, cli redis.UniversalClient) {
	t.Helper()
	of := func(name string) *ops.Queue { return ops.Of(delayqueue.NewMonitor(name, cli)) }
	page, err := of("orders").List(t.Context(), delayqueue.StatePending, ops.Filter{Limit: 1000}, "")
	testkit.Must(t, err)
	seen := map[string]int{}
	for _, m := range page.Messages {
		seen["customer "+m.Headers["customer"]]++
		seen["type "+m.Headers["type"]]++
	}
	for _, text := range []string{"customer 77", "customer 177", "type ship", "type ship-label"} {
		if seen[text] == 0 {
			t.Errorf("no order is of %s", text)
		}
	}
	groups, err := of("mails").ErrorGroups(t.Context(), delayqueue.StateGarbage, ops.Filter{}, 0, "")
	testkit.Must(t, err)
	if n := slices.IndexFunc(groups.Groups, func(g ops.ErrorGroup) bool {
		return strings.HasPrefix(g.Error, "smtp 550: ")
	}); n < 0 || groups.Groups[n].Count != 3 {
		t.Errorf("no group of 3 among %d mails has failed by smtp 550", groups.Looked)
	}
	late, err := of("orders").GetKey(t.Context(), fmt.Sprint("order-", firstInLane+7))
	testkit.Must(t, err)
	waits, err := of("imports").GetKey(t.Context(), "import-42")
	testkit.Must(t, err)
	if late.State != delayqueue.StateWaiting || waits.CountdownLeft != 2 {
		t.Errorf("%+v\n%+v", late, waits)
	}
}
