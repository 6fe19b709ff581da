package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A LaneMember is a member of lanes: a turn of a lane, or a message that waits for one.
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

// laneProblem says what is wrong with the name of a lane.
func laneProblem(name string) string {
	if name == "" || len(name) > maxLaneBytes || strings.Contains(name, "\x00") {
		return fmt.Sprintf("its lane is %q, want 1 to %d bytes without NUL", name, maxLaneBytes)
	}
	return ""
}

// decodeWidth reads how many messages of a lane may be handled at a time.
func decodeWidth(digits string) (width int64, problem string) {
	width, err := decimal(strings.TrimLeft(digits, "0"))
	if err != nil || width > maxWidth || len(digits) != widthDigits {
		return 0, fmt.Sprintf("the width of its lane is %q, want %d digits from 1 to %d", digits, widthDigits, maxWidth)
	}
	return width, ""
}

// decodeLane reads the width of a lane, and its name.
func (e *Envelope) decodeLane(c *cursor) error {
	digits, err := c.take(widthDigits, "width of its lane")
	if err != nil {
		return err
	}
	width, problem := decodeWidth(digits)
	name := string(*c)
	*c = ""
	if problem = cmp.Or(problem, laneProblem(name)); problem != "" {
		return fmt.Errorf("%s", problem)
	}
	e.Lane, e.Width = name, width
	return nil
}

// decodeLaneMember reads `<lane> NUL NUL <width><tag>` or `<lane> NUL <us, 16 digits><id> <delivery> <width>`.
func decodeLaneMember(member, score string) (m LaneMember) {
	m.Member = member
	lane, rest, found := strings.Cut(member, "\x00")
	m.Lane = lane
	rest, turn := strings.CutPrefix(rest, "\x00")
	m.Waits = !turn
	c := cursor(rest)
	digits, tag, err := "", "", error(nil)
	if turn {
		digits, err = c.take(widthDigits, "width")
		tag = string(c)
	} else {
		m.Due, err = c.instant("instant")
		words := strings.Split(string(c), " ")
		if n := len(words); n >= 3 {
			tag, digits = strings.Join(words[:n-2], " "), words[n-1]
			if words[n-2] != "1" {
				tag = words[n-2] + ":" + tag
			}
		}
	}
	switch {
	case !found || !turn && digits == "":
		m.Problem = "want a lane, NUL, and NUL, a width and a tag, or 16 digits, an id, a delivery and a width"
	case err != nil:
		m.Problem = err.Error()
	default:
		m.Tag = decodeTag(tag)
		m.Width, m.Problem = decodeWidth(digits)
		m.Problem = cmp.Or(laneProblem(lane), m.Tag.TagProblem, m.Problem)
	}
	if score != "0" {
		m.Problem = cmp.Or(m.Problem, "its score is "+score+", want 0")
	}
	return m
}

// lanes holds lanes and waiting against each other, and against the lanes in the envelopes: invariant 13. Item is a member of lanes, a tag
// in waiting, the id of a message, or the name of a lane.
func (b *breaches) lanes() {
	members := slices.SortedFunc(slices.Values(b.Lanes), func(x, y LaneMember) int { return cmp.Compare(x.Member, y.Member) })
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
		if env := b.Messages[id]; known[id] == "" && env.Problem == "" && env.Lane != "" && b.live(id) {
			b.add(LostLane, "msg", id, "message %s is not in lane %q", id, env.Lane)
		}
	}
	for _, e := range b.Waiting {
		if env, there := b.Messages[e.ID]; there && env.Problem == "" && env.Lane == "" {
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

// strayProblem says why a member of lanes is stray. other is another member of its message, "" for none. A turn is not stray because its
// message is in no structure: a message that was only just handed out seems so, if it is not read at one instant with the leases.
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
	case env.Problem == "" && (env.Lane != m.Lane || env.Width != m.Width):
		return fmt.Sprintf("of a message of lane %q with the width %d", env.Lane, env.Width)
	case other != "":
		return fmt.Sprintf("of a message that has member %q, too", other)
	case m.Waits && !slices.ContainsFunc(b.held[m.Tag.ID], waits):
		return "of a message that does not wait until then"
	case !m.Waits && in("waiting"):
		return "a turn of a message that waits for one"
	}
	return ""
}

// laneOrder looks at the members of one lane, and returns what is wrong: there are more turns than the width, one is free while a message
// waits, or one is kept by a message that comes after one that waits, is not due, and was not handed out since it got the turn.
func laneOrder(members []LaneMember, lies map[string]int64, now int64) string {
	n, most := int64(0), int64(maxWidth)
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
