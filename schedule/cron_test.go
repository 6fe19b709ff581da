package schedule

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
)

// a timing says when an entry is due.
func mustCron(t *testing.T, text, zone string) *cronTiming {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseCron(text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// prev is the last instant before one. It is found by what finds the latest of several.
func prev(t timing, before int64) (int64, bool) {
	return t.latest(before, before-searchDays*daySeconds, 1)
}

const written = "2006-01-02 15:04 -0700"

// TestClocksThatChange: what comes after an instant, where clocks are changed.
func TestClocksThatChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cron, zone, after, want string }{
		{"0 9 * * 1-5", "Europe/Berlin", "2026-03-27 09:00 +0100", "2026-03-30 09:00 +0200"},
		{"30 2 * * *", "America/New_York", "2026-03-07 02:30 -0500", "2026-03-08 03:00 -0400, 2026-03-09 02:30 -0400"},
		{"0,30 2 * * *", "America/New_York", "2026-03-07 02:30 -0500", "2026-03-08 03:00 -0400, 2026-03-09 02:00 -0400"},
		{"0 2,3 * * *", "America/New_York", "2026-03-07 03:00 -0500", "2026-03-08 03:00 -0400, 2026-03-09 02:00 -0400"},
		{"30 1 * * *", "America/New_York", "2026-10-31 01:30 -0400", "2026-11-01 01:30 -0400, 2026-11-02 01:30 -0500"},
		{"30 * * * *", "America/New_York", "2026-11-01 00:30 -0400",
			"2026-11-01 01:30 -0400, 2026-11-01 01:30 -0500, 2026-11-01 02:30 -0500"},
		{"30 */1 * * *", "America/New_York", "2026-03-08 01:30 -0500", "2026-03-08 03:30 -0400"},
		{"30 0-2/1 * * *", "America/New_York", "2026-03-08 01:30 -0500", "2026-03-09 00:30 -0400"},
		{"0 0 * * *", "Pacific/Apia", "2011-12-29 00:00 -1000", "2011-12-31 00:00 +1400"}, // the 30th did not exist
		{"0 23 * * *", "America/Nuuk", "2024-03-29 23:00 -0200", "2024-03-31 00:00 -0100, 2024-03-31 23:00 -0100"},
		{"30 1 * * *", "Australia/Lord_Howe", "2026-04-04 01:30 +1100", "2026-04-05 01:30 +1100, 2026-04-06 01:30 +1030"},
		{"0,5 0 * * *", "America/St_Johns", "2010-11-06 00:05 -0230",
			"2010-11-07 00:00 -0230, 2010-11-07 00:05 -0330"}, // 0:01 was 23:01
		{"30 23,0 * * *", "America/St_Johns", "2010-11-06 22:00 -0230", "2010-11-06 23:30 -0230, 2010-11-07 00:30 -0330"},
		{"30 */1 * * *", "America/St_Johns", "2010-11-06 23:00 -0230",
			"2010-11-06 23:30 -0230, 2010-11-06 23:30 -0330, 2010-11-07 00:30 -0330"},
		{"0 0 29 2 *", "", "2096-02-29 00:00 +0000", "2104-02-29 00:00 +0000"},
		{"0 0 13 * 5", "", "2026-11-01 00:00 +0000",
			"2026-11-06 00:00 +0000, 2026-11-13 00:00 +0000, 2026-11-20 00:00 +0000"},
		{"@weekly", "", "2026-11-22 00:00 +0000", "2026-11-29 00:00 +0000"},
	} {
		at, err := time.Parse(written, c.after)
		if err != nil {
			t.Fatal(err)
		}
		timing := mustCron(t, c.cron, c.zone)
		instant := at.Unix()
		for want := range strings.SplitSeq(c.want, ", ") {
			before := instant
			instant, _ = timing.next(instant)
			if got := time.Unix(instant, 0).In(timing.zone).Format(written); got != want {
				t.Errorf("%q in %s: after %s comes %s, want %s", c.cron, c.zone, c.after, got, want)
			}
			if back, _ := prev(timing, instant); before != at.Unix() && back != before {
				t.Errorf("%q in %s: before %s is %d, want %d", c.cron, c.zone, want, back, before)
			}
		}
	}
	count := 0
	timing := mustCron(t, "*/15 * * * *", "America/New_York")
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, timing.zone).Unix() - 1
	end := time.Date(2026, 11, 2, 0, 0, 0, 0, timing.zone).Unix()
	for at, _ := timing.next(begin); at < end; at, _ = timing.next(at) {
		count++
	}
	if count != 100 {
		t.Errorf("*/15 comes %d times in a day of 25 hours", count)
	}
}

