package main

import (
	"strings"

	"github.com/go-delayqueue/delayqueue/schedule"
)

func init() { scenarios["schedules"] = tellSchedules }

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
	if all, err := schedule.List(w.Context(), w.monitor("reports")); err != nil || len(all) != 2 || all[0].Payload != "of the day" {
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
	w.contains(w.must("schedule", "show", "reports", "tick", "--raw"), "x")
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
