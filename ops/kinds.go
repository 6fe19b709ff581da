package ops

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Kind is what became of the messages of one kind, which is the value of the header that WithKindHeader of
// delayqueue names. It counts the handlers of this hour and of the hour before that have returned, or were cut off at
// their limit. A consumer keeps these counts in memory, so those of a consumer that has stopped are gone.
type Kind struct {
	Header  string // that WithKindHeader names; "" if Other
	Name    string // the value, cut to 64 bytes; "" of messages without the header
	Other   bool   // all kinds for which there was no room, together: each consumer has room for 50
	Handled int64
	Failed  int64 // of Handled; not those that returned Snooze, Again or Throttle

	// P50 is the time within which half of the handlers ended, and P95 that of 95 of a hundred. Both are rounded up to
	// 1 ms, 2 ms, 4 ms, ... The largest value is 2^21 ms (35 min), which also stands for longer times.
	P50, P95 time.Duration

	took [script.KindBuckets]int64
}

// KindsOf adds up the kinds of consumers. It returns those with the most failures first, and of these those with the
// most handled messages: at most 50, and then all others as one, whose Other is true. It returns none if no consumer
// names a header.
func KindsOf(consumers []Consumer) []Kind {
	var all []Kind
	for _, c := range consumers {
		all = append(all, c.Kinds...)
	}
	return sumKinds(all)
}

// sumKinds adds up those of one name, and what is more than 50.
func sumKinds(all []Kind) (sums []Kind) {
	type name struct{ header, name string }
	at := map[name]int{}
	other := Kind{Other: true}
	for _, k := range all {
		if k.Other {
			other.add(&k)
		} else if i, met := at[name{k.Header, k.Name}]; met {
			sums[i].add(&k)
		} else {
			at[name{k.Header, k.Name}] = len(sums)
			sums = append(sums, k)
		}
	}
	slices.SortFunc(sums, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(b.Handled, a.Handled), strings.Compare(a.Name, b.Name))
	})
	if len(sums) > script.MaxKinds {
		for _, k := range sums[script.MaxKinds:] {
			other.add(&k)
		}
		sums = sums[:script.MaxKinds]
	}
	if other.Handled > 0 {
		sums = append(sums, other)
	}
	return sums
}

func (k *Kind) add(more *Kind) {
	k.Handled += more.Handled
	k.Failed += more.Failed
	for i, n := range more.took {
		k.took[i] += n
	}
	k.P50, k.P95 = k.within(50), k.within(95)
}

// within is the time in which so many of a hundred handlers ended.
func (k *Kind) within(percent int64) time.Duration {
	ended := int64(0)
	for i, n := range k.took {
		if ended += n; ended > 0 && ended*100 >= k.Handled*percent {
			return time.Millisecond << i
		}
	}
	return 0
}

// most is the largest count that is believed of an entry, so that no sum overflows.
const most = 1 << 40

// kindsOf reads what an entry has of kinds.
func kindsOf(s *script.Presence) []Kind {
	var all []Kind
	for _, n := range s.Kinds[:min(len(s.Kinds), script.MaxKinds+1)] {
		k := Kind{Header: s.KindHeader, Name: n.Kind, Other: n.Other}
		if k.Other {
			k.Header, k.Name = "", ""
		}
		for i := range min(len(n.Took), script.KindBuckets) {
			k.took[i] = min(max(n.Took[i], 0), most)
			k.Handled += k.took[i]
		}
		k.Failed = min(max(n.Failed, 0), k.Handled)
		k.P50, k.P95 = k.within(50), k.within(95)
		all = append(all, k)
	}
	return sumKinds(all)
}
