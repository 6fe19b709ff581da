package script

import (
	"context"
	"slices"
	"strconv"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"pgregory.net/rapid"
)

func (m *machine) intercepts(t *rapid.T) {
	by, what := "key", rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(t, "key")
	if rapid.Bool().Draw(t, "by id") {
		// The newest first, and one that was never sent.
		by, what = "id", queuetest.IDOf(strconv.Itoa(m.sent+1-rapid.IntRange(0, min(m.sent, 3*m.most)).Draw(t, "back")))
	}
	running := rapid.Bool().Draw(t, "also while it is being handled")
	m.call(t, func(t *rapid.T, c Caller) {
		got, err := m.store.Intercept(context.Background(), &c, by, what, running)
		m.same(t, "intercept", got, err, m.existing(c, func() any { return m.intercept(by, what, running) }))
	})
}

// layouts lets a newer version take over the queue, or give it back.
func (m *machine) layouts(t *rapid.T) {
	m.newer = !m.newer
	err := m.UniversalClient.HDel(context.Background(), m.store.Keys.State, "layout").Err()
	if m.newer {
		err = m.HSet(context.Background(), m.store.Keys.State, "layout", "2").Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pauses for some seconds, for ever, or not at all.
func (m *machine) pauses(t *rapid.T) {
	until := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(m.now-1, m.now+4e6), rapid.Just(message.Forever)).Draw(t, "until")
	by, why := rapid.SampledFrom([]string{"", "ann"}).Draw(t, "by"), rapid.SampledFrom([]string{"", "12 is full"}).Draw(t, "why")
	m.call(t, func(t *rapid.T, c Caller) { m.doPause(t, c, until, by, why) })
}

func (m *machine) doPause(t *rapid.T, c Caller, until int64, by, why string) {
	err := m.store.Pause(context.Background(), &c, until, by, why)
	m.same(t, "pause", nil, err, m.existing(c, func() any { return m.setPause(until, by, why) }))
}

func (m *machine) steers(t *rapid.T) {
	do := SteerRequest{
		What: rapid.SampledFrom([]string{"at", "by", "requeue", "delete", "cancel"}).Draw(t, "what"),
		Us:   rapid.Int64Range(-5e6, 8e6).Draw(t, "us"), Step: rapid.Int64Range(0, 1000).Draw(t, "step"),
		Only: rapid.SampledFrom([]string{"", "", "pending", "garbage", "retry", "ready", "unack", "done", "waiting"}).Draw(t, "only"),
	}
	if do.What != "by" {
		do.Us += m.now
	}
	var ids []string
	for range rapid.IntRange(1, min(m.most, 20)).Draw(t, "n") { // the newest first, and one that was never sent
		id := queuetest.IDOf(strconv.Itoa(m.sent + 1 - rapid.IntRange(0, min(m.sent, 3*m.most)).Draw(t, "back")))
		if slices.Contains(ids, id) {
			continue
		}
		ids = append(ids, id)
		at := Spot{Tag: id}
		if do.Only != "" { // as a list would have found it, or before it has moved
			tag, _, score := m.found(id, do.Only)
			at.Tag, at.Score = tag, rapid.SampledFrom([]string{strconv.FormatInt(score, 10), strconv.FormatInt(score, 10), "", "1"}).Draw(t, "score")
		}
		do.Targets = append(do.Targets, at)
	}
	if rapid.IntRange(0, 9).Draw(t, "a key") == 0 {
		do = SteerRequest{What: SteerRelease, Only: "key", Targets: []Spot{{Tag: rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(t, "release")}}}
	}
	if rapid.IntRange(0, 4).Draw(t, "skip") == 0 && do.Only == "" {
		do = SteerRequest{What: rapid.SampledFrom([]string{SteerLast, SteerGarbage}).Draw(t, "to"), Targets: do.Targets}
		for i := range do.Targets {
			do.Targets[i].Score = "skipped" // the error
		}
	}
	m.call(t, func(t *rapid.T, c Caller) {
		got, err := m.store.Steer(context.Background(), &c, do)
		m.same(t, "steer", got, err, m.existing(c, func() any { return m.steer(do) }))
	})
}
