package script

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// lend gives deliveries a lease, which ends then.
func (m *model) lend(name string, ends int64, tags []string) {
	m.unack[name] = ends
	m.listed[name], m.listed[name+"#"] = strings.Join(tags, " "), strconv.Itoa(len(tags))
}

// endLease forgets a lease.
func (m *model) endLease(name string) {
	delete(m.unack, name)
	delete(m.listed, name)
	delete(m.listed, name+"#")
}

// leases are the names of all leases.
func (m *contents) leases() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.unack)), func(name string) bool { return strings.HasPrefix(name, "overrun:") })
}

// isHeld says whether a delivery that a lease lists is held.
func (m *model) isHeld(tag string) bool {
	id, n := message.SplitTag(tag)
	_, again := m.pending[tag]
	return m.msg[id] != "" && m.record(id).Delivery <= n && !again
}

// heldOf is what is held of a lease, in the order of its list.
func (m *model) heldOf(name string) []string {
	return slices.DeleteFunc(strings.Fields(m.listed[name]), func(tag string) bool { return !m.isHeld(tag) })
}

// allHeld has all deliveries that are held, each with its lease.
func (m *model) allHeld() map[string]string {
	all := map[string]string{}
	for _, name := range m.leases() {
		for _, tag := range m.heldOf(name) {
			all[tag] = name
		}
	}
	return all
}

// taken is how many places are taken: by what is held, and by handlers that run on.
func (m *model) taken() int {
	overruns := len(m.unack) - len(m.leases())
	return overruns + len(m.allHeld())
}

// letGo takes settled deliveries off the count of a lease.
func (m *model) letGo(name string, settled int) {
	left, err := strconv.Atoi(m.listed[name+"#"])
	if err != nil || settled == 0 {
		return
	}
	if left -= settled; left <= 0 {
		m.endLease(name)
	} else {
		m.listed[name+"#"] = strconv.Itoa(left)
	}
}

// extend renews leases, and says which messages are there.
func (m *model) extend(names, ids []string) any {
	out := ExtendReply{Canceled: m.canceled, Left: make([]int, len(names)), There: make([]bool, len(ids))}
	for i, name := range names {
		if _, there := m.unack[name]; there {
			m.unack[name] = m.now + m.lease() - int64(i)
			out.Left[i], _ = strconv.Atoi(m.listed[name+"#"])
		}
	}
	for i, id := range ids {
		out.There[i] = m.msg[id] != ""
	}
	return out
}

// lendRest gives what is left of a lease to one of another name.
func (m *model) lendRest(name string, ends int64, tags []string) {
	name = strings.TrimRight(name, "~")
	for there := true; there; _, there = m.listed[name] {
		name += "~"
	}
	m.lend(name, ends, tags)
}

// keep parts a lease, of which its holder holds some.
func (m *model) keep(name string, tags []string) int {
	ends, listed := m.unack[name], strings.Fields(m.listed[name])
	mine := slices.DeleteFunc(slices.Clone(listed), func(tag string) bool { return !slices.Contains(tags, tag) })
	rest := slices.DeleteFunc(listed, func(tag string) bool { return slices.Contains(tags, tag) || !m.isHeld(tag) })
	if len(mine) == 0 {
		return 0
	}
	m.lend(name, ends, mine)
	if len(rest) > 0 {
		m.lendRest(name, ends, rest)
		m.noteCancel()
	}
	return len(rest)
}

// noteCancel notes when a held message was canceled, or a lease parted, last.
func (m *model) noteCancel() { m.canceled = max(m.now, m.canceled+1) }

// lasting is how long a lease lasts that some consumer asked for lately; 0 if none did.
func (m *model) lasting() int64 {
	if m.forgotten(0) {
		return 0
	}
	return m.claims[0].value
}
