package delayqueue

import (
	"cmp"
	"math"
	"slices"
)

// toGo are n of what is done: those that are over soonest, but for what was acked within the last 5 s, as far as there is
// anything else behind that.
func (m *model) toGo(n int) (going []string) {
	const spare = 5_000_000
	var spared []string
	from := int64(math.MinInt64)
	for range 4 {
		page := slices.DeleteFunc(until(m.done, math.MaxInt64, len(m.done)), func(id string) bool { return m.done[id] < from })
		upto := int64(math.MaxInt64)
		for _, id := range page[:min(n-len(going), len(page))] {
			if m.done[id] > upto {
				break
			}
			if at := m.record(id).when; at <= m.now && at > m.now-spare {
				spared = append(spared, id)
				upto = min(upto, m.done[id]+spare)
			} else {
				going = append(going, id)
			}
		}
		if upto == math.MaxInt64 {
			break
		}
		from = upto + 1
	}
	slices.SortFunc(spared, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.record(a).when, m.record(b).when), cmp.Compare(a, b))
	})
	for _, id := range slices.Concat(spared, until(m.done, math.MaxInt64, n)) {
		if len(going) < n && !slices.Contains(going, id) {
			going = append(going, id)
		}
	}
	return going
}
