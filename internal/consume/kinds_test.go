package consume

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestKindsOfTwoHours: an hour's counts are reported until the end of the next hour.
func TestKindsOfTwoHours(t *testing.T) {
	t.Parallel()
	k, now := &kinds{header: "kind"}, time.Unix(3600*500_000, 0)
	says := func(want string) {
		t.Helper()
		if got, _ := json.Marshal(k.report(now)); string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	says("null")
	ship := map[string]string{"kind": "ship", "other": "x"}
	k.count(ship, false, 999*time.Microsecond, now)
	k.count(ship, true, 5*time.Millisecond, now.Add(59*time.Minute))
	now = now.Add(time.Hour)
	k.count(ship, false, time.Millisecond, now)
	says(`[{"kind":"ship","n":3,"failed":1,"took":[1,1,0,1]}]`)
	now = now.Add(time.Hour)
	says(`[{"kind":"ship","n":1,"took":[0,1]}]`)
	k.count(nil, true, 100*time.Hour, now)
	k.count(ship, false, -time.Hour, now)
	now = now.Add(2 * time.Hour)
	says("null")
	k.count(ship, false, 0, now)
	now = now.Add(-24 * time.Hour) // the clock was wrong
	says("null")
}

// TestHostileKinds: any number of kinds, of any length, make an entry of some kilobytes. Nothing is missing in its sum.
func TestHostileKinds(t *testing.T) {
	t.Parallel()
	k, now := &kinds{header: "kind"}, time.Now()
	for i := range 60 {
		kind := fmt.Sprintf("%02d\xff\u202e\x00<b>", i) + strings.Repeat("\u4e16", 1<<16)
		k.count(map[string]string{"kind": kind}, i >= script.MaxKinds, time.Hour, now)
	}
	all := k.report(now)
	text, err := json.Marshal(all)
	if err != nil || len(text) > 20<<10 || len(all) != script.MaxKinds+1 {
		t.Errorf("%d kinds in %d bytes, %v", len(all), len(text), err)
	}
	if last := all[script.MaxKinds]; !last.Other || last.Handled != 10 || last.Failed != 10 {
		t.Errorf("%+v", last)
	}
	now = now.Add(time.Hour)
	k.advance(now)
	now = now.Add(time.Hour)
	if k.count(map[string]string{"kind": "new"}, false, 0, now); k.report(now)[0].Kind != "new" {
		t.Error("old kinds make no room")
	}
}

// A handling must not cost memory.
func TestKindsAllocateNothing(t *testing.T) {
	k, now, headers := &kinds{header: "kind"}, time.Now(), map[string]string{"kind": "ship"}
	if n := testing.AllocsPerRun(100, func() { k.count(headers, true, time.Second, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCountKind(b *testing.B) {
	k, headers := &kinds{header: "kind"}, map[string]string{"kind": "ship"}
	b.ReportAllocs()
	for b.Loop() {
		k.count(headers, false, time.Millisecond, time.Now())
	}
}
