package delayqueue

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
)

// write stores an envelope, as it reads.
func (m *model) write(id string, e envelope) { m.msg[id] = e.encode(when{us: e.due, absolute: true}) }

// keyless takes the key from an envelope; a group goes on by it.
func (m *model) keyless(id string) {
	e := m.envelope(id)
	if e.group.count == 0 {
		m.msg[id] = m.msg[id][:envelopeHead] + "\x00\x00" + m.msg[id][envelopeHead+2+len(e.key):]
		return
	}
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
