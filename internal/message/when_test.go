package message

import (
	"errors"
	"math"
	"strconv"
	"testing"
	"time"
)

// TestDelayed: rounded up to microseconds, for a message is never early; bounded on both sides.
func TestDelayed(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		math.MinInt64:                0,
		-time.Nanosecond:             0,
		0:                            0,
		time.Nanosecond:              1,
		3600:                         4,
		time.Millisecond - 1:         1000,
		time.Millisecond:             1000,
		time.Millisecond + 1:         1001,
		time.Second - 1:              1000000,
		1500 * time.Microsecond:      1500,
		MaxDelay - time.Nanosecond:   4730400000000000,
		150 * 365 * 24 * time.Hour:   4730400000000000,
		MaxDelay + time.Nanosecond:   -1,
		time.Duration(math.MaxInt64): -1,
	} {
		if w, err := Delayed(d); err == nil && w != (When{Us: want}) || (want < 0) != errors.Is(err, ErrBadOption) {
			t.Errorf("delay %v: %+v, %v; want %d", d, w, err, want)
		}
	}
}

// TestScheduled: the same for instants, whatever their zone.
func TestScheduled(t *testing.T) {
	east := time.FixedZone("east", 14*60*60)
	for _, c := range []struct {
		t    time.Time
		want string
	}{
		{time.Time{}, ""},
		{time.Time{}.In(east), ""},
		{time.Unix(math.MaxInt64, 0), ""}, // which wraps
		{time.Unix(math.MinInt64/2, 0), ""},
		{time.Date(-290000, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Date(1900, 1, 1, 0, 0, 0, -1, time.UTC), ""},
		{time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), "0"},
		{time.Unix(0, -1), "0"},
		{time.Unix(0, 0), "0"},
		{time.Unix(0, 1), "1"},
		{time.Unix(0, 1000), "1"},
		{time.Unix(0, 1001), "2"},
		{time.Unix(1717200000, 999_999_999), "1717200001000000"},
		{time.Unix(1717200000, 123_456_000).In(east), "1717200000123456"},
		{time.Date(2199, 12, 31, 23, 59, 59, 999_999_000, time.UTC), "7258118399999999"},
		{time.Date(2199, 12, 31, 23, 59, 59, 999_999_001, time.UTC), "7258118400000000"},
		{time.Date(2200, 1, 1, 13, 59, 59, 0, east), "7258118399000000"},
		{time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Date(2200, 1, 1, 14, 0, 0, 0, east), ""},
		{time.Date(290000, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Unix(math.MaxInt64/2, 0), ""},
	} {
		if w, err := Scheduled(c.t); err == nil && (strconv.FormatInt(w.Us, 10) != c.want || !w.Absolute) ||
			(c.want == "") != errors.Is(err, ErrBadOption) {
			t.Errorf("schedule %v: %+v, %v; want %s", c.t, w, err, c.want)
		}
	}
}
