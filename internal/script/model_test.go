package script

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// A model is the queue in plain Go: maps and a clock. Each of its methods does what the script
// of that name should do, and answers what the typed call of that name should return.
type model struct {
	contents
	now     int64 // unix us
	with    FetchSettings
	calls   map[string]answered // by caller
	used    bool                // the queue has a key
	newer   bool                // the layout is one that this version does not know
	changed bool                // some message that waits was changed by a send
	swept   int64               // when a tick last forgot callers

	lasting grace             // of the last fetch
	claim   claim             // of a lease
	placed  map[string]string // id -> the tag under which a message got its turn
	turned  int64             // sinceTurned
	again   int64             // when the first message comes again that a tick took back
	turnDue bool              // since a settle began, a message that is due got a turn
	limits  modelLimits
}

// contents is what Redis holds of a queue, but for what shows in answers alone: the callers' last
// calls, the longest envelope, and how far callers have been swept.
type contents struct {
	pending, unack, retry, garbage, done map[string]int64 // tag -> instant
	waiting                              map[string]int64
	lanes                                map[string]int64 // members; of the model, laneMembers
	ready                                []string
	msg, fail, key, sequence, result     map[string]string
	parts, listed                        map[string]string // listed: the hash lease
	holds                                map[string]int64  // message key -> until when an acked message keeps it
	holdAt                               int64             // the first of these
	// fields of state about limits; of the model, modelLimits.fields
	limited [5]string
	wake    int64 // instant on the marker; 0: somebody took it, or there is none

	armed, seen, canceled, pause, ticked, doneAt, aging int64
	paused, grace, lease                                string

	counts  [10]int64        // not yet in history
	books   map[string]int64 // totals
	history map[string]string
}

// claim is the longest lease that a consumer asked for, and when one did.
type claim struct{ value, at int64 }

// grace: leases that end up to upto have it. before: up to it they had the one before, which is over.
type grace struct{ begun, upto, before int64 }

// answered is a caller's last call.
type answered struct {
	n      int64
	answer any
	at     int64 // when it was carried out last

	before struct{ n, at int64 } // of a fetch: the call before
}

// errStale is the answer to a call that is older than its caller's last.
var errStale = errors.New("DQSTALE")

func newModel(with FetchSettings) *model {
	return &model{contents: newContents(), now: rigBase, with: with, calls: map[string]answered{},
		placed: map[string]string{}}
}

// sets, hashes and numbers are what Redis has as such, in the order of contentsScript.
func (c *contents) sets() []*map[string]int64 {
	return []*map[string]int64{&c.pending, &c.unack, &c.retry, &c.garbage, &c.done, &c.holds, &c.waiting, &c.lanes}
}

func (c *contents) hashes() []*map[string]string {
	return []*map[string]string{&c.msg, &c.fail, &c.key, &c.sequence, &c.result, &c.parts, &c.listed, &c.history}
}

func (c *contents) numbers() []*int64 {
	return []*int64{&c.wake, &c.armed, &c.seen, &c.canceled, &c.pause, &c.ticked, &c.doneAt, &c.holdAt, &c.aging}
}

func newContents() contents {
	c := contents{books: map[string]int64{}}
	for _, set := range c.sets() {
		*set = map[string]int64{}
	}
	for _, hash := range c.hashes() {
		*hash = map[string]string{}
	}
	return c
}

// once carries out a call that is new, and repeats the answer to one that is not.
func (m *model) once(c Caller, carryOut func() any) any {
	if last, ok := m.calls[c.ID]; ok && last.n > c.N {
		return errStale
	} else if ok && last.n == c.N {
		return last.answer
	}
	answer := carryOut()
	if _, refused := answer.(error); refused { // and forgotten
		return answer
	}
	m.calls[c.ID], m.used = answered{n: c.N, answer: answer, at: m.now}, true
	return answer
}

// existing is once for a call that changes something of a queue that is there.
func (m *model) existing(c Caller, carryOut func() any) any {
	return m.once(c, func() any {
		if !m.used && !m.newer { // the layout is a field, too
			return ErrNoQueue
		}
		return carryOut()
	})
}

// holder is the message that has a key, or was acked and keeps it; "" if none does.
func (m *model) holder(key string) (id string, acked bool) {
	id, acked = strings.CutPrefix(m.key[key], "acked:")
	if acked && m.holds[key] <= m.now {
		return "", false
	}
	return id, acked
}

