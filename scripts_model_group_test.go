package delayqueue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// write stores an envelope, as it reads.
func (m *model) write(id string, e envelope) { m.msg[id] = e.encode(when{us: e.due, absolute: true}) }

// keyless takes the key from the envelope of a group, which goes on by it.
func (m *model) keyless(id string) {
	e := m.envelope(id)
	e.key, e.group.key = "", e.key
	m.write(id, e)
}

// append adds the payload of another message to a group, if it has room, and says whether it is full.
func (m *model) append(id string, o *sendMessage) (added, full bool) {
	e, most := m.envelope(id), cmp.Or(o.put.maxParts, maxParts)
	if e.group.count >= most {
		return false, true
	}
	text := o.text
	if !o.when.absolute {
		text = fmt.Sprintf("%c%016d%s", o.version, 1, text)
	}
	other, err := decodeEnvelope(text)
	if err != nil {
		panic(err)
	}
	e.group.count++
	e.group.bytes += len(other.payload)
	m.parts[fmt.Sprint(id, ":", e.group.count)] = other.payload
	m.write(id, e)
	return true, e.group.count >= most
}

// leave takes the key from a group, which lives on.
func (m *model) leave(id string) {
	key := m.envelope(id).key
	m.keyless(id)
	m.setLeft(key, id, true)
}

// leftBy are the groups that left a key, the newest first.
func (m *model) leftBy(key string) []string { return strings.Fields(m.parts[":"+key]) }

// setLeft notes that a group that left a key lives, or does not any more.
func (m *model) setLeft(key, id string, lives bool) {
	ids := slices.DeleteFunc(m.leftBy(key), func(other string) bool { return other == id })
	if lives {
		ids = append([]string{id}, ids...)
	}
	m.parts[":"+key] = strings.Join(ids[:min(len(ids), 100)], " ")
	if len(ids) == 0 {
		delete(m.parts, ":"+key)
	}
}

func (m *model) dropParts(id string) {
	maps.DeleteFunc(m.parts, func(field, _ string) bool { return strings.HasPrefix(field, id+":") })
}

// addParts adds those of a group to the reply of a fetch.
func (m *model) addParts(out *fetchReply, nth int, id, envelope string) {
	e, err := decodeEnvelope(envelope)
	if err != nil || e.group.count < 2 {
		return
	}
	if out.parts == nil {
		out.parts = map[int][]string{}
	}
	for n := 2; n <= e.group.count; n++ {
		out.parts[nth] = append(out.parts[nth], m.parts[fmt.Sprint(id, ":", n)])
	}
}

// weight is what a message counts in a reply.
func (m *model) weight(id string) int {
	n := len(m.msg[id])
	if e, err := decodeEnvelope(m.msg[id]); err == nil && e.group.count > 1 {
		n += e.group.bytes + 256*e.group.count
	}
	return n
}
