package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// slowly begins a job that does a message a second, of 3,000, and returns its address. It lasts longer than any test.
func (f *fixture) slowly(do string) (job string) {
	f.Helper()
	f.batch("orders", "x", 3000)
	counted, _ := f.counted(address("plan", "q", "orders", "state", "pending", "do", do, "by", "1h0m0s",
		"rate", "1"))
	return f.begin(counted, "confirm", "orders", "rate", "1", "reason", "a <b>test</b>")
}

func idOf(job string) string {
	to, err := url.Parse(job)
	if err != nil {
		return ""
	}
	return to.Query().Get("id")
}

// onJob sends a form of a job's page.
func (f *fixture) onJob(job, do string, edit ...func(*http.Request)) reply {
	f.Helper()
	return f.ask(http.MethodPost, "job", form("q", "orders", "id", idOf(job), "do", do), edit...)
}

func (f *fixture) pending() int64 {
	f.Helper()
	c, err := f.monitor("orders").Counts(f.Context())
	ok(f, err)
	return c.Pending
}

// Before a job that was cut off is begun again, the page says that some messages would be postponed twice.
func TestPostponedTwice(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	plan := address("plan", "q", "orders", "state", "pending", "do", "postpone", "by", "1h0m0s")
	const said = "The same was begun before and cut off after"
	job := f.slowly("postpone")
	f.eventually("it has begun", func() bool { return !strings.Contains(f.get(job).body, "running: 0 done") })
	f.onJob(job, "stop")
	f.eventually("it is stopped", func() bool { return strings.Contains(f.get(job).body, "stopped") })
	_, body := f.counted(plan)
	f.sees(body, said)
	_, body = f.counted(strings.Replace(plan, "1h0m0s", "24h0m0s", 1))
	f.lacks(body, said)
}

// A job is seen and stopped from any process.
func TestJob(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	job := f.slowly("cancel")
	f.sees(f.get(job).body, "running", "of 3,000", "a &lt;b&gt;test&lt;/b&gt;", ">ann<", `value="stop"`,
		`<noscript><meta http-equiv="refresh"`, "1 a second")
	f.serve(Config{Authorize: allowed}) // another process
	f.sees(f.get(job).body, "running", `value="stop"`)
	f.sees(f.get(address("journal", "q", "orders")).body, `href="job?`, "running", "of 3,000", ">cancel<")
	if got := f.onJob(job, "stop"); got.code != http.StatusSeeOther || got.header.Get("Location") != job {
		t.Errorf("%d %s", got.code, got.body)
	}
	body := f.ended(job)
	f.sees(body, "stopped")
	f.lacks(body, `value="stop"`, "<noscript>")
	if n := f.pending(); n < 1 || n > 3000 {
		t.Errorf("%d are left", n)
	}
	f.wants(http.StatusConflict, f.onJob(job, "stop"), "stopped twice")
}

// silenced makes a job's entry as old as if its process had died an hour ago.
func (f *fixture) silenced(job string) {
	f.Helper()
	key := "{dq:orders}:journal"
	made, token, _ := strings.Cut(idOf(job), "-")
	for _, z := range f.cli.ZRangeWithScores(f.Context(), key, 0, -1).Val() {
		words := strings.SplitN(z.Member.(string), " ", 4)
		if fmt.Sprintf("%.0f", z.Score) != made || words[0] != token {
			continue
		}
		words[1], words[2] = "runs", fmt.Sprint(time.Now().Add(-time.Hour).UnixMicro())
		words[3] = strings.Replace(words[3], `"is":"stopped"`, `"is":"running"`, 1)
		ok(f, errors.Join(f.cli.ZRem(f.Context(), key, z.Member).Err(),
			f.cli.ZAdd(f.Context(), key, redis.Z{Score: z.Score, Member: strings.Join(words, " ")}).Err()))
		return
	}
	f.Fatalf("no %s in the journal", job)
}

// A job whose process has died says so, and is nothing to stop.
func TestJobIsInterrupted(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	job := f.slowly("run")
	f.page.Close()
	f.serve(Config{Authorize: allowed})
	var body string
	f.eventually("it is interrupted", func() bool { // a note that Close cut off may reach Redis afterwards
		f.silenced(job)
		body = f.get(job).body
		return strings.Contains(body, "interrupted after ")
	})
	f.sees(body, " of 3,000")
	f.lacks(body, `value="stop"`, "<noscript>")
}