// TestAgreesWithRobfig: in a zone whose clocks are never changed, instants are those of robfig/cron.
func TestAgreesWithRobfig(t *testing.T) {
	t.Parallel()
	field := func(low, high int) string {
		a, b := low+rand.IntN(high-low+1), low+rand.IntN(high-low+1)
		return []string{"*", strconv.Itoa(a), strconv.Itoa(min(a, b)) + "-" + strconv.Itoa(max(a, b)),
			"*/" + strconv.Itoa(1+rand.IntN(min(9, high-low))),
			strconv.Itoa(a) + "," + strconv.Itoa(b)}[rand.IntN(5)]
	}
	for range 1000 {
		text := strings.Join([]string{field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)}, " ")
		timing := mustCron(t, text, "Asia/Kolkata")
		oracle, err := cron.ParseStandard(text)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rand.Int64N(4e9), 0).In(timing.zone)
		for range 5 {
			want := oracle.Next(at)
			got, found := timing.next(at.Unix())
			if want.IsZero() || want.Sub(at) > searchDays*24*time.Hour {
				break
			}
			if !found || got != want.Unix() {
				t.Fatalf("%q after %v: %v, want %v", text, at, time.Unix(got, 0).In(timing.zone), want)
			}
			if before, _ := prev(timing, got+1); before != got {
				t.Fatalf("%q: the last one until %v is %v", text, want, time.Unix(before, 0).In(timing.zone))
			}
			at = want
		}
	}
}

