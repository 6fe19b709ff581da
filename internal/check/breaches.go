package check

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// numberFields are the fields of state that hold one number; each may be absent.
var numberFields = []string{"armed", "seen", "big", "swept", "canceled", "dropped", "pause", "ticked", "done",
	"holds", "parts", "changed", "overtaken", "aging", "books", "in:found", "in:followed", "in:scheduled", "in:imported",
	"kept", "out:over", "out:superseded", "out:intercepted", "out:canceled", "out:deleted", "out:aged", "out:trimmed",
	"out:lost", "in:stored",
	"out:acked"}

// maxPaused is how long the texts in the field paused may be.
const maxPaused = 200 + 1 + 1000

// callField begins the fields of state that hold a caller's last call.
const callField = "call:"

// Breaches names every breach of the invariants that the state shows, each in
// a sentence that begins with the queue and the structure, in a stable order.
// None is nil. See Findings.
func (s *State) Breaches() []string { return texts(s.Findings()) }

// Findings is Breaches with what a program needs to tell them apart.
//
// If a key has the wrong type, only types, times to live and stray keys are
// looked at, since the rest would be misread.
func (s *State) Findings() []Finding {
	b := &breaches{State: s, held: map[string][]holding{}}
	b.frame()
	if len(s.WrongType) > 0 {
		return b.found
	}
	b.tags()
	b.leases()
	b.messages()
	b.failRecords()
	b.callersKeys()
	b.results()
	b.parts()
	b.countdowns()
	b.lanes()
	b.left()
	b.stateFields()
	b.alarm()
	b.sequences()
	b.books()
	b.lookers()
	return b.found
}

// leftovers names everything that AssertEmpty wants gone.
func (s *State) leftovers() []string {
	b := &breaches{State: s}
	for _, p := range s.places() {
		for _, e := range p.entries {
			b.add(Leftover, p.name, e.Tag, "tag %q is left over, want an empty queue", e.Tag)
		}
	}
	for _, m := range s.Lanes {
		b.add(Leftover, "lanes", m.Member, "member %q is left over, want an empty queue", m.Member)
	}
	for _, left := range []struct {
		structure string
		fields    []string
	}{
		{"msg", sortedKeys(s.Messages)}, {"fail", sortedKeys(s.Fail)}, {"key", sortedKeys(s.Keys)},
		{"parts", sortedKeys(s.Parts)}, {"parts", sortedKeys(s.Left)},
	} {
		for _, field := range left.fields {
			b.add(Leftover, left.structure, field, "field %q is left over, want an empty queue", field)
		}
	}
	return texts(b.found)
}

// breaches is one examination of a State.
type breaches struct {
	*State
	held  map[string][]holding // by id
	found []Finding
}

// holding is one tag of a message and where it is.
type holding struct {
	Entry
	place string
}

func (b *breaches) add(kind Kind, structure, item, format string, args ...any) {
	b.found = append(b.found, Finding{kind, structure, item, fmt.Sprintf("queue %s:%s: %s: %s.",
		b.Queue.Prefix, b.Queue.Name, structure, fmt.Sprintf(format, args...))})
}

// frame looks at the layout, and at the keys themselves: invariants 10 and 11.
func (b *breaches) frame() {
	if layout, ok := b.Fields["layout"]; ok && layout != "1" {
		b.add(UnknownLayout, "state", "layout",
			"field layout is %q, and only 1 is known here, so what looks wrong may be right", layout)
	}
	for _, st := range structures {
		if kind, wrong := b.WrongType[st.name]; wrong {
			b.add(WrongType, st.name, st.name, "the key is a %s, want a %s, so the content of the queue was not checked", kind,
				st.kind)
		}
		forMonitors := st.name == "consumers" || st.name == "history" || st.name == "journal"
		if _, ok := b.TTLs[st.name]; ok && !forMonitors { // the figure is in the dump
			b.add(Expires, st.name, st.name, "the key has a time to live, and no message may expire by itself")
		}
	}
	for _, key := range b.Strays {
		b.add(StrayKey, strings.TrimPrefix(key, b.Queue.Base()), key, "the key %q is none of those of a queue", key)
	}
}

