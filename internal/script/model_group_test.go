package script

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// write stores an envelope, as it reads.
func (m *model) write(id string, e message.Envelope) {
	m.msg[id] = e.Encode(message.When{Us: e.Due, Absolute: true})
}

// keyless takes the key from the envelope of a group, which goes on by it.
func (m *model) keyless(id string) {
	e, text := m.envelope(id), m.msg[id]
	numbers := fmt.Sprintf("%04d%07d", e.Group.Count, e.Group.Bytes)
	field := string(binary.AppendUvarint([]byte("\x81"), uint64(len(numbers)+len(e.Key)))) + numbers + e.Key
	m.msg[id] = text[:message.EnvelopeHead] + "\x00\x00" + strings.Replace(text[message.EnvelopeHead+2+len(e.Key):], "\x81\x0b"+numbers, field, 1)
}

// keyBefore is the key that a group had, if it goes on without.
func keyBefore(e message.Envelope) string {
	if e.Key != "" {
		return ""
	}
	return e.Delivered("", 0, 0).Key
}

// append adds the payload of another message to a group, if it has room, and says whether it is full.
func (m *model) append(id string, o *SendMessage) (added, full bool) {
	e, most := m.envelope(id), cmp.Or(o.Put.MaxParts, message.MaxParts)
	if e.Group.Count >= most {
		return false, true
	}
	text := o.Text
	if !o.When.Absolute {
		text = fmt.Sprintf("%c%016d%s", o.Version, 1, text)
	}
	other, err := message.DecodeEnvelope(text)
	if err != nil {
		panic(err)
	}
	e.Group.Count++
	e.Group.Bytes += len(other.Payload)
	m.parts[fmt.Sprint(id, ":", e.Group.Count)] = other.Payload
	m.write(id, e)
	return true, e.Group.Count >= most
}

// leave takes the key from a group, which lives on.
func (m *model) leave(id string) {
	key := m.envelope(id).Key
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
func (m *model) addParts(out *FetchReply, nth int, id, envelope string) {
	e, err := message.DecodeEnvelope(envelope)
	if err == nil && e.Countdown > 0 {
		if out.Missing == nil {
			out.Missing = map[int]int{}
		}
		counted, n := m.countdown(id)
		out.Missing[nth] = max(n-counted, 0)
	}
	if err != nil || e.Group.Count < 2 {
		return
	}
	if out.Parts == nil {
		out.Parts = map[int][]string{}
	}
	for n := 2; n <= e.Group.Count; n++ {
		out.Parts[nth] = append(out.Parts[nth], m.parts[fmt.Sprint(id, ":", n)])
	}
}

// weight is what a message counts in a reply.
func (m *model) weight(id string) int {
	n := len(m.msg[id])
	if e, err := message.DecodeEnvelope(m.msg[id]); err == nil && e.Group.Count > 1 {
		n += e.Group.Bytes + 256*e.Group.Count
	}
	return n
}
