package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Merged is the state of a queue as if it had one shard, for tests that look at its messages. Findings does not hold
// for it. Now is that of the first shard. Entries are in order of score, and ready entries in that of the shards. If
// two shards have a lease of the same name, that of the later shard has the shard's number behind its name. A
// consumer has one name in all shards, and counts once.
func (s *Sharded) Merged() *State {
	if len(s.Shards) == 1 {
		return s.Shards[0]
	}
	all := newState(s.Queue)
	all.Now = s.Shards[0].Now
	for i, one := range s.Shards {
		all.Pending = append(all.Pending, one.Pending...)
		all.Ready = append(all.Ready, one.Ready...)
		all.Unack = append(all.Unack, one.Unack...)
		all.Retry = append(all.Retry, one.Retry...)
		all.Waiting = append(all.Waiting, one.Waiting...)
		all.Garbage = append(all.Garbage, one.Garbage...)
		all.Done = append(all.Done, one.Done...)
		all.Lanes = append(all.Lanes, one.Lanes...)
		all.Holds = append(all.Holds, one.Holds...)
		all.Markers = append(all.Markers, one.Markers...)
		all.Journal = append(all.Journal, one.Journal...)
		all.Strays = append(all.Strays, one.Strays...)
		all.Wake = soonestOf(all.Wake, one.Wake)
		maps.Copy(all.Messages, one.Messages)
		maps.Copy(all.Fail, one.Fail)
		maps.Copy(all.Keys, one.Keys)
		maps.Copy(all.Results, one.Results)
		maps.Copy(all.Parts, one.Parts)
		maps.Copy(all.Counted, one.Counted)
		maps.Copy(all.Missing, one.Missing)
		maps.Copy(all.Left, one.Left)
		maps.Copy(all.Sequences, one.Sequences)
		maps.Copy(all.TTLs, one.TTLs)
		maps.Copy(all.WrongType, one.WrongType)
		beside(all.Leases, one.Leases, i+1)
		for name, said := range one.Consumers {
			all.Consumers[name] = cmp.Or(all.Consumers[name], said)
		}
		for field, value := range one.Fields {
			all.Fields[field] = mergedField(field, all.Fields[field], value)
		}
		for field, value := range one.History {
			all.History[field] = sums(all.History[field], value)
		}
	}
	for _, entries := range [][]Entry{all.Pending, all.Unack, all.Retry, all.Waiting, all.Garbage, all.Done} {
		slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Score, b.Score) })
	}
	for _, markers := range [][]Marker{all.Holds, all.Markers} {
		slices.SortStableFunc(markers, func(a, b Marker) int { return cmp.Compare(a.Score, b.Score) })
	}
	return all
}

// beside adds what a shard has by name.
func beside[T any](to, from map[string]T, shard int) {
	for name, value := range from {
		if _, taken := to[name]; taken {
			name = fmt.Sprintf("%s (shard %d)", name, shard)
		}
		to[name] = value
	}
}

// soonestOf is the earlier of two instants, of which 0 is none.
func soonestOf(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// mergedField is a field of state. The books and the counters are sums, an alarm is the earliest, and other numbers
// are the largest. Of texts the first counts.
func mergedField(field, before, value string) string {
	a, err := decimal(before)
	b, err2 := decimal(value)
	switch {
	case before == "":
		return value
	case err != nil || err2 != nil || strings.HasPrefix(field, callField):
		return before
	case field == "armed":
		a = soonestOf(a, b)
	case slices.Contains([]string{"dropped", "canceled", "kept"}, field) || strings.HasPrefix(field, "in:") ||
		strings.HasPrefix(field, "out:"):
		a += b
	default:
		a = max(a, b)
	}
	return strconv.FormatInt(a, 10)
}

// sums adds numbers with blanks between, one by one.
func sums(before, value string) string {
	a, b := strings.Fields(before), strings.Fields(value)
	if len(a) != len(b) {
		return cmp.Or(before, value)
	}
	for i := range a {
		x, _ := decimal(a[i])
		y, _ := decimal(b[i])
		a[i] = strconv.FormatInt(x+y, 10)
	}
	return strings.Join(a, " ")
}
