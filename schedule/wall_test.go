package schedule

import (
	"archive/zip"
	"flag"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata"
)

var allZones = flag.Bool("zones", false, "walk through all zones, not some of them")

// zoneNames are those of tzdata.
func zoneNames(t *testing.T) (names []string) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	return names
}

// Ten years, and how far apart the instants are that the walk looks at; where clocks changed in between, it looks at
// each minute.
const (
	walkFrom = 1609459200 // 2021
	walkTo   = 1924992000 // 2031
	walkStep = 15 * 60
	halfHour = 30 * 60
)

// A walk is what the clocks of a zone showed at each instant of ten years, found by looking at one after the other.
type walk struct {
	days  map[int64]bool  // that exist
	first map[int64]int64 // wall time, of half hours: the first instant at which it is shown
	gap   map[int64]int64 // wall time that is passed over: the first instant after
	all   []int64         // all instants at which a half hour is shown
	wall  int64           // that was looked at last
}

func walkThrough(zone *time.Location) *walk {
	w := &walk{days: map[int64]bool{}, first: map[int64]int64{}, gap: map[int64]int64{}}
	last := offsetAt(zone, walkFrom-walkStep)
	for at := int64(walkFrom); at < walkTo; at += walkStep {
		offset := offsetAt(zone, at)
		for minute := at - walkStep + 60; offset != last && minute < at; minute += 60 {
			w.look(minute, offsetAt(zone, minute))
		}
		w.look(at, offset)
		last = offset
	}
	return w
}

func (w *walk) look(at, offset int64) {
	wall := at + offset
	w.days[floorDiv(wall, daySeconds)] = true
	for missing := (floorDiv(w.wall, halfHour) + 1) * halfHour; w.wall != 0 && missing < wall; missing += halfHour {
		if _, twice := w.gap[missing]; !twice {
			w.gap[missing] = at
		}
	}
	if w.wall = wall; wall%halfHour != 0 {
		return
	}
	w.all = append(w.all, at)
	if _, seen := w.first[wall]; !seen {
		w.first[wall] = at
	}
}

// TestEveryHalfHourOfEveryZone: a fixed time of day comes once on each day that exists, at the first instant at
// which it is shown, or the first one after the gap.
func TestEveryHalfHourOfEveryZone(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	names := make(chan string)
	for range 2 {
		wg.Go(func() {
			for name := range names {
				checkZone(t, name)
			}
		})
	}
	nasty := []string{"Australia/Lord_Howe", "America/Nuuk", "Africa/Casablanca", "Antarctica/Troll", "Asia/Gaza",
		"America/Havana",
		"Asia/Beirut", "Pacific/Apia"}
	n := 0
	for i, name := range append(nasty, zoneNames(t)...) {
		if *allZones || i < len(nasty) || i%60 == 0 {
			names <- name
			n++
		}
	}
	close(names)
	wg.Wait()
	t.Logf("%d zones", n)
}

func checkZone(t *testing.T, name string) {
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Error(err)
		return
	}
	w := walkThrough(zone)
	at := func(instant int64) time.Time { return time.Unix(instant, 0).In(zone) }
	for day := int64(walkFrom/daySeconds + 2); day < walkTo/daySeconds-2; day++ {
		clock := clockOf(zone, day)
		if exists := len(clock.pieces) > 0; exists != w.days[day] {
			t.Errorf("%s: day %d exists: %v", name, day, exists)
			continue
		} else if !exists {
			continue
		}
		for wall := day * daySeconds; wall < (day+1)*daySeconds; wall += halfHour {
			want, shown := w.first[wall]
			if !shown {
				want = w.gap[wall]
			}
			if got := clock.once(wall); got != want {
				t.Errorf("%s: %v, want %v", name, at(got), at(want))
			}
		}
	}
	steps, err := parseCron("*/30 * * * *", zone)
	if err != nil {
		t.Error(err)
		return
	}
	for i := 200; i < len(w.all)-200; i++ {
		if i%20000 > 50 && w.all[i+1]-w.all[i] == halfHour &&
			w.all[i]-w.all[i-1] == halfHour { // all around a change, and some others
			continue
		}
		if got, _ := steps.next(w.all[i]); got != w.all[i+1] {
			t.Errorf("%s: */30 after %v is %v, want %v", name, at(w.all[i]), at(got), at(w.all[i+1]))
		}
		if got, _ := prev(steps, w.all[i]); got != w.all[i-1] {
			t.Errorf("%s: */30 before %v is %v, want %v", name, at(w.all[i]), at(got), at(w.all[i-1]))
		}
	}
}
