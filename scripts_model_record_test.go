package delayqueue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// record is what is known of earlier deliveries; delivery is the current one.
func (m *model) record(id string) failRecord {
	r, err := parseFail(m.fail[id])
	if err != nil {
		return failRecord{delivery: 1}
	}
	return r
}

func (m *model) note(id string, r failRecord) {
	mark := ""
	if r.superseded {
		mark = supersededMark
	}
	m.fail[id] = fmt.Sprintf("%d %d %d %d %s%s", r.delivery, r.failures, r.losses, r.when, mark, r.errors)
}

// withError puts one error more before those of a record, of which each is cut to so many bytes.
func (m *model) withError(delivery int, text, errors string, most int) string {
	out := fmt.Sprintf("\x1e%d %d %s", m.now, delivery, text)
	for i, one := range strings.Split(errors, "\x1e")[1:] {
		if words := strings.SplitN(one, " ", 3); i < 4 {
			out += "\x1e" + words[0] + " " + words[1] + " " + strings.ToValidUTF8(words[2][:min(len(words[2]), most)], "")
		}
	}
	return out
}

// lastChance: one more loss would make it poison.
func (m *model) lastChance(tag string) bool {
	losses := m.record(idIn(tag)).losses
	return losses > 0 && losses >= int(m.claims[1].value)-1
}

// fitting gives back what has no room in the reply to a repeat.
func (m *model) fitting(tags []string, a fetchRequest) []string {
	bytes, total := cmp.Or(a.bytes, maxBatchBytes), 0
	fit := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool {
		size := m.weight(idIn(tag))
		if total+size > bytes {
			return true
		}
		total += size
		return false
	})
	if len(fit) == 0 && len(tags) > 0 {
		fit = tags[:1]
	}
	for _, tag := range tags {
		if !slices.Contains(fit, tag) {
			delete(m.unack, tag)
			r := m.record(idIn(tag))
			m.note(idIn(tag), failRecord{r.delivery + 1, r.failures, r.losses, m.now, r.errors, false})
			m.ready = append(m.ready, tagOf(idIn(tag), r.delivery+1))
		}
	}
	return fit
}
