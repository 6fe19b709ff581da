package script

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"pgregory.net/rapid"
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
	return slices.Sorted(maps.Keys(m.unack))
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
			m.unack[name] = m.now + m.longest() - int64(i)
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

func (m *model) intercept(by, id string, running bool) any {
	before := m.canceled
	defer func() {
		if m.armLater(m.sinceTurned()); m.canceled != before {
			m.freed()
		}
	}()
	if by != "key" {
		return m.takeOut(id, running)
	}
	first := InterceptReply{State: StateGone}
	for _, id := range append([]string{m.key[id]}, m.leftBy(id)...) {
		r := m.takeOut(id, running)
		if r.State != StateGone && (r.State != stateUnack || running) {
			return r
		}
		if first.State == StateGone {
			first = r
		}
	}
	return first
}

// takeOut takes out one message, if it may be.
func (m *model) takeOut(id string, running bool) InterceptReply {
	_, state, at := m.found(id, "")
	switch {
	case state == "":
		return InterceptReply{State: StateGone}
	case state == StateDone || state == stateUnack && !running:
		return InterceptReply{State: state, ID: id}
	case state == statePending && at <= m.now:
		state = stateReady
	case state == stateUnack:
		m.noteCancel()
	}
	m.forget(id, map[bool]string{true: "out:canceled", false: "out:intercepted"}[running])
	return InterceptReply{State: state, ID: id}
}

// found is where a delivery is, and its score there; only: in that structure alone.
func (m *model) found(id, only string) (tag, place string, score int64) {
	tag = queuetest.TagOf(id, m.record(id).Delivery)
	for _, set := range []struct {
		name string
		of   map[string]int64
		tag  string
	}{{"pending", m.pending, tag}, {"garbage", m.garbage, id}, {"retry", m.retry, tag}, {"waiting", m.waiting, tag},
		{"done", m.done, id}} {
		if at, ok := set.of[set.tag]; ok && (only == "" || only == set.name) && (set.name != "done" || at > m.now) {
			return set.tag, set.name, at
		}
	}
	if slices.Contains(m.ready, tag) && (only == "" || only == "ready") {
		return tag, "ready", 0
	}
	if _, held := m.allHeld()[tag]; held && (only == "" || only == "unack") {
		return tag, "unack", -1
	}
	return tag, "", 0
}

// steer moves or deletes what waits.
func (m *model) steer(do SteerRequest) any {
	if m.newer && do.Only != "" && do.Only != "key" {
		return ErrUnknownLayout
	}
	out := make([]Steered, len(do.Targets))
	var nth int64
	canceled := false
	for i, listed := range do.Targets {
		if do.What == SteerRelease {
			out[i] = m.release(listed.Tag)
			continue
		}
		if do.What == SteerLast || do.What == SteerGarbage {
			out[i] = m.skip(listed.Tag, do.What, listed.Score)
			continue
		}
		id, _ := message.SplitTag(listed.Tag)
		r := m.record(id)
		tag, place, score := m.found(id, do.Only)
		if do.Only != "" &&
			(tag != listed.Tag || listed.Score != "" && score >= 0 && listed.Score != strconv.FormatInt(score, 10)) ||
			m.msg[id] == "" {
			place = ""
		}
		due := place == "ready" || (place == "pending" || place == "retry") && score <= m.now
		out[i].State = cmp.Or(place, StateGone)
		if due {
			out[i].State = stateReady
		}
		deletes := do.What == "delete" || do.What == "cancel"
		if place == "" || place == "unack" && do.What != "cancel" || place == "garbage" != (do.What == "requeue") &&
			!deletes ||
			place == "done" && !deletes {
			continue
		}
		e := m.envelope(id)
		if holder, held := m.holder(e.Key); do.What == "requeue" && holder != "" && holder != id {
			out[i].Holder, out[i].Held = holder, held
			continue
		}
		next := do.Us + nth*do.Step
		if do.What == "by" {
			next = do.Us + max(score, 0)
			if place == "ready" {
				next = do.Us + m.now
			}
		}
		next = min(next, message.Forever)
		stays := !deletes && next <= m.now && (due || place == "waiting" && score <= m.now)
		next = max(next, m.now)
		fresh := tag == id && place != "garbage"
		if fresh && !stays {
			e.Due = next
		}
		if !deletes && isOver(e, fresh, next) {
			if out[i].Expired = !do.Anew; out[i].Expired {
				continue
			}
			m.lift(id)
			stays = false
		}
		out[i].Done = true
		nth++
		if out[i].Stays = stays; stays {
			continue
		}
		if place == "unack" {
			canceled = true
		}
		if deletes {
			m.forget(id, map[bool]string{true: "out:canceled", false: "out:deleted"}[do.What == SteerCancel])
			continue
		}
		if place != "garbage" {
			m.shift(id, next)
		}
		if tag == id && place != "garbage" {
			m.redue(id, next)
		}
		if place == "garbage" {
			delete(m.garbage, id)
			m.note(id, message.FailRecord{Delivery: max(r.Delivery, 2), When: m.now,
				Errors: r.Errors}) // 1: it was skipped before its first
			m.layDown(id, next)
			if e.Key != "" {
				m.key[e.Key] = id
			}
			if key := keyBefore(e); key != "" {
				m.setLeft(key, id, true)
			}
		}
	}
	m.armLater(m.sinceTurned())
	if canceled {
		m.noteCancel()
		m.freed()
	}
	return out
}

// release ends the hold of a key.
func (m *model) release(key string) Steered {
	if m.holds[key] <= m.now {
		return Steered{State: StateGone}
	}
	delete(m.holds, key)
	if strings.HasPrefix(m.key[key], acked) {
		delete(m.key, key)
	}
	return Steered{State: StateDone, Done: true}
}

// setPause pauses until an instant, or, if that is not after now, goes on.
func (m *model) setPause(until int64, by, why string) any {
	if until != 0 && until <= m.now {
		return errPast
	}
	var since int64
	if _, err := fmt.Sscan(m.paused, &since); err != nil || m.pause <= m.now ||
		since > m.now { // it begins, or the clock was stepped back
		since = m.now
	}
	m.pause, m.paused = 0, ""
	if until > m.now {
		m.pause, m.paused = until, fmt.Sprintf("%d %d %s\n%s", since, until, by, why)
	}
	first := sooner(head(m.pending), head(m.retry))
	if len(m.ready) > 0 {
		first = sooner(first, m.now)
	}
	m.armLater(first)
	return nil
}

// await says what became of messages.
func (m *model) await(ids []string) []AwaitReply {
	out := make([]AwaitReply, len(ids))
	for i, id := range ids {
		out[i].Word = AwaitLive
		until, done := m.done[id]
		died, dead := m.garbage[id]
		switch r := m.record(id); {
		case m.msg[id] == "" || done && until <= m.now:
			out[i].Word = StateGone
		case done && r.Superseded:
			out[i] = AwaitReply{AwaitSuperseded, r.When, message.LastError(r.Errors)}
		case done:
			out[i] = AwaitReply{StateDone, r.When, m.result[id]}
		case dead:
			out[i] = AwaitReply{stateGarbage, died, message.LastError(r.Errors)}
		}
	}
	return out
}

// awaits looks for some messages.
func (m *machine) awaits(t *rapid.T) {
	ids := m.ids(t)
	got, err := m.store.Await(queuetest.CtxB, ids)
	m.same(t, "await", got, err, m.await(ids))
}
