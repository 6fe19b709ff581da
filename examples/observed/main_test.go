package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

var client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

func TestMain(m *testing.M) { leaks.Main(m) }

// start runs the program on an embedded server until the end of the test and returns where it listens.
func start(t *testing.T) string { return startOn(t, "", "-every", "20ms") }

// startOn runs it on the Redis at an address.
func startOn(t *testing.T, redis string, args ...string) string {
	t.Helper()
	t.Setenv("REDIS_ADDR", redis)
	var out, errs testkit.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() { code <- run(ctx, append(args, "-addr", "127.0.0.1:0"), &out, &errs) }()
	t.Cleanup(func() {
		cancel()
		if got := testkit.Receive(t, "it ends", code); got != 0 || t.Failed() {
			t.Errorf("exit code %d; it said:\n%s%s", got, &out, &errs)
		}
	})
	listening := regexp.MustCompile(`listening on (127\.0\.0\.1:\d+);`)
	testkit.Until(t, "it listens", func() bool { return listening.MatchString(out.String()) })
	return listening.FindStringSubmatch(out.String())[1]
}

// A real Prometheus scrapes the service; what it finds answers the dashboard's queries and the alerts'.
func TestPrometheus(t *testing.T) {
	p := startPrometheus(t, start(t))
	p.eventually(`up{job="observed"}`, 1, 1)
	for expr, bounds := range map[string][2]float64{
		"delayqueue_up":                         {1, 1},
		"delayqueue_consumers":                  {1, 1},
		"delayqueue_workers":                    {concurrency, concurrency},
		"delayqueue_paused":                     {0, 0},
		`delayqueue_messages{state="pending"}`:  {1, 1000},
		`delayqueue_messages{state="garbage"}`:  {2, 1000},
		`delayqueue_messages{state!="garbage"}`: {0, 1000},
		"delayqueue_oldest_ready_age_seconds":   {0, 10},
		"delayqueue_longest_handling_seconds":   {0, 10},
		"delayqueue_next_due_timestamp_seconds": {float64(time.Now().Unix()),
			float64(time.Now().Add(time.Hour).Unix())},
		"delayqueue_messages_sent_total":                                   {100, math.MaxInt32},
		"delayqueue_messages_lost_total":                                   {0, 0},
		"delayqueue_events_dropped_total":                                  {0, 0},
		"delayqueue_messages_acked_total / delayqueue_messages_sent_total": {0.5, 1},
		// those that are dead failed thrice, and there are others
		"delayqueue_messages_failed_total / delayqueue_messages_dead_total":                                   {3, 100},
		"delayqueue_messages_dead_total - on (queue) delayqueue_messages{state=\"garbage\"}":                  {0, 0},
		"delayqueue_messages_delivered_total - on (queue) sum by (queue) (delayqueue_handling_seconds_count)": {0, 100},
		"delayqueue_lateness_seconds_sum / delayqueue_lateness_seconds_count":                                 {0, 10},
		`delayqueue_handling_seconds_sum{outcome="ack"} / delayqueue_handling_seconds_count`:                  {0.001, 10},
		`delayqueue_handling_seconds_count{outcome="snooze"}`: {1,
			math.MaxInt32},
	} {
		p.eventually(expr, bounds[0], bounds[1])
	}

	// The service has no schedules, no lanes, no kinds and no outbox.
	none := regexp.MustCompile(`delayqueue_(schedule|oldest_waiting|kind|outbox)\w*`)
	exprs := dashboard(t)
	for _, expr := range exprs {
		if none.MatchString(expr) {
			continue
		}
		p.eventually(strings.NewReplacer("$queue", ".*", "$__rate_interval", "15s", "$__range", "1m").Replace(expr), -5,
			math.MaxInt32)
	}
	alerts, err := os.ReadFile("../../metrics/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(exprs, string(alerts)) {
		for _, name := range regexp.MustCompile(`delayqueue_\w+`).FindAllString(text, -1) {
			if !none.MatchString(name) {
				p.eventually("count("+name+")", 1, math.MaxInt32)
			}
		}
	}

	testkit.Until(t, "there is an alert for messages in garbage", func() bool {
		return slices.ContainsFunc(p.rules(), func(r rule) bool {
			return r.Name == "DelayQueueDeadMessages" && r.State == "firing" &&
				slices.ContainsFunc(r.Alerts, func(a alert) bool {
					return a.Labels["queue"] == "example-observed"
				})
		})
	})
	rules := p.rules()
	if want := strings.Count(string(alerts), "- alert:"); len(rules) != want || want == 0 {
		t.Errorf("%d rules, want %d", len(rules), want)
	}
	for _, r := range rules {
		if r.Health != "ok" {
			t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
		}
		if r.State == "firing" && r.Name != "DelayQueueDeadMessages" {
			t.Errorf("%s fires, and all is well", r.Name)
		}
	}
}

// The page shows the queue with its traffic, and lets who is here pause it; nobody else's site can.
func TestPage(t *testing.T) {
	at := start(t)
	ask := func(method, path, host string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+"/queues/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		answer, err := client.Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	testkit.Until(t, "the page shows a consumer", func() bool {
		code, body := ask(http.MethodGet, "consumers?q=example-observed", "")
		return code == http.StatusOK && strings.Contains(body, "Last heard")
	})
	if code, _ := ask(http.MethodGet, "", "evil.example:80"); code != http.StatusForbidden {
		t.Errorf("as another site: %d", code)
	}
	if code, body := ask(http.MethodPost, "pause?q=example-observed",
		""); code != http.StatusBadRequest { // it may, but says not what
		t.Errorf("%d %s", code, body)
	}
}

// dashboard returns the queries of the Grafana dashboard.
func dashboard(t *testing.T) (exprs []string) {
	t.Helper()
	raw, err := os.ReadFile("../../metrics/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	if len(exprs) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	return exprs
}

func TestUsage(t *testing.T) {
	testkit.RunUsages(t, func(args []string, out, errs io.Writer) int { return run(t.Context(), args, out, errs) },
		[]testkit.Usage{
			{Args: []string{"-h"}, Want: "-every"},
			{Args: []string{"-nosuch"}, Code: 2, Want: "not defined"},
			{Args: []string{"-every", "0s"}, Code: 2, Want: "must be positive"},
			{Args: []string{"-addr", "nowhere"}, Code: 1, Want: "nowhere"},
			{Redis: "127.0.0.1:1", Code: 1, Want: "does not answer"},
		})
}
