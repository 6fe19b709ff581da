package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/jedib0t/go-pretty/v6/text"
)

const someID = "01890000-0000-7000-8000-00003f9a21bc"

// tables are those that a person looks at first, with texts that do not all fit.
func tables() map[string]*grid {
	id, died := someID, time.Now().Add(-150*time.Second)
	garbage := newGrid("id", "key", "died", "delivery", "failures", "payload", "last error").numbers(4, 5).cuts(6, 7)
	garbage.add(id, "", moment{died}, 4, 4, strings.Repeat("payload ", 5),
		paint(bad, "dial tcp 10.0.0.7:443: connection refused"))
	errors := newGrid("count", "first", "last", "error", "last one").numbers(1).sentences(4)
	errors.add(int64(1234), moment{died.Add(-time.Hour)}, moment{died},
		paint(bad, "dial tcp #:#: connection refused by the card provider"), id)
	errors.add(int64(1), moment{died}, moment{died}, paint(bad, "no stock"), id)
	stats := newGrid("queue", "pending", "ready", "unack", "retry", "garbage", "done", "behind", "next due", "state").
		numbers(2, 3, 4, 5, 6, 7, 8).sentences(10)
	stats.add("orders", int64(200000), "0", "0", "1", int64(6000), int64(0), "", "in 3s",
		paint(warn, "messages of lane customer-42 wait behind message "+id))
	stats.add(strings.Repeat("q", 250), int64(1), "0", "0", "1", int64(0), int64(0), "", "", paint(good, "fine"))
	lanes := newGrid("lane", "waits", "since", "turns", "state", "for", "id").numbers(2, 4)
	lanes.add("customer-42", "50,000", "26m ago", "1/1", "retry", "in 3m", id)
	lanes.add("tenant-7", "0", "", "0/5", "", "", "")
	report := schedule.Entry{Name: "monthly-report", Cron: "0 9 1 * *", Zone: "Europe/Berlin"}
	tick := schedule.Entry{Name: "tick", Every: 20 * time.Second}
	schedules := new(app).scheduleTable([]schedule.Status{
		{Entry: report, Next: time.Now().Add(50*time.Hour + time.Minute), Last: died},
		{Entry: tick, Next: time.Now().Add(50*time.Hour + time.Minute), Last: died, Trouble: schedule.ErrMoved}})
	return map[string]*grid{"garbage": garbage, "errors": errors, "stats": stats, "lanes": lanes, "schedules": schedules}
}

// On a terminal of 80 columns nothing is cut that the next command needs.
func TestTablesOf80Columns(t *testing.T) {
	want := map[string]string{
		"garbage": `
ID                                    DIED    DELIVERY  FAILURES
  PAYLOAD                                 LAST ERROR
01890000-0000-7000-8000-00003f9a21bc  2m ago         4         4
  payload payload payload payload paylo…  dial tcp 10.0.0.7:443: connection ref…
`,
		"errors": `
COUNT  FIRST   LAST    ERROR     LAST ONE
1,234  1h ago  2m ago  dial tcp #:#: connection refused by the card provider
                                 01890000-0000-7000-8000-00003f9a21bc
    1  2m ago  2m ago  no stock  01890000-0000-7000-8000-00003f9a21bc
`,
		"stats": `
QUEUE   PENDING  READY  UNACK  RETRY  GARBAGE  DONE  BEHIND  NEXT DUE  STATE
orders  200,000      0      0      1    6,000     0          in 3s
  messages of lane customer-42 wait behind message
  01890000-0000-7000-8000-00003f9a21bc
` + strings.Repeat(strings.Repeat("q", 80)+"\n", 3) +
			`qqqqqqqqqq    1      0      0      1        0     0                    fine
`,
		"lanes": `
LANE          WAITS  SINCE    TURNS  STATE  FOR
  ID
customer-42  50,000  26m ago    1/1  retry  in 3m
  01890000-0000-7000-8000-00003f9a21bc
tenant-7          0             0/5
`,
		"schedules": `
SCHEDULE        WHEN       ZONE           NEXT   LAST    STATE
monthly-report  0 9 1 * *  Europe/Berlin  in 2d  2m ago  running
tick            every 20s  UTC            in 2d  2m ago
  its sequence has gone on without it, by a failover or by hand; it begins anew
  within seconds
`,
	}
	trailing := regexp.MustCompile(` +\n`) // of what is painted
	for name, g := range tables() {
		got := trailing.ReplaceAllString("\n"+text.StripEscape(g.render(80))+"\n", "\n")
		if got != want[name] {
			t.Errorf("%s:%s\nwant:%s", name, got, want[name])
		}
	}
}

// No line is wider than the terminal, and numbers and ids are whole as long as that can be.
func TestTablesFit(t *testing.T) {
	all := tables()
	wide := newGrid("id", "key", "count", "payload", "state").numbers(3).cuts(4)
	wide.add(someID, strings.Repeat("k", 30), int64(1234567), strings.Repeat("漢", 40), paint(good, "running"))
	wide.add(someID, "", int64(1), "short", "paused until tomorrow")
	all["wide"] = wide
	for name, g := range all {
		for _, width := range []int{200, 120, 100, 80, 60, 40, 20} {
			drawn := g.render(width)
			for line := range strings.Lines(drawn) {
				if w := textWidth(strings.TrimSuffix(line, "\n")); w > width {
					t.Errorf("%s: %d columns of %d: %q", name, w, width, line)
				}
			}
			if strings.Contains(text.StripEscape(drawn), "\x1b") {
				t.Errorf("%s: something is cut within its colour at %d columns:\n%s", name, width, drawn)
			}
			if name == "wide" && width >= 40 && (!strings.Contains(drawn, someID) || !strings.Contains(drawn, "1,234,567")) {
				t.Errorf("at %d columns:\n%s", width, drawn)
			}
		}
		for _, width := range []int{1, 2} {
			if drawn := text.StripEscape(g.render(width)); strings.Count(drawn, "\n") < len(g.rows) || name == "lanes" &&
				!strings.Contains(strings.Join(strings.Fields(drawn), ""), "customer-4250,000") {
				t.Errorf("%s: cells are missing at %d columns:\n%s", name, width, drawn)
			}
		}
		if drawn := g.render(0); strings.Contains(drawn, "…") || strings.Count(drawn, "\n") != len(g.rows) {
			t.Errorf("%s: cut without a terminal, or a row has more than a line:\n%s", name, drawn)
		}
	}
	if head, _, _ := strings.Cut(text.StripEscape(all["stats"].render(0)), "\n"); textWidth(head) > 80 {
		t.Errorf("a long name makes all rows wide: %q", head)
	}
}
