package ops

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A task is what a call for many was told.
type task struct {
	What   string             `json:"what"`
	Us     int64              `json:"us,omitempty"`
	Spread int64              `json:"spread,omitempty"` // us
	Rate   int                `json:"rate,omitempty"`   // messages a second
	Most   int64              `json:"most,omitempty"`
	Anew   bool               `json:"anew,omitempty"`
	States []delayqueue.State `json:"in"`
	Filter coldFilter         `json:"of"`
}

// A reach is what bounds a call for many, and how far that has come. Its text is the Next of a dry run.
type reach struct {
	Of    string  `json:"call"`  // digest of what the call was told
	Now   int64   `json:"now"`   // us of the server: when it began
	Begun int64   `json:"begun"` // us of the server: Now, or Bulk.Before
	Sent  int64   `json:"sent"`  // us: a message with a later time in its id was sent after Begun
	Left  []int   `json:"left"`  // how many there were in each place
	Ends  []int64 `json:"ends"`  // the score of the last message of each place

	position
	shard.Absence
	InPlace int        `json:"n,omitempty"` // looked at there
	Earlier int64      `json:"e,omitempty"` // looked at in the shards before this one
	Result  BulkResult `json:"got"`
}

// An operation is a call for many.
type operation struct {
	task
	reach
	of     *shard.Set // the shards that there were when it began; nil: one, in tests
	dry    bool
	sample []*MessageStatus

	caller string
	n      int64 // number of its last call
	known  int64 // number of the last call of which it is known what it did

	resumed  bool            // by a cursor
	earlier  int64           // of Result.Done: by the calls before it
	met      map[string]bool // by tag: messages with a lane that were changed or counted, and may be met again
	spreadTo int64           // us of the spread that the last page of the place has used

	entry script.EntryName
	who   onBehalf  // who has begun it, and why
	noted time.Time // when it was written down last
	mute  bool      // it cannot be written down
}

// maxSample is how many messages a dry run shows.
const maxSample = 10

// digest tells calls apart that were told different things, or are about different queues, and dry runs from others.
func (o *operation) digest(queue string) string {
	text, _ := cursorOf(&o.task) // there is nothing in it that cannot be written
	h := fnv.New64a()
	fmt.Fprint(h, queue, " ", text)
	if o.dry {
		fmt.Fprint(h, " dry run")
	}
	return hex.EncodeToString(h.Sum(nil))
}

// countOn goes on where a call was cut off that was told the same.
func (o *operation) countOn(cursor string) error {
	var r reach
	err := cmp.Or(readCursor(cursor, &r), r.valid())
	if err == nil && r.Of != o.Of {
		return fmt.Errorf("%w %q: it is of another call", ErrBadCursor, cursor)
	}
	o.reach, o.earlier = r, r.Result.Done
	if places := len(o.places()); err == nil &&
		(r.Place < 0 || r.Place >= max(places, 1) || len(r.Left) != places || len(r.Ends) != places) {
		err = fmt.Errorf("%w %q", ErrBadCursor, cursor)
	}
	return err
}

// full says whether the call has changed Most.
func (o *operation) full() bool { return o.Most > 0 && o.Result.Done >= o.Most }

// copy is the reach as it is now.
func (r *reach) copy() reach {
	c := *r
	c.Result.Passed, c.Result.ByState = maps.Clone(r.Result.Passed), maps.Clone(r.Result.ByState)
	return c
}

// room is how many messages the next step may change; -1: any number.
func (o *operation) room() int {
	room := int64(-1)
	if o.Most > 0 {
		room = o.Most - o.Result.Done
	}
	if rate := int64(o.Rate); rate > 0 && !o.dry && (room < 0 || rate < room) {
		room = rate
	}
	return int(room)
}

