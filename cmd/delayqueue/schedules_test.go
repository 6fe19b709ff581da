package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
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
	if r := w.run("doctor", "reports"); r.code != exitUnsound {
		w.Errorf("doctor: exit code %d", r.code)
	} else {
		w.contains(r.out, "nobody runs the schedules", "nobody runs 2 schedules: no replica ever looked")
	}
	w.contains(w.must("schedules", "reports", "--json"), `"name":"daily"`, `"overlap":"skip"`, `"every_seconds":900`, `"catch_up":0`)
	if all, err := schedule.List(w.Context(), w.monitor("reports").Monitor); err != nil || len(all) != 2 || all[0].Payload != "of the day" {
		w.Errorf("a Monitor with the prefix %s lists %+v, %v", w.prefix, all, err)
	}
	next := w.must("schedule", "next", "reports", "daily")
	if lines := strings.Split(strings.TrimSpace(next), "\n"); len(lines) != 5 || strings.Count(next, "09:00:00 +0900 JST (in ") != 5 {
		w.Errorf("next:\n%s", next)
	}
	w.contains(w.must("schedule", "show", "reports", "daily"), "0 9 * * 1-5", "Asia/Tokyo", "skip", "of the day", "retries")
	w.contains(w.must("schedule", "set", "reports", "tick", "--every", "30m", "--jitter", "1m", "--header", "c=d", "--json"), `"set":true`)
	w.contains(w.must("schedule", "show", "reports", "tick", "--json"), `"every_seconds":1800`, `"offset_seconds":300`, `"jitter_seconds":60`,
		`"catch_up":0`, `"ttl_seconds":60`, `"a":"b"`, `"c":"d"`, `"payload":"x"`)
	w.must("schedule", "set", "reports", "tick", "--end", "2099-01-01")
	w.contains(w.must("schedule", "show", "reports", "tick"), "2099-01-01")
	w.must("schedule", "set", "reports", "tick", "--end", "none")
	if out := w.must("schedule", "show", "reports", "tick"); strings.Contains(out, "2099") {
		w.Errorf("it has an end still:\n%s", out)
	}
	w.must("schedule", "set", "reports", "tick", "--counts", "import-42")
	w.contains(w.must("schedule", "show", "reports", "tick"), "counts for  import-42\n")
	w.contains(w.must("schedules", "reports"), "COUNTS FOR", "import-42")
	w.contains(w.must("schedules", "reports", "--json"), `"catch_up":0,"counts":"import-42",`)
	w.must("schedule", "set", "reports", "tick", "--counts", "")
	if out := w.must("schedule", "show", "reports", "tick", "--json"); strings.Contains(out, "counts") || !strings.Contains(out, `"ttl_seconds":60`) {
		w.Errorf("its acks count still, or more is gone: %s", out)
	}
	w.refused(exitUsage, "this is a key of a message of an entry", "schedule", "set", "reports", "tick", "--counts", "schedule/daily")
	w.refused(exitRefused, "remove the schedule first", "sequences", "reports", "schedule/daily", "--drop", "--yes")
	w.contains(w.must("schedule", "pause", "reports", "daily", "--reason", "card provider down", "--operator", "ann"), "schedule daily paused")
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
	w.refused(exitUsage, "tzdata", "schedule", "set", "reports", "e", "x", "--every", "1m", "--zone", "No/Where")
	w.sound("reports")
}

// gathered are the numbers of a metric, counters or gauges, by one of its labels.
func gathered(t *testing.T, registry *prometheus.Registry, name string, label int) map[string]float64 {
	t.Helper()
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

// TestSchedulesAreCounted: metrics/ does not know schedule/, and counts what that tells, by the same words.
func TestSchedulesAreCounted(t *testing.T) {
	t.Parallel()
	s := schedule.New(delayqueue.NewPublisher("reports", redistest.Start(t).Client(t)))
	collector := promqueue.NewCollector(promqueue.Config{})
	defer collector.Close()
	collector.InstrumentSchedules(s)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	instants := func() map[string]float64 { return gathered(t, registry, "delayqueue_schedule_instants_total", 0) }
	last := schedule.SentEvent
	for ; last.String()[0] != 'E'; last++ { // EventCode(5)
		if n, there := instants()[last.String()]; !there || n != 0 {
			t.Errorf("the outcome %q is not counted", last)
		}
	}
	if n := len(instants()); n != int(last)-1 {
		t.Errorf("%d outcomes are counted, and there are %d", n, int(last)-1)
	}
	ok(t, s.Set(t.Context(), schedule.Entry{Name: "e", Every: time.Second}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	testkit.Until(t, "three are counted", func() bool { return instants()["sent"] >= 3 })
	stop()
	<-ended
}

// TestStuckSchedulesAreCounted: a collector says which schedules are not sent, by reason, whoever runs them.
func TestStuckSchedulesAreCounted(t *testing.T) {
	t.Parallel()
	cli := redistest.Start(t).Client(t)
	s := schedule.New(delayqueue.NewPublisher("reports", cli))
	collector := promqueue.NewCollector(promqueue.Config{})
	defer collector.Close()
	collector.Watch(delayqueue.NewMonitor("reports", cli))
	collector.WatchSchedules(s)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	stuck := func(want map[string]float64) bool {
		n := gathered(t, registry, "delayqueue_schedules_stuck", 1)
		for _, why := range []string{"not run", "wrong clock", "sequence moved", "refused", "unreadable", "overdue"} {
			if have, there := n[why]; !there || have != want[why] {
				return false
			}
		}
		return true
	}
	until := func(want map[string]float64) {
		t.Helper()
		testkit.Until(t, fmt.Sprint(want), func() bool { return stuck(want) })
	}
	until(nil)
	for _, name := range []string{"a", "b"} {
		ok(t, s.Set(t.Context(), schedule.Entry{Name: name, Every: time.Second}))
	}
	ok(t, cli.HSet(t.Context(), "{dq:reports}:schedules", "rubbish", "x").Err())
	until(map[string]float64{"not run": 2, "unreadable": 1})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	until(map[string]float64{"unreadable": 1})
	stop()
	<-ended
}
