package web

import (
	"time"

	"github.com/go-delayqueue/delayqueue"
)

const (
	sampleFor   = 5 * time.Minute // how long samples are kept
	rateFor     = time.Minute     // over which rates are counted
	rateAtLeast = time.Second
)

// A sample is what is remembered of a look.
type sample struct {
	At     time.Time
	Waits  int64            // that are pending, ready, or wait for a retry
	Behind time.Duration    // of the oldest that is ready
	Hour   delayqueue.Tally // the present one
}

// samples are those of a queue, oldest first.
type samples struct{ all []sample }

// add returns all, which nobody changes any more.
func (s *samples) add(l *look) []sample {
	one := sample{At: l.At, Waits: l.Waits(), Behind: l.Counts.Behind}
	if len(l.Hours) > 0 {
		one.Hour = l.Hours[len(l.Hours)-1]
	}
	kept := make([]sample, 0, len(s.all)+1)
	for _, old := range s.all {
		if l.At.Sub(old.At) <= sampleFor {
			kept = append(kept, old)
		}
	}
	s.all = append(kept, one)
	return s.all
}

// since is what was counted from a sample on.
func (l *look) since(s sample) (n delayqueue.Tally) {
	for _, hour := range l.Hours {
		if !hour.Start.Before(s.Hour.Start) {
			n = plus(n, hour, 1)
		}
	}
	return plus(n, s.Hour, -1)
}

func plus(a, b delayqueue.Tally, times int64) delayqueue.Tally {
	a.Sent += times * b.Sent
	a.Delivered += times * b.Delivered
	a.Acked += times * b.Acked
	a.Failed += times * b.Failed
	a.Lost += times * b.Lost
	a.Garbage += times * b.Garbage
	return a
}

// A rate is a number a second; it is not known until there are two samples.
type rate struct {
	PerSecond float64
	Known     bool
}

// rates say how many messages come in and go out a second, over the last minute or as long as somebody has looked.
func (l *look) rates() (in, out rate) {
	for _, s := range l.Samples {
		took := l.At.Sub(s.At)
		if took > rateFor {
			continue
		}
		if took < rateAtLeast {
			break
		}
		n := l.since(s)
		per := func(n int64) rate { return rate{max(float64(n), 0) / took.Seconds(), true} }
		return per(n.Sent), per(n.Acked + n.Garbage)
	}
	return rate{}, rate{}
}

// hour is what was counted in the last hour: in the present one, and of the one before a share as long as is missing.
func (l *look) hour() (n delayqueue.Tally) {
	if len(l.Hours) == 0 {
		return n
	}
	last := l.Hours[len(l.Hours)-1]
	if len(l.Hours) == 1 {
		return last
	}
	before := l.Hours[len(l.Hours)-2]
	share := 1 - min(max(float64(l.At.Sub(last.Start))/float64(time.Hour), 0), 1)
	part := func(n int64) int64 { return int64(float64(n)*share + 0.5) }
	return plus(last, delayqueue.Tally{
		Sent: part(before.Sent), Delivered: part(before.Delivered), Acked: part(before.Acked), Failed: part(before.Failed),
		Lost: part(before.Lost), Garbage: part(before.Garbage),
	}, 1)
}

// failing is how many of a hundred deliveries of the last hour failed or were lost; -1 if there were none.
func (l *look) failing() float64 {
	n := l.hour()
	if ended := n.Acked + n.Failed + n.Lost; ended > 0 {
		return 100 * float64(n.Failed+n.Lost) / float64(ended)
	}
	return -1
}

// workers says how many of how many are busy.
func (l *look) workers() (busy, all int) {
	for _, c := range l.Consumers {
		busy += min(len(c.Handling), c.Concurrency)
		all += c.Concurrency
	}
	return busy, all
}