// pace is how long n messages take at the rate that was asked for.
func (o *operation) pace(n int) time.Duration {
	if o.Rate == 0 || o.dry {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(o.Rate)
}

// count notes what became of one message, and says whether the message has left its place.
func (o *operation) count(d script.Steered, e entry, p place) (gone bool) {
	switch {
	case d.Done:
		o.done(e, p)
		return !d.Stays
	case d.Holder != "":
		o.pass(PassedKey, 1)
		return false
	case d.Expired:
		o.pass(PassedExpired, 1)
		return false
	default:
		o.pass(PassedMoved, 1)
	}
	return true
}

// did says what was done in the shards that answered; "" if the same call must not be repeated for the others, or if
// there is nothing to repeat.
func (o *operation) did() string {
	if o.dry || o.What == script.SteerBy {
		return ""
	}
	return map[string]string{script.SteerAt: "rescheduled", script.SteerRequeue: "requeued",
		script.SteerDelete: "deleted"}[o.What]
}

// done notes that a message was changed, or counted.
func (o *operation) done(e entry, p place) {
	if o.Result.ByState == nil {
		o.Result.ByState = map[delayqueue.State]int64{}
	}
	o.Result.Done++
	o.Result.ByState[o.stateOf(e, p)]++
}

// stateOf is the state in which a message was when the call began.
func (o *operation) stateOf(e entry, p place) delayqueue.State {
	if (p.in == delayqueue.StatePending || p.in == delayqueue.StateRetry) && e.msg.At.UnixMicro() <= o.Begun {
		return delayqueue.StateReady
	}
	return p.state
}

func (o *operation) pass(why Reason, n int64) {
	if o.Result.Passed == nil {
		o.Result.Passed = map[Reason]int64{}
	}
	if o.Result.Passed[why] += n; o.Result.Passed[why] == 0 {
		delete(o.Result.Passed, why)
	}
}

// A coldFilter is a Filter as JSON. Its texts are bytes, because JSON would change a string that is not UTF-8.
type coldFilter struct {
	From, To                                       time.Time
	Key, Contains, Error, ErrorContains, ErrorLike []byte
	Lane                                           []byte `json:",omitempty"`
	Headers, HeadersContain                        [][2][]byte
	Limit                                          int
}

func cold(f Filter) coldFilter {
	return coldFilter{From: f.From, To: f.To, Key: []byte(f.Key), Lane: []byte(f.Lane), Contains: []byte(f.Contains),
		Error: []byte(f.Error), ErrorContains: []byte(f.ErrorContains), ErrorLike: []byte(f.ErrorLike), Limit: f.Limit,
		Headers: coldTexts(f.Headers), HeadersContain: coldTexts(f.HeadersContain)}
}

func coldTexts(m map[string]string) (all [][2][]byte) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, [2][]byte{[]byte(name), []byte(m[name])})
	}
	return all
}

func (c *coldFilter) hot() *Filter {
	return &Filter{From: c.From, To: c.To, Key: string(c.Key), Lane: string(c.Lane),
		Contains: string(c.Contains), Error: string(c.Error), ErrorContains: string(c.ErrorContains),
		ErrorLike: string(c.ErrorLike), Limit: c.Limit, Headers: hotTexts(c.Headers),
		HeadersContain: hotTexts(c.HeadersContain)}
}

func hotTexts(all [][2][]byte) (m map[string]string) {
	for _, pair := range all {
		if m == nil {
			m = map[string]string{}
		}
		m[string(pair[0])] = string(pair[1])
	}
	return m
}

func (o *operation) result(places []place) *BulkResult {
	r := o.Result
	r.Passed, r.ByState = maps.Clone(r.Passed), maps.Clone(r.ByState)
	if !o.mute {
		r.Entry = o.entry.String()
	}
	r.At, r.Sample = message.InstantTime(o.Begun), o.sample
	r.Finished = o.Place >= len(places) && (len(o.Out) == 0 || o.full())
	if o.Place < len(places) && (o.dry || o.What == script.SteerBy && o.known == o.n) {
		r.Next, _ = cursorOf(&o.reach) // there is nothing in it that cannot be written
	}
	return &r
}

// wanted returns the messages of a page that match and are not new, and how many match and are new. It cuts the page
// off behind the last message that this step may change.
func (o *operation) wanted(page *listReply, p place) (targets []entry, isNew int64) {
	f, most := o.Filter.hot(), o.room()
	for i, e := range page.entries {
		switch {
		case e.msg == nil || !f.matches(e.msg) || o.met[e.Tag] || p.again && e.msg.Lane == "":
		case o.isNew(e.msg, p, page.now):
			if !p.again {
				isNew++
			}
		case o.dry && o.expires(e.msg, page.now):
			o.pass(PassedExpired, 1)
			o.meet(e)
		default:
			targets = append(targets, e)
			if o.dry && len(o.sample) < maxSample {
				e.msg.State = o.stateOf(e, p)
				o.sample = append(o.sample, e.msg)
			}
		}
		if len(targets) == most {
			page.entries = page.entries[:i+1]
			break
		}
	}
	return targets, isNew
}