// tags looks at each entry of the seven structures by itself, and notes in held
// which message it belongs to: invariants 1 to 3.
func (b *breaches) tags() {
	for _, p := range b.places() {
		for _, e := range p.entries {
			if e.TagProblem != "" {
				b.add(BadTag, p.name, e.Tag, "tag %q is malformed: %s", e.Tag, e.TagProblem)
			}
			if e.ScoreProblem != "" && e.Lease == "" {
				b.add(BadScore, p.name, e.Tag, "tag %q has score %s", e.Tag, e.ScoreProblem)
			}
			if e.ID == "" {
				continue
			}
			b.held[e.ID] = append(b.held[e.ID], holding{e, p.name})
			if _, ok := b.Messages[e.ID]; !ok {
				b.add(NoEnvelope, p.name, e.Tag, "tag %q of message %s has no envelope in msg", e.Tag, e.ID)
			}
			switch {
			case e.TagProblem != "":
			case p.name == "pending" && e.Delivery != 1:
				b.add(WrongPlace, p.name, e.Tag, "message %s is at delivery %d, and only a first one may be here", e.ID, e.Delivery)
			case (p.name == "ready" || p.name == "retry") && e.Delivery < 2:
				b.add(WrongPlace, p.name, e.Tag, "message %s is at delivery 1, and only a later one may be here", e.ID)
			case (p.name == "garbage" || p.name == "done") && e.Tag != e.ID:
				b.add(WrongPlace, p.name, e.Tag, "message %s is here under tag %q, want the id alone", e.ID, e.Tag)
			}
		}
	}
}

// messages looks at each envelope, and that its message is in one place: invariants 1 and 2.
func (b *breaches) messages() {
	for _, id := range sortedKeys(b.Messages) {
		env := b.Messages[id]
		if !isID(id) {
			b.add(BadEnvelope, "msg", id, "field %q is no UUIDv7", id)
			continue
		}
		if env.Problem != "" {
			b.add(BadEnvelope, "msg", id, "the envelope of message %s is malformed: %s", id, env.Problem)
		}
		if len(b.held[id]) == 0 {
			b.add(NoPlace, "msg", id, "message %s is in none of the seven structures", id)
		}
	}
	for _, id := range sortedKeys(b.held) {
		held := b.held[id]
		if len(held) > 1 {
			var at []string
			for _, h := range held {
				at = append(at, fmt.Sprintf("%s as %q", h.place, h.Tag))
			}
			b.add(ManyPlaces, "msg", id, "message %s is in %d places, want 1: %s", id, len(held), strings.Join(at, ", "))
		}
		env, ok := b.Messages[id]
		for _, h := range held {
			first := (h.place == "pending" || h.place == "waiting") && h.Delivery == 1
			if ok && first && h.ScoreProblem == "" && env.Problem == "" && h.Score != env.Due &&
				(env.Lane.Name == "" || h.Score < env.Due) {
				b.add(DueDiffers, h.place, h.Tag, "message %s has score %d, but due %d in its envelope", id, h.Score, env.Due)
			}
		}
	}
}

