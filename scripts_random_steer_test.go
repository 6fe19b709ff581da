package delayqueue

import (
	"context"
	"slices"
	"strconv"

	"pgregory.net/rapid"
)

func (m *machine) intercepts(t *rapid.T) {
	by, what := "key", rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(t, "key")
	if rapid.Bool().Draw(t, "by id") {
		// The newest first, and one that was never sent.
		by, what = "id", idOf(strconv.Itoa(m.sent+1-rapid.IntRange(0, min(m.sent, 3*m.most)).Draw(t, "back")))
	}
	running := rapid.Bool().Draw(t, "also while it is being handled")
	m.call(t, func(t *rapid.T, c caller) {
		got, err := m.store.intercept(context.Background(), &c, by, what, running)
		m.same(t, "intercept", got, err, m.existing(c, func() any { return m.intercept(by, what, running) }))
	})
}

// layouts lets a newer version take over the queue, or give it back.
func (m *machine) layouts(t *rapid.T) {
	m.newer = !m.newer
	err := m.UniversalClient.HDel(context.Background(), m.store.keys.state, "layout").Err()
	if m.newer {
		err = m.HSet(context.Background(), m.store.keys.state, "layout", "2").Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pauses for some seconds, for ever, or not at all.
func (m *machine) pauses(t *rapid.T) {
	until := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(m.now-1, m.now+4e6), rapid.Just(forever)).Draw(t, "until")
	who := onBehalf{rapid.SampledFrom([]string{"", "ann"}).Draw(t, "by"), rapid.SampledFrom([]string{"", "12 is full"}).Draw(t, "why")}
	m.call(t, func(t *rapid.T, c caller) { m.doPause(t, c, until, who) })
}

func (m *machine) doPause(t *rapid.T, c caller, until int64, who onBehalf) {
	err := m.store.pause(context.Background(), &c, until, who)
	m.same(t, "pause", nil, err, m.existing(c, func() any { return m.setPause(until, who) }))
}

func (m *machine) steers(t *rapid.T) {
	do := steerRequest{
		what: rapid.SampledFrom([]string{"at", "by", "requeue", "delete", "cancel"}).Draw(t, "what"),
		us:   rapid.Int64Range(-5e6, 8e6).Draw(t, "us"), step: rapid.Int64Range(0, 1000).Draw(t, "step"),
		only: rapid.SampledFrom([]string{"", "", "pending", "garbage", "retry", "ready", "unack", "done"}).Draw(t, "only"),
	}
	if do.what != "by" {
		do.us += m.now
	}
	var ids []string
	for range rapid.IntRange(1, min(m.most, 20)).Draw(t, "n") { // the newest first, and one that was never sent
		id := idOf(strconv.Itoa(m.sent + 1 - rapid.IntRange(0, min(m.sent, 3*m.most)).Draw(t, "back")))
		if slices.Contains(ids, id) {
			continue
		}
		ids = append(ids, id)
		at := spot{tag: id}
		if do.only != "" { // as a list would have found it, or before it has moved
			tag, _, score := m.found(id, do.only)
			at.tag, at.score = tag, rapid.SampledFrom([]string{strconv.FormatInt(score, 10), strconv.FormatInt(score, 10), "", "1"}).Draw(t, "score")
		}
		do.targets = append(do.targets, at)
	}
	if rapid.IntRange(0, 9).Draw(t, "a key") == 0 {
		do = steerRequest{what: steerRelease, only: "key", targets: []spot{{tag: rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(t, "release")}}}
	}
	m.call(t, func(t *rapid.T, c caller) {
		got, err := m.store.steer(context.Background(), &c, do)
		m.same(t, "steer", got, err, m.existing(c, func() any { return m.steer(do) }))
	})
}