// expires says whether a message would be past its deadline when it is due.
func (o *operation) expires(m *MessageStatus, now int64) bool {
	due := o.Us
	if o.What == script.SteerBy {
		due += m.At.UnixMicro()
	}
	return !o.Anew && o.What != script.SteerDelete && !m.Deadline.IsZero() && m.Deadline.UnixMicro() <= max(due, now)
}

// meet notes a message that the call may meet again.
func (o *operation) meet(e entry) {
	if e.msg.Lane != "" && (o.dry || o.What != script.SteerDelete) {
		o.met[e.Tag] = true
	}
}

// leaveOut moves on over places that the call need not look at again: if nothing waited for turns in that shard when
// the call began, and in a dry run that goes on, which does not know what was met before.
func (o *operation) leaveOut(places []place) {
	for o.Place < len(places) && places[o.Place].again {
		waited := false
		for i, p := range places {
			waited = waited || p.shard == places[o.Place].shard && p.in == delayqueue.StateWaiting && o.Left[i] > 0
		}
		if waited && !o.resumed {
			return
		}
		o.nextPlace(places)
	}
}

// nextPlace moves on to the next place, perhaps in the next shard.
func (o *operation) nextPlace(places []place) {
	o.position, o.InPlace, o.spreadTo = position{Place: o.Place + 1}, 0, 0
	if o.Place < len(places) && places[o.Place].shard != places[o.Place-1].shard {
		o.Earlier = o.Result.Looked
	}
}

// isNew says whether a message came into its state after Begun. now is the instant of the page.
func (o *operation) isNew(m *MessageStatus, p place, now int64) bool {
	ended := m.EndedAt.UnixMicro() // an instant to come was written while the clock was ahead
	failed, sent := ended > o.Begun && ended <= now, message.SentAt(m.ID) > o.Sent
	switch p.state {
	case delayqueue.StateRetry, delayqueue.StateReady, delayqueue.StateDone:
		return failed
	case delayqueue.StatePending:
		return sent
	case delayqueue.StateWaiting:
		return failed || sent
	case delayqueue.StateUnack:
		return o.Begun < o.Now && (failed || sent)
	default:
		return false
	}
}

// request is the change of these messages of a page on which the step has looked at so many.
func (o *operation) request(p place, targets []entry, looked int) script.SteerRequest {
	do := script.SteerRequest{What: o.What, Us: o.Us, Only: script.StateWords[p.in], Anew: o.Anew}
	for _, e := range targets {
		do.Targets = append(do.Targets, e.Target())
	}
	if p.state == delayqueue.StateUnack { // there steer looks at the tag alone
		do.What = script.SteerCancel
	}
	if o.Spread > 0 { // the page's share of the time goes to its messages that match; each shard has the whole time
		before, total := o.before(p.shard)
		share := float64(o.Spread) / float64(max(total, before+int64(looked)))
		from := max(int64(share*float64(before)), o.spreadTo)
		do.Us = max(o.Us, o.Now) + from
		do.Step = max(int64(share*float64(before+int64(looked)))-from, 0) / int64(len(targets))
		o.spreadTo = from
	}
	return do
}

// before is how many messages of a shard come before this page in a spread, of how many. There, what waits comes
// behind the messages that have turns, although the call may look at it first: else lanes would change their order.
func (o *operation) before(shard int) (n, total int64) {
	places, first := o.places(), -1
	waiting := func(p *place) bool { return p.in == delayqueue.StateWaiting }
	var others int64 // with turns
	for i := range places {
		p := &places[i]
		if p.shard != shard || i >= len(o.Left) {
			continue
		}
		if first < 0 {
			first = i
		}
		if !p.again {
			total += int64(o.Left[i])
		}
		if !p.again && !waiting(p) {
			others += int64(o.Left[i])
		}
	}
	n = o.Result.Looked - o.Earlier
	switch {
	case first < 0 || !waiting(&places[first]):
	case o.Place == first:
		n += others
	case !waiting(&places[o.Place]):
		n = max(n-int64(o.Left[first]), 0)
	}
	return n, total
}