// failRecords looks at fail, and holds it against the delivery numbers in tags: invariants 1, 3 and 4.
func (b *breaches) failRecords() {
	for _, id := range sortedKeys(b.Fail) {
		if f := b.Fail[id]; f.Problem != "" {
			b.add(BadRecord, "fail", id, "the record of message %s is malformed: %s", id, f.Problem)
		}
		if b.Fields["overtaken"] == "" && b.Fail[id].Superseded {
			b.add(WrongRecord, "fail", id,
				"a delivery of message %s was superseded, but field overtaken of state is not set, so nobody would see", id)
		}
		if _, ok := b.Messages[id]; !ok && len(b.held[id]) == 0 {
			b.add(StrayRecord, "fail", id, "the record of message %s belongs to no message", id)
		}
	}
	for _, id := range sortedKeys(b.held) {
		if len(b.held[id]) != 1 || b.held[id][0].TagProblem != "" {
			continue // its delivery number is not known, and that was said
		}
		h := b.held[id][0]
		f, ok := b.Fail[id]
		live := isLive(h)
		// A live message has ended all its deliveries but the current one; a
		// dead one may have ended that as well, and one that is done has.
		ended := f.Delivery
		if live {
			ended--
		}
		switch {
		case !ok && !live:
			b.add(NoRecord, "fail", id, "message %s lies in %s and has no record", id, h.place)
		case !ok && h.Delivery > 1:
			b.add(NoRecord, "fail", id, "message %s is in %s at delivery %d and has no record", id, h.place, h.Delivery)
		case !ok || f.Problem != "":
		case f.Superseded && h.place != "unack" && h.place != "done":
			b.add(WrongRecord, "fail", id,
				"message %s is in %s, but its record says that its delivery was superseded, which is handled or done", id, h.place)
		case live && h.Delivery == 1 && f.Delivery == 1 && !f.Superseded:
			b.add(WrongRecord, "fail", id,
				"message %s is in %s at delivery 1 and has a record, which only later ones and garbage have", id, h.place)
		case live && h.Delivery != f.Delivery:
			b.add(WrongRecord, "fail", id, "message %s is in %s at delivery %d, but its record says %d", id, h.place, h.Delivery,
				f.Delivery)
		case f.Failures+f.Losses > ended:
			b.add(WrongRecord, "fail", id, "the record of message %s counts %d failures and %d losses in %d ended deliveries",
				id, f.Failures, f.Losses, ended)
		}
	}
}

// callersKeys holds key against the keys in the envelopes of live messages: invariant 1.
func (b *breaches) callersKeys() {
	said := map[string]bool{}
	for _, id := range sortedKeys(b.Messages) {
		env := b.Messages[id]
		if env.Problem != "" || env.Key == "" || !b.live(id) || b.Fail[id].Superseded {
			continue
		}
		switch owner, ok := b.Keys[env.Key]; {
		case !ok:
			b.add(NoKey, "key", env.Key, "key %q of message %s is missing", env.Key, id)
		case owner != id:
			b.add(NoKey, "key", env.Key, "key %q of message %s points at %s", env.Key, id, owner)
			said[env.Key] = true
		}
	}
	held := map[string]bool{}
	for _, m := range b.Holds {
		held[m.Member] = true
		if m.Problem != "" {
			b.add(BadScore, "holds", m.Member, "key %q has score %s", m.Member, m.Problem)
		}
	}
	if until, ok := b.number("holds"); ok && len(b.Holds) > 0 && b.Holds[0].Score > 0 &&
		(until == 0 || until > b.Holds[0].Score) {
		b.add(BadState, "state", "holds", "field holds is %d, but key %q is held until %d, and nobody would free it in time",
			until,
			b.Holds[0].Member, b.Holds[0].Score)
	}
	for _, key := range sortedKeys(b.Keys) {
		id, acked := strings.CutPrefix(b.Keys[key], "acked:")
		if acked && held[key] {
			continue
		}
		env, ok := b.Messages[id]
		switch {
		case said[key]:
		case !ok && len(b.held[id]) == 0:
			b.add(StrayKeyEntry, "key", key, "key %q points at %s, which is no message", key, id)
		case !ok || env.Problem != "": // and that was said
		case env.Key == "":
			b.add(StrayKeyEntry, "key", key, "key %q points at message %s, which has no key", key, id)
		case env.Key != key:
			b.add(StrayKeyEntry, "key", key, "key %q points at message %s, whose key is %q", key, id, env.Key)
		case b.Fail[id].Superseded:
			b.add(StrayKeyEntry, "key", key, "key %q points at message %s, which was superseded", key, id)
		case !b.live(id) && len(b.held[id]) > 0:
			b.add(StrayKeyEntry, "key", key, "key %q points at message %s, which lies in %s", key, id, b.held[id][0].place)
		}
	}
}

