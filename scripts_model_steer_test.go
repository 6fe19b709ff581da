package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"
)

func (m *model) intercept(by, id string, running bool) any {
	if by != "key" {
		return m.takeOut(id, running)
	}
	var first InterceptResult
	for _, id := range append([]string{m.key[id]}, m.leftBy(id)...) {
		r := m.takeOut(id, running)
		if r.State != StateGone && (r.State != StateUnack || running) {
			return r
		}
		first = cmp.Or(first, r)
	}
	return first
}

// takeOut takes out one message, if it may be.
func (m *model) takeOut(id string, running bool) InterceptResult {
	if m.msg[id] == "" {
		return InterceptResult{}
	}
	tag, state := tagOf(id, m.record(id).delivery), StateReady
	if due, ok := m.pending[tag]; ok && due > m.now {
		state = StatePending
	} else if _, ok := m.unack[tag]; ok {
		state = StateUnack
	} else if _, ok := m.retry[tag]; ok {
		state = StateRetry
	} else if _, ok := m.garbage[id]; ok {
		state = StateGarbage
	} else if until, ok := m.done[id]; ok && until > m.now {
		return InterceptResult{State: StateDone, ID: id}
	} else if ok {
		return InterceptResult{}
	}
	if state == StateUnack && !running {
		return InterceptResult{State: state, ID: id}
	}
	m.ready = slices.DeleteFunc(m.ready, func(other string) bool { return other == tag })
	if state == StateUnack {
		m.overrun(tag)
	}
	for _, set := range []map[string]int64{m.pending, m.unack, m.retry} {
		delete(set, tag)
	}
	m.forget(id)
	return InterceptResult{State: state, ID: id}
}

// found is where a delivery is, and its score there; only: in that structure alone.
func (m *model) found(id, only string) (tag, place string, score int64) {
	tag = tagOf(id, m.record(id).delivery)
	for _, set := range []struct {
		name string
		of   map[string]int64
		tag  string
	}{{"pending", m.pending, tag}, {"unack", m.unack, tag}, {"garbage", m.garbage, id}, {"retry", m.retry, tag}, {"done", m.done, id}} {
		if at, ok := set.of[set.tag]; ok && (only == "" || only == set.name) && (set.name != "done" || at > m.now) {
			return set.tag, set.name, at
		}
	}
	if slices.Contains(m.ready, tag) && (only == "" || only == "ready") {
		return tag, "ready", 0
	}
	return tag, "", 0
}

// steer moves or deletes what waits.
func (m *model) steer(do steerRequest) any {
	if m.newer && do.only != "" && do.only != "key" {
		return ErrUnknownLayout
	}
	out := make([]steered, len(do.targets))
	var first, nth int64
	for i, listed := range do.targets {
		if do.what == steerRelease {
			out[i] = m.release(listed.tag)
			continue
		}
		id, _ := splitTag(listed.tag)
		r := m.record(id)
		tag, place, score := m.found(id, do.only)
		if do.only != "" && (tag != listed.tag || listed.score != "" && listed.score != strconv.FormatInt(score, 10)) || m.msg[id] == "" {
			place = ""
		}
		due := place == "ready" || (place == "pending" || place == "retry") && score <= m.now
		out[i].state = max(0, State(slices.Index(stateNames[:], place)))
		if due {
			out[i].state = StateReady
		}
		deletes := do.what == "delete" || do.what == "cancel"
		if place == "" || place == "unack" && do.what != "cancel" || place == "garbage" != (do.what == "requeue") && !deletes ||
			place == "done" && !deletes {
			continue
		}
		e, err := decodeEnvelope(m.msg[id])
		if err != nil {
			panic(err)
		}
		if holder, held := m.holder(e.key); do.what == "requeue" && holder != "" && holder != id {
			out[i].holder, out[i].held = holder, held
			continue
		}
		out[i].done = true
		next := do.us + nth*do.step
		if do.what == "by" {
			next = do.us + max(score, 0)
			if place == "ready" {
				next = do.us + m.now
			}
		}
		nth++
		if next = min(next, forever); !deletes && next <= m.now && due {
			out[i].stays = true
			continue
		}
		next = max(next, m.now)
		m.ready = slices.DeleteFunc(m.ready, func(other string) bool { return other == tag })
		delete(m.pending, tag)
		delete(m.retry, tag)
		if place == "unack" {
			m.overrun(tag)
			delete(m.unack, tag)
		}
		if deletes {
			m.forget(id)
			continue
		}
		if place == "pending" {
			m.pending[tag] = next
			m.msg[id] = fmt.Sprintf("%s%016d%s", m.msg[id][:1], next, m.msg[id][envelopeHead:])
		} else {
			m.retry[tagOf(id, max(r.delivery, 2))] = next
		}
		if place == "garbage" {
			delete(m.garbage, id)
			m.note(id, failRecord{delivery: r.delivery, when: m.now, errors: r.errors})
			if e.key != "" {
				m.key[e.key] = id
			}
			if e.group.key != "" {
				m.setLeft(e.group.key, id, true)
			}
		}
		if first == 0 || next < first {
			first = next
		}
	}
	m.armLater(first)
	return out
}

// release ends the hold of a key.
func (m *model) release(key string) steered {
	if m.holds[key] <= m.now {
		return steered{}
	}
	delete(m.holds, key)
	if strings.HasPrefix(m.key[key], acked) {
		delete(m.key, key)
	}
	return steered{state: StateDone, done: true}
}

// setPause pauses until an instant, or, if that is not after now, goes on.
func (m *model) setPause(until int64, who onBehalf) any {
	if until != 0 && until <= m.now {
		return errPast
	}
	var since int64
	if _, err := fmt.Sscan(m.paused, &since); err != nil || m.pause <= m.now || since > m.now { // it begins, or the clock was stepped back
		since = m.now
	}
	m.pause, m.paused = 0, ""
	if until > m.now {
		m.pause, m.paused = until, fmt.Sprintf("%d %d %s\n%s", since, until, who.by, who.why)
	}
	var first int64
	for _, at := range []int64{head(m.pending), head(m.retry)} {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	if len(m.ready) > 0 && (first == 0 || m.now < first) {
		first = m.now
	}
	m.armLater(first)
	return nil
}

// await says what became of messages.
func (m *model) await(ids []string) []Result {
	out := make([]Result, len(ids))
	for i, id := range ids {
		out[i] = Result{ID: id, State: stateLive}
		until, done := m.done[id]
		died, dead := m.garbage[id]
		switch r := m.record(id); {
		case m.msg[id] == "" || done && until <= m.now:
			out[i].State = StateGone
		case done && r.superseded:
			out[i].State, out[i].Superseded, out[i].Err, out[i].At = StateDone, true, lastError(r.errors), time.UnixMicro(r.when)
		case done:
			out[i].State, out[i].Value, out[i].At = StateDone, m.result[id], time.UnixMicro(r.when)
		case dead:
			out[i].State, out[i].Err, out[i].At = StateGarbage, lastError(r.errors), time.UnixMicro(died)
		}
	}
	return out
}

// awaits looks for some messages.
func (m *machine) awaits(t *rapid.T) {
	var ids []string
	for range rapid.IntRange(1, min(m.most, 20)).Draw(t, "n") {
		ids = append(ids, idOf(strconv.Itoa(m.sent+1-rapid.IntRange(0, min(m.sent, 3*m.most)).Draw(t, "back"))))
	}
	got, err := m.store.await(context.Background(), ids)
	m.same(t, "await", got, err, m.await(ids))
}
