package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A LaneMember is a member of lanes: a place of a lane, or a message that waits for one.
type LaneMember struct {
	Member  string
	Lane    string
	Waits   bool
	Due     int64 // of one that waits, unix us
	Tag     Entry
	Width   int64
	Problem string
}

const (
	maxLaneBytes = 200
	maxWidth     = 100
	widthDigits  = 3
)

// decodeLane reads how many messages of a lane may be handled at a time, and its name.
func (e *Envelope) decodeLane(c *cursor) (err error) {
	digits, err := c.take(widthDigits, "width of its lane")
	if err != nil {
		return err
	}
	e.Lane, *c = string(*c), ""
	if e.Width, err = decimal(strings.TrimLeft(digits, "0")); err != nil || e.Width > maxWidth {
		return fmt.Errorf("width of its lane is %q, want 3 digits from 1 to %d", digits, maxWidth)
	}
	if e.Lane == "" || len(e.Lane) > maxLaneBytes || strings.Contains(e.Lane, "\x00") {
		return fmt.Errorf("its lane is %q, want 1 to %d bytes without NUL", e.Lane, maxLaneBytes)
	}
	return nil
}

// decodeLaneMember reads `<lane> NUL NUL <tag> <blank> <width>` or `<lane> NUL <us, 16 digits><tag> <blank> <width>`.
func decodeLaneMember(member, score string) (m LaneMember) {
	m.Member = member
	lane, rest, found := strings.Cut(member, "\x00")
	m.Lane = lane
	rest, place := strings.CutPrefix(rest, "\x00")
	tag, digits, blank := strings.Cut(rest, " ")
	var err error
	if m.Width, err = decimal(strings.TrimLeft(digits, "0")); err != nil || !found || !blank || len(digits) != widthDigits {
		m.Problem = "want <lane> NUL, NUL or 16 digits, a tag, a blank and 3 digits"
		return m
	}
	if m.Waits = !place; m.Waits {
		c := cursor(tag)
		if m.Due, err = c.instant("instant"); err != nil {
			m.Problem = err.Error()
		}
		tag = string(c)
	}
	m.Tag = decodeTag(tag)
	m.Problem = cmp.Or(m.Problem, m.Tag.TagProblem)
	if score != "0" {
		m.Problem = cmp.Or(m.Problem, "its score is "+score+", want 0")
	}
	return m
}

// lanes holds lanes and waiting against each other, and against the lanes in the envelopes: invariant 13. Item is a member of lanes or the id
// of a message.
func (b *breaches) lanes() {
	waiting := map[string]Entry{} // by tag
	for _, e := range b.Waiting {
		waiting[e.Tag] = e
	}
	lies := map[string]Entry{} // where it lies, by tag
	for _, e := range slices.Concat(b.Pending, b.Retry) {
		lies[e.Tag] = e
	}
	known := map[string]LaneMember{} // by id
	lanes := map[string][]LaneMember{}
	for _, m := range b.Lanes {
		env, there := b.Messages[m.Tag.ID]
		other, twice := known[m.Tag.ID]
		e, waits := waiting[m.Tag.Tag]
		switch {
		case m.Problem != "":
			b.add(StrayLane, "lanes", m.Member, "member %q is malformed: %s", m.Member, m.Problem)
			continue
		case !there || !b.live(m.Tag.ID):
			b.add(StrayLane, "lanes", m.Member, "member %q is of no live message", m.Member)
			continue
		case env.Problem == "" && (env.Lane != m.Lane || env.Width != m.Width):
			b.add(StrayLane, "lanes", m.Member, "member %q is of a message of lane %q with the width %d", m.Member, env.Lane, env.Width)
		case twice:
			b.add(StrayLane, "lanes", m.Member, "member %q and member %q are of one message", m.Member, other.Member)
		case m.Waits && (!waits || e.Score != m.Due):
			b.add(StrayLane, "lanes", m.Member, "member %q is of a message that does not wait until then", m.Member)
		case !m.Waits && slices.ContainsFunc(b.held[m.Tag.ID], func(h holding) bool { return h.place == "waiting" }):
			b.add(StrayLane, "lanes", m.Member, "member %q is a place of a message that waits for one", m.Member)
		}
		known[m.Tag.ID] = m
		lanes[m.Lane] = append(lanes[m.Lane], m)
	}
	for _, id := range sortedKeys(b.Messages) {
		env := b.Messages[id]
		if _, ok := known[id]; !ok && env.Problem == "" && env.Lane != "" && b.live(id) {
			b.add(LostLane, "msg", id, "message %s is not in lane %q", id, env.Lane)
		}
	}
	for _, e := range b.Waiting {
		if env := b.Messages[e.ID]; env.Problem == "" && env.Lane == "" && e.ID != "" {
			b.add(WrongPlace, "waiting", e.Tag, "message %s waits and has no lane", e.ID)
		}
	}
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		b.laneOrder(lane, lanes[lane], lies)
	}
}

// laneOrder looks at one lane: it has no more places than its width, none is free while a message waits, and none is kept by a message
// that is due after one that waits and was not handed out since it got it.
func (b *breaches) laneOrder(lane string, members []LaneMember, lies map[string]Entry) {
	n, most := int64(0), int64(maxWidth)
	var next *LaneMember // Redis has the members in their order
	for i := range members {
		m := &members[i]
		if !m.Waits {
			n, most = n+1, min(most, m.Width)
		} else if next == nil {
			next = m
		}
	}
	if n > most {
		b.add(WrongLane, "lanes", members[0].Member, "lane %q has %d places, want at most %d", lane, n, most)
	}
	if next == nil {
		return
	}
	if n < min(most, next.Width) {
		b.add(WrongLane, "lanes", next.Member, "message %s waits, and lane %q has %d of %d places", next.Tag.ID, lane, n, min(most, next.Width))
	}
	for _, m := range members {
		if e, ok := lies[m.Tag.Tag]; ok && !m.Waits && e.Score > next.Due {
			b.add(WrongLane, "lanes", m.Member, "message %s has a place of lane %q and is due after message %s, which waits", m.Tag.ID, lane, next.Tag.ID)
		}
	}
}
