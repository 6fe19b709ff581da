package delayqueue

import (
	"context"
	"fmt"
	"strconv"

	"pgregory.net/rapid"
)

// put stores the messages one after the other.
func (m *model) put(batch []*sendMessage) any {
	out := sendReply{now: m.now}
	var first int64
	for _, o := range batch {
		a := m.putOne(o)
		if a.kind == answerStored && (first == 0 || a.due < first) {
			first = a.due
		}
		out.answers = append(out.answers, a)
	}
	m.armLater(first)
	return out
}

func (m *model) putOne(o *sendMessage) sendAnswer {
	if digits := m.sequence[o.put.sequence]; digits != "" {
		if last, err := sequenceNumber(digits); err != nil || last >= o.put.number {
			return sendAnswer{kind: answerPassed, last: last}
		}
	}
	if holder := m.key[o.key]; holder != "" {
		return sendAnswer{kind: answerTaken, holder: holder}
	}
	due := o.when.due(m.now)
	m.storeAt(o, due)
	if o.put.sequence != "" {
		m.sequence[o.put.sequence] = sequenceDigits(o.put.number)
	}
	return sendAnswer{due: due}
}

// storeAt makes a message pending.
func (m *model) storeAt(o *sendMessage, due int64) {
	version, tail := o.version, o.text
	if o.when.absolute {
		version, tail = o.text[0], o.text[envelopeHead:]
	}
	m.pending[o.id] = due
	m.msg[o.id] = fmt.Sprintf("%c%016d%s", version, due, tail)
	if o.key != "" {
		m.key[o.key] = o.id
	}
	m.count("sent", 1)
}

func (m *machine) puts(t *rapid.T) {
	if len(m.msg) > 5*m.most {
		return
	}
	batch := make([]*sendMessage, rapid.IntRange(1, min(m.most, maxPut)).Draw(t, "n"))
	for i := range batch {
		m.sent++
		e := envelope{payload: strconv.Itoa(m.sent), retries: 3}
		due := when{us: rapid.Int64Range(0, 8e6).Draw(t, "delay")}
		if rapid.Bool().Draw(t, "at an instant") {
			due = when{us: m.now + rapid.Int64Range(-1e6, 8e6).Draw(t, "when"), absolute: true}
		}
		e.key = rapid.SampledFrom([]string{"", "k1", "k2", "k3"}).Draw(t, "key")
		batch[i] = &sendMessage{id: idOf(e.payload), key: e.key, when: due, text: e.encode(due), version: e.version()}
		batch[i].put = &putOptions{sequence: rapid.SampledFrom([]string{"", "s1", "s2"}).Draw(t, "sequence"), number: rapid.Int64Range(-20, 20).Draw(t, "number")}
	}
	m.call(t, func(t *rapid.T, c caller) {
		got, err := m.store.send(context.Background(), &c, sendRequest{messages: batch})
		m.same(t, "put", got, err, m.once(c, func() any { return m.put(batch) }))
	})
}
