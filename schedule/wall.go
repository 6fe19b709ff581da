package schedule

import "time"

const daySeconds = 24 * 60 * 60

// A wallClock is what the clocks of a zone show around one day. Wall times are seconds since 1970 as if they were UTC.
type wallClock struct {
	stretches []stretch // around the day, one after the other
	pieces    []stretch // those of them in which it is that day
}

// A stretch is a time from one instant to before another in which clocks go evenly.
type stretch struct{ from, to, offset int64 }

func (s stretch) shows(wall int64) bool { return s.from+s.offset <= wall && wall < s.to+s.offset }

// farthest is more than any zone is away from UTC.
const farthest = 26 * 60 * 60

func clockOf(zone *time.Location, day int64) wallClock {
	var c wallClock
	begin, end := day*daySeconds-farthest, (day+1)*daySeconds+farthest
	for at := begin; at < end; {
		t := time.Unix(at, 0).In(zone)
		_, offset := t.Zone()
		s := stretch{at, end, int64(offset)}
		if _, until := t.ZoneBounds(); !until.IsZero() && until.Unix() < end {
			s.to = until.Unix()
		}
		if n := len(c.stretches); n > 0 && c.stretches[n-1].offset == s.offset { // another name for the same time
			c.stretches[n-1].to = s.to
		} else {
			c.stretches = append(c.stretches, s)
		}
		at = s.to
	}
	for _, s := range c.stretches {
		if s.from+s.offset < (day+1)*daySeconds && s.to+s.offset > day*daySeconds {
			c.pieces = append(c.pieces, s)
		}
	}
	return c
}

// once is the instant at which the clocks show a wall time of a day that exists: the first if they do so twice, and the
// first instant after the gap if they never do.
func (c *wallClock) once(wall int64) int64 {
	for _, s := range c.stretches {
		if s.shows(wall) {
			return wall - s.offset
		}
	}
	for i := 1; i < len(c.stretches); i++ {
		before, s := c.stretches[i-1], c.stretches[i]
		if before.to+before.offset <= wall && wall < s.from+s.offset {
			return s.from
		}
	}
	return c.stretches[len(c.stretches)-1].to // not reached: there is a stretch or a gap for each wall time of the day
}

// all yields every instant at which the clocks show a wall time.
func (c *wallClock) all(wall int64, yield func(int64)) {
	for _, s := range c.stretches {
		if s.shows(wall) {
			yield(wall - s.offset)
		}
	}
}

func offsetAt(zone *time.Location, at int64) int64 {
	_, offset := time.Unix(at, 0).In(zone).Zone()
	return int64(offset)
}

// floorDiv is a / b, rounded down; b is positive.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// mostCounted is how many instants are counted one by one, at most.
const mostCounted = 1000

// An everyTiming is the multiples of an interval since 1970, and an offset.
type everyTiming struct{ every, offset int64 } // s

func (e everyTiming) next(after int64) (int64, bool) {
	return (floorDiv(after-e.offset, e.every)+1)*e.every + e.offset, true
}

func (e everyTiming) latest(before, after int64, n int) (int64, bool) {
	last := floorDiv(before-e.offset-1, e.every)*e.every + e.offset
	first, _ := e.next(after)
	return max(first, last-int64(max(n, 1)-1)*e.every), n > 0 && first <= last
}

func (e everyTiming) count(after, before int64) int64 {
	return max(floorDiv(before-1-e.offset, e.every)-floorDiv(after-e.offset, e.every), 0)
}

// A window is those instants of a timing, each so much later, that lie from begin to end.
type window struct {
	timing
	by, begin, end int64 // s
}

func (w window) next(after int64) (int64, bool) {
	instant, found := w.timing.next(max(after, w.begin-1) - w.by)
	return instant + w.by, found && instant+w.by <= w.end
}

func (w window) latest(before, after int64, n int) (int64, bool) {
	first, found := w.timing.latest(min(before, w.end+1)-w.by, max(after, w.begin-1)-w.by, n)
	return first + w.by, found
}

func (w window) count(after, before int64) int64 {
	return w.timing.count(max(after, w.begin-1)-w.by, min(before, w.end+1)-w.by)
}
