package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/metrics/promqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/prometheus/client_golang/prometheus"
)

func tellSchedules(w *world) {
	w.refused(exitNotFound, "no queue", "schedules", "reports")
	w.contains(w.must("schedule", "set", "reports", "daily", "of the day", "--cron", "0 9 * * 1-5", "--zone",
		"Asia/Tokyo", "--skip", "--create"),
		"schedule daily set; next", "09:00:00 +0900 JST")
	w.must("schedule", "set", "reports", "tick", "x", "--every", "15m", "--offset", "5m", "--catch-up", "0", "--ttl",
		"1m", "--header", "a=b", "--json")
	w.contains(w.must("schedules", "reports"), "daily", "0 9 * * 1-5", "Asia/Tokyo", "every 15m + 5m", "no replica runs")
	w.exits(exitUnsound, "doctor", "reports").shows("nobody runs the schedules",
		"nobody runs 2 schedules: no replica ever looked")
	w.contains(w.must("schedules", "reports", "--json"), `"name":"daily"`, `"overlap":"skip"`, `"every_seconds":900`,
		`"catch_up":0`)
	if all, err := schedule.List(w.Context(), w.monitor("reports").Monitor()); err != nil || len(all) != 2 ||
		all[0].Payload != "of the day" {
		w.Errorf("a Monitor with the prefix %s lists %+v, %v", w.prefix, all, err)
	}
	next := w.must("schedule", "next", "reports", "daily")
	if lines := strings.Split(strings.TrimSpace(next), "\n"); len(lines) != 5 ||
		strings.Count(next, "09:00:00 +0900 JST (in ") != 5 {
		w.Errorf("next:\n%s", next)
	}
	w.contains(w.must("schedule", "show", "reports", "daily"), "0 9 * * 1-5", "Asia/Tokyo", "skip", "of the day",
		"retries")
	w.contains(w.must("schedule", "set", "reports", "tick", "--every", "30m", "--jitter", "1m", "--header", "c=d",
		"--json"), `"set":true`)
	w.contains(w.must("schedule", "show", "reports", "tick", "--json"), `"every_seconds":1800`, `"offset_seconds":300`,
		`"jitter_seconds":60`,
		`"catch_up":0`, `"ttl_seconds":60`, `"a":"b"`, `"c":"d"`, `"payload":"x"`)
	w.must("schedule", "set", "reports", "tick", "--end", "2099-01-01")
	w.contains(w.must("schedule", "show", "reports", "tick"), "2099-01-01")
	w.must("schedule", "set", "reports", "tick", "--end", "none")
	w.lacks(w.must("schedule", "show", "reports", "tick"), "2099")
	w.must("schedule", "set", "reports", "tick", "--counts", "import-42")
	w.contains(w.must("schedule", "show", "reports", "tick"), "counts for  import-42\n")
	w.contains(w.must("schedules", "reports"), "COUNTS FOR", "import-42")
	w.contains(w.must("schedules", "reports", "--json"), `"catch_up":0,"counts":"import-42",`)
	w.must("schedule", "set", "reports", "tick", "--counts", "")
	out := w.must("schedule", "show", "reports", "tick", "--json")
	w.contains(out, `"ttl_seconds":60`)
	w.lacks(out, "counts")
	w.refused(exitUsage, "this is a key of a message of an entry", "schedule", "set", "reports", "tick", "--counts",
		"schedule/daily")
	for _, command := range []string{"schedule rm reports daily", "sequences reports schedule/daily --drop",
		"schedule set reports daily"} { // with the flags of the connection behind each; and it is said before it asks
		w.refused(exitRefused, "delayqueue "+command, "sequences", "reports", "schedule/daily", "--drop")
	}
	w.contains(w.must("schedule", "pause", "reports", "daily", "--reason", "card provider down", "--operator", "ann"),
		"schedule daily paused")
	w.contains(w.must("journal", "reports"), "ann", "pause schedule", "card provider down")
	w.contains(w.must("schedule", "show", "reports", "daily"), "ann", "card provider down")
	w.contains(w.must("schedules", "reports"), "paused")
	w.contains(w.must("schedules", "reports", "--json"), `"skipped_overlap":0,"skipped_missed":0,"skipped_paused":`)
	w.contains(w.must("schedule", "run", "reports", "daily"), " due ")
	w.refused(exitRefused, "key", "schedule", "run", "reports", "daily") // its last message lives
	w.contains(w.must("schedule", "resume", "reports", "daily", "--json"), `"resumed":true`)
	w.must("schedule", "rm", "reports", "daily")
	w.refused(exitNotFound, "no such entry", "schedule", "rm", "reports", "daily")
	w.refused(exitNotFound, "no such entry", "schedule", "next", "reports", "daily")
	w.refused(exitUsage, "unknown command", "schedule", "delete", "reports", "daily")
	w.refused(exitUsage, `position 3: hour "25"`, "schedule", "set", "reports", "e", "x", "--cron", "0 25 * * *")
	w.sound("reports")
}