// TestDaysByRule: L, W and # as Quartz has them, ranges that wrap, and 7.
func TestDaysByRule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0 0 L 2 *":   "2027-02-28 2028-02-29 2029-02-28",
		"0 0 L * *":   "2026-11-30 2026-12-31 2027-01-31 2027-02-28",
		"0 0 L-3 * *": "2026-11-27 2026-12-28 2027-01-28 2027-02-25",
		"0 0 LW * *":  "2026-11-30 2026-12-31 2027-01-29 2027-02-26",
		"0 0 15W * *": "2026-12-15 2027-01-15 2027-02-15 2027-03-15 2027-04-15 2027-05-14 2027-06-15 2027-07-15 " +
			"2027-08-16",
		"0 0 1W * *":       "2026-12-01 2027-01-01 2027-02-01 2027-03-01 2027-04-01 2027-05-03",
		"0 0 31W 1,2,10 *": "2027-01-29 2027-10-29 2028-01-31",
		"0 0 * * FRI#2":    "2026-12-11 2027-01-08 2027-02-12",
		"0 0 * * 5l":       "2026-11-27 2026-12-25 2027-01-29",
		"0 0 * * 7L":       "2026-11-29 2026-12-27",
		"0 0 * 2 MON#5":    "2044-02-29 2072-02-29 2112-02-29",
		"0 0 1,L * MON#1":  "2026-11-30 2026-12-01 2026-12-07 2026-12-31",
		"0 0 1-1 * *":      "2026-12-01 2027-01-01",
		"0 0 * * 7":        "2026-11-29 2026-12-06",
		"0 0 * * FRI-MON":  "2026-11-27 2026-11-28 2026-11-29 2026-11-30 2026-12-04",
		"0 0 * * 6-7":      "2026-11-28 2026-11-29 2026-12-05",
		"0 0 * * 5-2/2":    "2026-11-24 2026-11-27 2026-11-29 2026-12-01",
		"0 0 1 nov-feb *":  "2026-12-01 2027-01-01 2027-02-01 2027-11-01",
		"0 0 28-2 12 *":    "2026-12-01 2026-12-02 2026-12-28 2026-12-29",
	} {
		timing := mustCron(t, text, "")
		at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC).Unix()
		for _, day := range strings.Fields(want) {
			before := at
			at, _ = timing.next(at)
			if got := time.Unix(at, 0).UTC().Format(time.DateOnly); got != day {
				t.Errorf("%q: after %v comes %s, want %s", text, time.Unix(before, 0).UTC(), got, day)
			}
		}
	}
	timing := mustCron(t, "0 22-2 * * *", "Europe/Berlin")
	at := time.Date(2026, 3, 28, 23, 30, 0, 0, timing.zone).Unix()
	for _, want := range []string{"2026-03-29 00:00 +0100", "2026-03-29 01:00 +0100", "2026-03-29 03:00 +0200",
		"2026-03-29 22:00 +0200"} {
		if at, _ = timing.next(at); time.Unix(at, 0).In(timing.zone).Format(written) != want {
			t.Errorf("22-2: %v, want %s", time.Unix(at, 0).In(timing.zone), want)
		}
	}
	if _, err := parseCron(strings.Repeat("1,", maxCron)+"1 * * * *", time.UTC); !errors.Is(err, ErrBadEntry) ||
		len(err.Error()) > 200 {
		t.Errorf("of a long one: %v", err)
	}
}

func TestEveryTiming(t *testing.T) {
	t.Parallel()
	for _, e := range []everyTiming{{1, 0}, {3, 2}, {3600, 600}} {
		for _, at := range []int64{-5, 0, 1, 2, 3, 3599, 3600, 4200, 1790000000} {
			next, _ := e.next(at)
			last, _ := prev(e, at)
			if next <= at || next > at+e.every || last >= at || last < at-e.every ||
				floorDiv(next-e.offset, e.every)*e.every != next-e.offset {
				t.Errorf("%+v: around %d are %d and %d", e, at, last, next)
			}
		}
	}
}

