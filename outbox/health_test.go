package outbox

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	const behind = ": see the log of the box that relays, if Redis answers, and if a table is locked"
	const alone = ": call Box.Run for this queue in some process"
	for _, tt := range []struct {
		stats Stats
		want  string
	}{
		{Stats{}, "fine"},
		{Stats{Relayed: true, Sent: 7, Healed: 2, Refused: 1}, "fine"},
		{Stats{Relayed: true, Waiting: 5000, Oldest: time.Minute}, "fine"},
		{Stats{Waiting: 1, Oldest: 30 * time.Second}, "fine"}, // all replicas have just started
		{Stats{Relayed: true, Waiting: 1, Oldest: 61 * time.Second}, "1 row waits, the oldest for 1m1s" + behind},
		{Stats{Relayed: true, Waiting: 1234, Oldest: 3*time.Minute + time.Millisecond},
			"1,234 rows wait, the oldest for 3m0s" + behind},
		{Stats{Waiting: 1234567, Oldest: 26 * time.Hour},
			"no box relays, and 1,234,567 rows wait, the oldest for 26h0m0s" + alone},
		{Stats{Relayed: true, Dead: 1}, "1 row is dead: see Box.Dead"},
		{Stats{Dead: 3}, "3 rows are dead: see Box.Dead"},
		{Stats{Waiting: 999, Oldest: time.Hour, Dead: 3},
			"no box relays, and 999 rows wait, the oldest for 1h0m0s" + alone + "; 3 rows are dead: see Box.Dead"},
	} {
		if got := tt.stats.Health(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.stats, got, tt.want)
		}
	}
}

// TestLogDead: the log has a line a minute, with all rows that have died.
func TestLogDead(t *testing.T) {
	var out strings.Builder
	r := &relay{name: "orders", box: &Box{log: slog.New(slog.NewTextHandler(&out, nil))}}
	die := func(rows int) {
		r.deadRows, r.lastDead = r.deadRows+rows, errors.New("why")
		r.logDead()
	}
	die(51)
	die(3)
	die(4)
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "rows=51") ||
		!strings.Contains(got, "orders") || !strings.Contains(got, "why") {
		t.Error(got)
	}
	r.deadLogged = r.deadLogged.Add(-time.Minute)
	die(1)
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "rows=8") {
		t.Error(got)
	}
}