// What is no job is not found; what hides payloads hides what a job looks for in them.
func TestJobIsRefused(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed, Payload: func(string, *ops.MessageStatus) string { return "hidden" }})
	f.batch("orders", "b", 2)
	ok(t, f.monitor("orders").Pause(f.Context()))
	page, err := f.monitor("orders").Journal(f.Context(), 1, "")
	ok(t, err)
	for _, id := range []string{"", "x", "5-0123456789abcdef", page.Entries[0].ID, strings.Repeat("9", 1<<16)} {
		f.wants(http.StatusNotFound, f.get(address("job", "q", "orders", "id", id)), id)
		f.wants(http.StatusNotFound, f.ask(http.MethodPost, "job", form("q", "orders", "id", id, "do", "stop")), id)
	}
	b := ops.Bulk{States: []delayqueue.State{delayqueue.StatePending}}
	for _, text := range []string{"b", "secret" + strings.Repeat("\x00", 194)} { // written, that is longer than a detail
		b.Contains = text
		r, err := f.monitor("orders").BulkRunNow(f.Context(), b)
		ok(t, err)
		job := jobLink("orders", r.Entry)
		f.wants(http.StatusBadRequest, f.onJob(job, "x"), "something else")
		for _, page := range []string{job, address("journal", "q", "orders")} {
			f.lacks(f.get(page).body, "&#34;b&#34;", "secret")
		}
		b.Key = strings.Repeat("k", 200)
	}
}

// Why a job has failed is said, but not where Redis is.
func TestJobThatFailed(t *testing.T) {
	f := newFixture(t, Config{})
	entry := fmt.Sprintf(
		`0123456789abcdef done %d {"act":"delete","n":1,"bulk":{"is":"failed","of":2,"looked":1,`+
			`"error":"dial tcp 10.1.2.3:6379: <refused>"}}`, time.Now().UnixMicro())
	ok(t, f.cli.ZAdd(f.Context(), "{dq:orders}:journal", redis.Z{Score: 1_700_000_000_000_000, Member: entry}).Err())
	body := f.get(address("job", "q", "orders", "id", "1700000000000000-0123456789abcdef")).body
	f.sees(body, "failed", "dial tcp …: &lt;refused&gt;")
	f.lacks(body, "10.1.2.3", "6379", "<form")

	entry = fmt.Sprintf(
		`0123456789abcdee done %d {"act":"delete","n":2,"bulk":{"is":"failed","of":2,"looked":2,`+
			`"error":"only 5 of 6 shards answer, not shard 2: no answer"}}`, time.Now().UnixMicro())
	ok(t, f.cli.ZAdd(f.Context(), "{dq:orders}:journal", redis.Z{Score: 1_700_000_000_000_001, Member: entry}).Err())
	f.sees(f.get(address("job", "q", "orders", "id", "1700000000000001-0123456789abcdee")).body, "done in 5 of 6 shards")
}

// What was counted and is not among what was done is said, and so is a shard that neither count nor job has seen.
func TestJobThatIsNotAll(t *testing.T) {
	f := newFixture(t, Config{})
	for what, want := range map[string]string{
		`"is":"finished","of":9,"looked":7,"do":{"what":"delete","most":5}`: "finished: 3 done, of at most 5. What",
		`"is":"finished","of":9,"looked":7,"do":{"what":"delete","most":3}`: "finished: 3 done.",
		`"is":"finished","of":9,"looked":7,"error":"in 5 of 6 shards"`:      "done in 5 of 6 shards: 3 done.",
	} {
		entry := fmt.Sprintf(`0123456789abcdef done %d {"act":"delete","n":3,"bulk":{%s}}`, time.Now().UnixMicro(), what)
		ok(t, f.cli.ZAdd(f.Context(), "{dq:orders}:journal", redis.Z{Score: 1_700_000_000_000_000, Member: entry}).Err())
		f.sees(f.get(address("job", "q", "orders", "id", "1700000000000000-0123456789abcdef")).body, want)
		ok(t, f.cli.ZRem(f.Context(), "{dq:orders}:journal", entry).Err())
	}
}

// A job is stopped by who may do what it does, to messages in some state.
func TestWhoMayStopAJob(t *testing.T) {
	var rights []Action
	f := newFixture(t, Config{Authorize: only(&rights)})
	f.sent("orders", "x")
	id := 1_700_000_000_000_000
	for act, want := range map[string][]Action{
		journal.Cancel: {Cancel, Delete}, journal.Delete: {Cancel, Delete}, journal.Requeue: {Requeue},
		journal.RunNow:     {RunNow},
		journal.Reschedule: {Reschedule}, "unheard of": nil,
	} {
		for _, right := range []Action{Pause, RunNow, Reschedule, Requeue, Cancel, Delete, SetLimits} {
			rights = []Action{right}
			id++
			entry := fmt.Sprintf(`0123456789abcdef runs %d {"act":%q,"n":1,"bulk":{"is":"running","of":2,"looked":1}}`,
				time.Now().UnixMicro(), act)
			ok(t, f.cli.ZAdd(f.Context(), "{dq:orders}:journal", redis.Z{Score: float64(id), Member: entry}).Err())
			got := f.onJob(jobLink("orders", fmt.Sprintf("%d-0123456789abcdef", id)), "stop")
			if may := got.code == http.StatusSeeOther; may != slices.Contains(want, right) {
				t.Errorf("%s with the right to %s: %d %s", act, right, got.code, got.body)
			}
		}
	}
}