// TestBrokenCron: the error says where it breaks and what was expected.
func TestBrokenCron(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                      "position 1: want the minute",
		"0 9 * *":               "position 8: want the day of the week",
		"0 25 * * *":            `position 3: hour "25": want 0 to 23`,
		"0 9,x * * *":           `position 5: hour "x": want 0 to 23`,
		"0 9,,10 * * *":         `position 5: hour "": want`,
		" 0  9 32 * *":          `position 7: day of the month "32": want 1 to 31`,
		"0 9 * FOO *":           `position 7: month "FOO": want 1 to 12 or JAN to DEC`,
		"0 9 * * 8":             `position 9: day of the week "8": want 0 (Sunday) to 7 or SUN to SAT, FRIL, FRI#2`,
		"0 9 * * 9-1":           `position 9: day of the week "9-1"`,
		"0 9 * * FRI#6":         `position 9: day of the week "FRI#6"`,
		"0 9 * * L":             `position 9: day of the week "L"`,
		"0 9 L-31 * *":          `position 5: day of the month "L-31"`,
		"0 9 1,W * *":           `position 7: day of the month "W": want 1 to 31, L, LW, L-3, 15W`,
		"0 9 32W * *":           `position 5: day of the month "32W"`,
		"L 9 * * *":             `position 1: minute "L"`,
		"5-1/0 * * * *":         `position 1: minute "5-1/0"`,
		"5-60 * * * *":          `position 1: minute "5-60"`,
		"*/0 * * * *":           `position 1: minute "*/0"`,
		"*/60 * * * *":          `position 1: minute "*/60": its step leads to no second value; for an interval use Every`,
		"*/90 * * * *":          `position 1: minute "*/90": its step`,
		"0,*/120 * * * *":       `position 3: minute "*/120": its step`,
		"30/30 * * * *":         `position 1: minute "30/30": its step`,
		"30/90 * * * *":         `position 1: minute "30/90": its step`,
		"0 */24 * * *":          `position 3: hour "*/24": its step`,
		"0 */36 * * *":          `position 3: hour "*/36": its step`,
		"0 9-17/12 * * *":       `position 3: hour "9-17/12": its step`,
		"0 0 */40 * *":          `position 5: day of the month "*/40": its step`,
		"0 0 1 */18 *":          `position 7: month "*/18": its step`,
		"* * * * */8":           `position 9: day of the week "*/8": its step`,
		"0 0 * * 0-7/7":         `position 9: day of the week "0-7/7": its step`, // Sunday twice
		"0 0 * * FRI-MON/4":     `position 9: day of the week "FRI-MON/4": its step`,
		"0 0 9 * * *":           `position 11: "*": want no more than five fields`,
		"TZ=Asia/Tokyo * * * *": "position 1: \"TZ=Asia/Tokyo\": the zone of an entry is its Zone",
		"@every 1h":             "position 1: want five fields, or @hourly",
		"@daily * * * *":        "position 1",
		"* * * * @daily":        "position 9",
	} {
		_, err := parseCron(text, time.UTC)
		if !errors.Is(err, ErrBadEntry) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	never := mustCron(t, "0 0 30 2 *", "")
	if at, found := never.next(1790000000); found {
		t.Errorf("30 February is %d", at)
	}
}

// TestLatest: of the latest instants the first is where as many steps back lead.
func TestLatest(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Pacific/Apia", "Australia/Lord_Howe", "Antarctica/Troll", "America/St_Johns",
		"Europe/Berlin", "Asia/Gaza", "America/Nuuk"}
	pick := func(of ...string) string { return of[rand.IntN(len(of))] }
	for range 500 {
		zone := pick(zones...)
		text := strings.Join([]string{pick("*", "0", "*/7", "0,30"), pick("*", "0", "2", "23,0", "*/5"),
			pick("*", "1", "30,31"), "*", pick("*", "1-5")}, " ")
		timings := []timing{mustCron(t, text, zone), everyTiming{1 + rand.Int64N(5000), 0}}
		for _, base := range slices.Clone(timings) {
			timings = append(timings, window{base, rand.Int64N(7200), 200_000_000, 2_000_000_000})
		}
		before := 100_000_000 + rand.Int64N(2_000_000_000) // no entry is before 1970
		if _, end := time.Unix(before, 0).In(mustCron(t, text, zone).zone).ZoneBounds(); !end.IsZero() && rand.IntN(2) == 0 {
			before = end.Unix() + rand.Int64N(2*daySeconds) - daySeconds
		}
		after, n := before-rand.Int64N(20*daySeconds), rand.IntN(60)
		for _, timing := range timings {
			want, at := int64(0), before
			for range n {
				earlier, found := prev(timing, at)
				if !found || earlier <= after {
					break
				}
				want, at = earlier, earlier
			}
			counted := int64(0)
			for at, found := timing.next(after); found && at < before && counted < mostCounted; at, found = timing.next(at) {
				counted++
			}
			if got := timing.count(after, before); got != counted && counted < mostCounted || got < counted {
				t.Fatalf("%s %s: %d lie between %d and %d, want %d", text, zone, got, after, before, counted)
			}
			if got, found := timing.latest(before, after, n); found != (want > 0) || found && got != want {
				t.Fatalf("%s %s: the latest %d between %d and %d begin at %d, %v, want %d", text, zone, n, after, before, got,
					found, want)
			}
		}
	}
}