// TestScheduleBeginsAnew: the commands that are said bring back a schedule whose sequence was moved to its end.
func TestScheduleBeginsAnew(t *testing.T) {
	w := onServer(t)
	s := schedule.New(w.publisher("reports"))
	entry := []string{"schedule", "set", "reports", "stock", "x", "--every", "24h"}
	w.must(append(entry, "--create")...)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	ok(t, errOf(w.monitor("reports").PassSequence(t.Context(), "schedule/stock", math.MaxInt64)))
	chain := [][]string{{"schedule", "rm", "reports", "stock"}, {"sequences", "reports", "schedule/stock", "--drop"}}
	said := "stock does not begin anew by itself"
	stuck := func() bool { return strings.Contains(w.run("schedules", "reports").err, said) }
	w.until("it is told what to do", stuck)
	r := w.exits(exitUnsound, "doctor", "reports").shows(said)
	for _, args := range chain {
		w.contains(r.out, "\n    delayqueue "+strings.Join(args, " "))
	}
	_, advice, _ := strings.Cut(r.out, "schedules: stock")
	advice, _, _ = strings.Cut(advice, "what it means")
	for line := range strings.Lines(advice) {
		if len(line) > 85 && !strings.HasPrefix(line, "    delayqueue ") {
			t.Errorf("a line of %d: %s", len(line)-1, line)
		}
	}
	w.run("schedule", "next", "reports", "stock").says("stock: its sequence was passed to its last number")
	w.must(chain[0]...)
	w.must(append(chain[1], "--yes")...)
	w.must(entry...)
	w.until("it goes on", func() bool {
		return strings.Contains(w.run("schedules", "reports", "--json").out, `"skipped_paused":0,"looked"`)
	})
	equal(t, "stuck", stuck(), false)
	stop()
	<-ended

	late := []schedule.Status{{Next: time.Now().Add(4 * time.Second), Overdue: time.Now().Add(-3 * time.Hour)}}
	_, rows := newApp().scheduleTable(late).lines(150)
	next := strings.Join(rows[0], "")
	w.contains(next, "overdue for 3h")
	w.lacks(next, "in 4s", "in 3.9s")
	w.contains(fmt.Sprint(nextOf(&late[0])), "overdue for 3h")
}

// TestSchedulesAreCounted: metrics/ does not know schedule/, and counts what that tells, by the same words. A
// collector says which schedules are not sent, by reason, whoever runs them.
func TestSchedulesAreCounted(t *testing.T) {
	w := onServer(t)
	s := schedule.New(w.publisher("reports"))
	collector := promqueue.NewCollector(promqueue.Config{})
	defer collector.Close()
	collector.InstrumentSchedules(s)
	collector.Watch(w.monitor("reports").Monitor())
	collector.WatchSchedules(s)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	gathered := func(name string, label int) map[string]float64 { // by one of its labels
		families, err := registry.Gather()
		ok(t, err)
		n := map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if family.GetName() == name {
					n[m.GetLabel()[label].GetValue()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
		return n
	}
	instants := func() map[string]float64 { return gathered("delayqueue_schedule_instants_total", 0) }
	last := schedule.SentEvent
	for ; last.String()[0] != 'E'; last++ { // EventCode(5)
		if n, there := instants()[last.String()]; !there || n != 0 {
			t.Errorf("the outcome %q is not counted", last)
		}
	}
	equal(t, "outcomes that are counted", len(instants()), int(last)-1)
	stuck := func(notRun, unreadable float64) {
		t.Helper()
		want := map[string]float64{"not run": notRun, "wrong clock": 0, "sequence moved": 0, "refused": 0,
			"unreadable": unreadable, "overdue": 0}
		w.until(fmt.Sprint(want), func() bool { return maps.Equal(gathered("delayqueue_schedules_stuck", 1), want) })
	}
	stuck(0, 0)
	for _, name := range []string{"a", "b"} {
		ok(t, s.Set(t.Context(), schedule.Entry{Name: name, Every: time.Second}))
	}
	ok(t, w.cli.HSet(t.Context(), check.Queue{Prefix: w.prefix, Name: "reports"}.Key("schedules"), "rubbish", "x").Err())
	stuck(2, 1)
	for _, command := range []string{"stats", "top"} {
		w.contains(w.must(command, "reports"), "schedules that are not sent: 3 (a: no process runs it)")
	}
	twice := w.must("stats", "reports", "reports", "--json")
	w.contains(twice, `"level":"critical","code":"schedules not sent"`)
	equal(t, "rows of a queue that is named twice", strings.Count(twice, `"queue":"reports"`), 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stuck(0, 1)
	w.until("three are counted", func() bool { return instants()["sent"] >= 3 })
	stop()
	<-ended
}