// A process runs four at most, whatever they do; one that panics is its own trouble; Close ends them.
func TestJobsAreBounded(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	step := func(progress func(*ops.BulkResult) bool) bool {
		return progress(&ops.BulkResult{Entry: "x"})
	}
	if _, err := f.page.startJob("orders", func(context.Context, func(*ops.BulkResult) bool) (*ops.BulkResult, error) {
		panic("boom")
	}); !errors.Is(err, errPanic) {
		t.Errorf("%v", err)
	}
	ended := make(chan error, maxJobs)
	free := make(chan struct{})
	lasts := func(ctx context.Context, progress func(*ops.BulkResult) bool) (*ops.BulkResult, error) {
		step(progress)
		select {
		case <-ctx.Done():
		case <-free:
			panic("later")
		}
		if step(progress) {
			ended <- errors.New("it goes on")
		}
		ended <- ctx.Err()
		return &ops.BulkResult{Entry: "x"}, ctx.Err()
	}
	start := func() error {
		t.Helper()
		_, err := f.page.startJob("orders", lasts)
		return err
	}
	startSoon := func() { // the place of one that has ended is free soon after that is said
		t.Helper()
		f.eventually("a place is free", func() bool {
			err := start()
			if err != nil && !errors.Is(err, errJobs) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	for range maxJobs {
		startSoon()
	}
	if err := start(); !errors.Is(err, errJobs) {
		t.Errorf("one more: %v", err)
	}
	plan := func() reply {
		f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
		counted, _ := f.counted(address("plan", "q", "orders", "state", "pending", "do", "run"))
		return f.ask(http.MethodPost, "plan", counted)
	}
	f.sees(f.wants(http.StatusServiceUnavailable, plan()), "Four jobs run here")
	free <- struct{}{}
	startSoon()
	f.page.Close()
	for range maxJobs {
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		default:
			t.Error("Close has not waited for one")
		}
	}
	if err := start(); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	f.sees(f.log.String(), "boom", "later")
}

// Without a journal nobody could stop a job: it ends with its first step, and says so.
func TestJobWithoutJournal(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	ok(t, f.cli.Set(f.Context(), "{dq:orders}:journal", "of another program", 0).Err())
	f.batch("orders", "x", 150)
	counted, _ := f.counted(address("plan", "q", "orders", "state", "pending", "do", "run"))
	f.sees(f.wants(http.StatusConflict, f.ask(http.MethodPost, "plan", counted)), "the journal cannot be written",
		"It may not have been done")
	if n := f.pending(); n < 50 || n == 150 {
		t.Errorf("%d are left", n)
	}
}

// A job that can write into the journal no more stops as well, and the log says why.
func TestJobLosesJournal(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	job := f.slowly("cancel")
	const journal, aside = "{dq:orders}:journal", "{dq:orders}:aside"
	if _, err := f.cli.TxPipelined(f.Context(), func(p redis.Pipeliner) error {
		p.Rename(f.Context(), journal, aside)
		p.Set(f.Context(), journal, "of another program", 0)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	f.eventually("that it stops", func() bool { return strings.Contains(f.log.String(), errUnseen.Error()) })
	if n := f.pending(); n == 0 {
		t.Error("it has done all")
	}
	ok(t, f.cli.Rename(f.Context(), aside, journal).Err())
	f.silenced(job)
	f.sees(f.get(job).body, "interrupted")
}

// What was done is said in the page's words, whatever the address says.
func TestNotice(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders"}})
	f.sent("orders", "a")
	page := func(pairs ...any) string {
		return f.get(address("queue", append([]any{"q", "orders"}, pairs...)...)).body
	}
	f.sees(page("done", "delete", "n", "12000", "passed", "3", "why", "state"),
		"12,000 deleted; 3 passed over: it is in a state")
	f.sees(page("done", "pause"), "The queue is paused")
	f.sees(page("done", "run", "n", "1", "passed", "1", "why", "call 0800 now"), "1 made due now; 1 passed over: the log")
	for _, made := range [][]any{
		{"done", "All is lost: call 0800 now"}, {"done", "delete", "n", "call 0800 now"}, {"done", "delete", "n", "-5"},
		{"done", "delete"},
		{"done", "run", "n", "1", "passed", "call 0800 now"},
	} {
		body := page(made...)
		f.lacks(strings.Split(body, "<main")[1], "0800", "passed over", "-5")
	}
}