// live tells whether the message is in a structure other than garbage and done.
func (b *breaches) live(id string) bool { return slices.ContainsFunc(b.held[id], isLive) }

func isLive(h holding) bool { return h.place != "garbage" && h.place != "done" }

// small is how long an envelope may be that is not noted in big.
const small = 2048

// stateFields looks at each field of state by itself, and at big: invariants 5, 6 and 11.
func (b *breaches) stateFields() {
	for _, field := range sortedKeys(b.Fields) {
		value := b.Fields[field]
		switch {
		case slices.Contains(numberFields, field) || slices.Contains(counted, field):
			if _, err := decimal(value); err != nil {
				b.add(BadState, "state", field, "field %s is %v", field, err)
			}
		case field == "tat": // which a rate of one in a year, with a large burst, puts beyond 2^63
			if n, ok := new(big.Int).SetString(value, 10); !ok || n.Sign() < 0 || n.String() != value {
				b.add(BadState, "state", field, "field tat is %q, want a number", value)
			}
		case field == "layout": // frame has looked
		case field == "cursor":
			page, _, _ := strings.Cut(value, " ") // behind it is a lane
			if _, err := decimal(page); err != nil {
				b.add(BadState, "state", field, "field cursor begins with %v", err)
			}
		case field == "grace", field == "lease", field == "told", field == "limits", field == "override",
			field == "throttled", field == "limited", field == "loss":
			for i, part := range strings.Fields(value) {
				if _, err := decimal(part); err != nil {
					b.add(BadState, "state", field, "field %s: number %d is %v", field, i+1, err)
				}
			}
		case field == "paused":
			parts := strings.SplitN(value, " ", 3)
			if len(parts) < 3 || len(numbers(parts[0]+" "+parts[1])) != 2 || !strings.Contains(parts[2], "\n") ||
				len(parts[2]) > maxPaused {
				b.add(BadState, "state", field,
					"field paused is %q, want two instants, who says so, a newline and why, of at most %d bytes",
					value, maxPaused)
			}
		case field == "shards":
			if _, err := decodeShards(value); err != nil {
				b.add(BadState, "state", field, "%v", err)
			}
		case strings.HasPrefix(field, callField):
			if problem := callProblem(field, value); problem != "" {
				b.add(BadState, "state", field, "field %q is malformed: %s", field, problem)
			}
		default:
			b.add(BadState, "state", field, "field %q is not in the layout", field)
		}
	}
	big, ok := b.number("big")
	if !ok {
		return
	}
	for _, id := range sortedKeys(b.Messages) {
		if size := int64(b.Messages[id].Size); size > max(big, small) {
			b.add(BadState, "state", "big", "big is %d, but the envelope of message %s has %d bytes", big, id, size)
		}
	}
}

// number reads a field of state; 0 if it is absent, false if it is malformed.
func (b *breaches) number(field string) (int64, bool) {
	value, ok := b.Fields[field]
	if !ok {
		return 0, true
	}
	n, err := decimal(value)
	return n, err == nil
}

// callProblem wants `<call number> <unix us> <reply>`; the reply is free.
func callProblem(field, value string) string {
	if field == callField {
		return "it names no caller"
	}
	parts := strings.SplitN(value, " ", 3)
	if len(parts) != 3 {
		return fmt.Sprintf("%q has %d parts, want 3", value, len(parts))
	}
	if _, err := decimal(parts[0]); err != nil {
		return "its call number is " + err.Error()
	}
	switch us, err := decimal(parts[1]); {
	case err != nil:
		return "its instant is " + err.Error()
	case us == 0:
		return "its instant is 0"
	}
	return ""
}

// numbers are those of a field; nil if it holds anything else.
func numbers(field string) (all []int64) {
	for _, part := range strings.Fields(field) {
		n, err := decimal(part)
		if err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// counted is what history counts, and what state holds of it until the next tick.
var counted = []string{"sent", "delivered", "acked", "failed", "lost", "garbage", "superseded", "started", "late",
	"latest"}
