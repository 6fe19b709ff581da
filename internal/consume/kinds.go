package consume

import (
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// kinds count what became of the messages of each kind. A kind is the value of a header, so it is any bytes of a
// sender, and there may be any number of them.
type kinds struct {
	header string // "": nothing is counted

	mu    sync.Mutex // guards the fields below
	hour  int64      // of the newest counts, since 1970 by this machine's clock
	named map[string]*kindHours
	other kindHours // of the kinds that came while named was full
}

// kindHours are the counts of this hour, and of the hour before.
type kindHours [2]struct {
	handled, failed int64
	took            [script.KindBuckets]int64
}

// count counts a handler that has returned, or was cut off at its limit.
func (k *kinds) count(headers map[string]string, failed bool, took time.Duration, now time.Time) {
	kind := headers[k.header]
	kind = kind[:min(len(kind), script.MaxKindBytes)]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advance(now)
	hours := k.named[kind]
	if hours == nil && len(k.named) < script.MaxKinds {
		hours = new(kindHours)
		k.named[strings.Clone(kind)] = hours // a clone, because the message that kind is a part of may be large
	} else if hours == nil {
		hours = &k.other
	}
	n := &hours[0]
	if n.handled++; failed {
		n.failed++
	}
	n.took[min(bits.Len64(uint64(max(took.Milliseconds(), 0))), script.KindBuckets-1)]++
}

// advance begins a new hour if it has come, with mu held. A kind of which nothing was handled in two hours makes room.
func (k *kinds) advance(now time.Time) {
	hour := now.Unix() / 3600
	if k.named != nil && (hour == k.hour || hour == k.hour-1) { // another worker was faster, or the clock went back a bit
		return
	}
	next := hour == k.hour+1 // else the clock has moved by more, and nothing is of these two hours
	k.hour = hour
	if !next {
		k.named, k.other = make(map[string]*kindHours), kindHours{}
		return
	}
	k.other = kindHours{1: k.other[0]}
	for kind, hours := range k.named {
		if *hours = (kindHours{1: hours[0]}); hours[1].handled == 0 {
			delete(k.named, kind)
		}
	}
}

// report is what the consumer tells of the two hours.
func (k *kinds) report(now time.Time) (all []script.KindCount) {
	if k.header == "" {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.advance(now)
	for kind, hours := range k.named {
		all = append(all, hours.sum(kind))
	}
	if sum := k.other.sum(""); sum.Handled > 0 {
		sum.Other = true
		all = append(all, sum)
	}
	return all
}

func (h *kindHours) sum(kind string) script.KindCount {
	sum := script.KindCount{Kind: kind, Handled: h[0].handled + h[1].handled, Failed: h[0].failed + h[1].failed}
	for i := range script.KindBuckets {
		if n := h[0].took[i] + h[1].took[i]; n > 0 {
			sum.Took = append(sum.Took, make([]int64, i+1-len(sum.Took))...) // the entry is short if handlers are fast
			sum.Took[i] = n
		}
	}
	return sum
}