func (m *model) send(batch []*SendMessage) any {
	out := SendReply{Now: m.now}
	var first int64
	for i, o := range batch {
		if holder, held := m.holder(o.Key); holder != "" {
			if out.refused == nil {
				out.refused = map[int]string{}
			}
			out.refused[i] = map[bool]string{true: acked}[held] + holder
			continue
		}
		due := o.When.Due(m.now)
		m.storeAt(o, due)
		first = sooner(first, due)
	}
	m.armLater(first)
	return out
}

// counted is what is counted, in the order of history's numbers.
var counted = []string{"sent", "delivered", "acked", "failed", "lost", "garbage", "superseded", "started", "late",
	"latest"}

func (m *model) count(what string, n int) { m.counts[slices.Index(counted, what)] += int64(n) }

// countLate counts how late messages are handed out for the first time, in ms. Of more than 16, every few stand for
// those after them, but for those that are over: each of them counts.
func (m *model) countLate(tags, over []string) {
	var late, latest int64
	add := func(tags []string, most int) {
		first := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return queuetest.IDIn(tag) != tag })
		m.count("started", len(first))
		for step, i := (len(first)+most-1)/most, 0; i < len(first); i += step {
			by := max(m.now-m.envelope(first[i]).Due, 0)
			late, latest = late+by*int64(min(step, len(first)-i)), max(latest, by)
		}
	}
	add(tags, 16)
	add(over, max(len(over), 1))
	m.count("late", int(late+500)/1000)
	last := &m.counts[len(m.counts)-1]
	*last = max(*last, (latest+500)/1000)
}

// keepHistory moves what was counted to this hour's field and this day's.
func (m *model) keepHistory(byAge bool) {
	if m.counts == ([10]int64{}) {
		return
	}
	hour, day := m.now/3_600_000_000, m.now/86_400_000_000
	_, old := m.history[fmt.Sprint(hour)]
	for _, span := range []string{fmt.Sprint(hour), fmt.Sprint("d", day)} {
		sums := m.counts
		for i, text := range strings.Fields(m.history[span]) {
			if n, _ := strconv.ParseInt(text, 10, 64); counted[i] == "latest" {
				sums[i] = max(sums[i], n)
			} else {
				sums[i] += n
			}
		}
		m.history[span] = strings.Trim(fmt.Sprint(sums), "[]")
	}
	if byAge && !old {
		maps.DeleteFunc(m.history, func(span, _ string) bool {
			text, daily := strings.CutPrefix(span, "d")
			at, err := strconv.ParseInt(text, 10, 64)
			now, most := hour, int64(48)
			if daily {
				now, most = day, 30
			}
			return err != nil || at > now || at <= now-most
		})
	}
	m.counts = [10]int64{}
}

// arm sets the alarm for work that is sooner than what it is set for.
func (m *model) arm(first int64) {
	if first != 0 && (m.armed == 0 || first < m.armed) {
		m.wake, m.armed = first, first
	}
}

// armLater is arm for work that waits until a pause is over.
func (m *model) armLater(first int64) {
	if first != 0 {
		first = max(first, m.pause)
	}
	m.arm(first)
}

// freeKey lets go of a message's key, which stays taken if it is held.
func (m *model) freeKey(id string) {
	for key, holder := range m.key {
		if holder == id && m.holds[key] > m.now {
			m.key[key] = acked + id
		} else if holder == id {
			delete(m.key, key)
		}
	}
	if key := keyBefore(m.envelope(id)); key != "" {
		m.setLeft(key, id, false)
	}
}

// forget deletes a message. out: where the books count it; "": they have.
func (m *model) forget(id, out string) {
	if out != "" {
		m.books[out]++
	}
	m.takeUp(id, m.laneOf(id))
	m.freeKey(id)
	m.dropParts(id)
	delete(m.garbage, id)
	delete(m.done, id)
	for _, hash := range []map[string]string{m.result, m.msg, m.fail} {
		delete(hash, id)
	}
}

// until is at most limit of those whose instant has come, in the order of a sorted set.
func until(set map[string]int64, instant int64, limit int) []string {
	var tags []string
	for tag, at := range set {
		if at <= instant {
			tags = append(tags, tag)
		}
	}
	slices.SortFunc(tags, func(a, b string) int { return cmp.Or(cmp.Compare(set[a], set[b]), cmp.Compare(a, b)) })
	return tags[:max(0, min(limit, len(tags)))]
}

// head is the first instant of a set; 0 if it is empty.
func head(set map[string]int64) (first int64) {
	for _, at := range set {
		first = sooner(first, at)
	}
	return first
}

// sooner is the first of two instants of which each may be 0, none.
func sooner(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
