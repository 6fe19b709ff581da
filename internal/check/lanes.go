package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// A LaneMember is a member of lanes: a turn of a lane, or a message that waits for one.
type LaneMember struct {
	Member  string
	Lane    string
	Waits   bool
	Due     int64 // of one that waits, unix us
	Tag     Entry
	Width   int
	Problem string
}

// lanes holds lanes and waiting against each other, and against the lanes in the envelopes: invariant 13. Item is a
// member of lanes, a tag in waiting, the id of a message, or the name of a lane.
func (b *breaches) lanes() {
	members := slices.SortedFunc(slices.Values(b.Lanes), func(x, y LaneMember) int {
		return cmp.Compare(x.Member, y.Member)
	})
	known := map[string]string{} // the member of a message, by its id
	lanes := map[string][]LaneMember{}
	for _, m := range members {
		if problem := b.strayProblem(m, known[m.Tag.ID]); problem != "" {
			b.add(StrayLane, "lanes", m.Member, "member %.300q is %s", m.Member, problem)
			continue
		}
		known[m.Tag.ID] = m.Member
		lanes[m.Lane] = append(lanes[m.Lane], m)
	}
	for _, id := range sortedKeys(b.Messages) {
		if env := b.Messages[id]; known[id] == "" && env.Problem == "" && env.Lane.Name != "" && b.live(id) {
			b.add(LostLane, "msg", id, "message %s is not in lane %q", id, env.Lane.Name)
		}
	}
	for _, e := range b.Waiting {
		if env, there := b.Messages[e.ID]; there && (env.Problem != "" || env.Lane.Name == "") {
			b.add(LostLane, "waiting", e.Tag, "message %s waits for a turn, and has no lane", e.ID)
		}
	}
	lies := map[string]int64{} // until when a turn that has not begun lies where it is, by tag
	for _, e := range slices.Concat(b.Pending, b.Retry) {
		lies[e.Tag] = e.Score
	}
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		if problem := laneOrder(lanes[lane], lies, b.Now); problem != "" {
			b.add(WrongLane, "lanes", lane, "lane %q %s", lane, problem)
		}
	}
}

// strayProblem says why a member of lanes is stray. other is another member of its message, "" for none. A turn is
// not stray because its message is in no structure: a message that was only just handed out seems so, if it is not
// read at one instant with the leases.
func (b *breaches) strayProblem(m LaneMember, other string) string {
	env, there := b.Messages[m.Tag.ID]
	in := func(place string) bool {
		return slices.ContainsFunc(b.held[m.Tag.ID], func(h holding) bool { return h.place == place })
	}
	waits := func(h holding) bool { return h.place == "waiting" && h.Tag == m.Tag.Tag && h.Score == m.Due }
	switch {
	case m.Problem != "":
		return "malformed: " + m.Problem
	case !there || in("garbage") || in("done"):
		return "of no live message"
	case env.Lane != (message.Lane{Name: m.Lane, Width: m.Width}):
		return fmt.Sprintf("of a message of lane %q with the width %d", env.Lane.Name, env.Lane.Width)
	case other != "":
		return fmt.Sprintf("of a message that has member %q, too", other)
	case m.Waits && !slices.ContainsFunc(b.held[m.Tag.ID], waits):
		return "of a message that does not wait until then"
	case !m.Waits && in("waiting"):
		return "a turn of a message that waits for one"
	}
	return ""
}

// laneOrder looks at the members of one lane, and returns what is wrong: there are more turns than the width, one is
// free while a message waits, or one is kept by a message that comes after one that waits, is not due, and was not
// handed out since it got the turn.
func laneOrder(members []LaneMember, lies map[string]int64, now int64) string {
	n, most := 0, message.MaxWidth
	var next *LaneMember
	for i := range members {
		if m := &members[i]; !m.Waits {
			n, most = n+1, min(most, m.Width)
		} else if next == nil {
			next = m
		}
	}
	switch {
	case n > most:
		return fmt.Sprintf("has %d turns, want at most %d", n, most)
	case next == nil:
		return ""
	case n < min(most, next.Width):
		return fmt.Sprintf("has %d of %d turns, and message %s waits", n, min(most, next.Width), next.Tag.ID)
	}
	for _, m := range members {
		score, lies := lies[m.Tag.Tag]
		if lies && !m.Waits && score > now && cmp.Or(cmp.Compare(score, next.Due), cmp.Compare(m.Tag.ID, next.Tag.ID)) > 0 {
			return fmt.Sprintf("has a turn of message %s, which comes after message %s, which waits", m.Tag.ID, next.Tag.ID)
		}
	}
	return ""
}
