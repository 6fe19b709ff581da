package delayqueue

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// An operation is what a call for many was told, and how far it has come: all that is needed to continue it.
type operation struct {
	Queue  string     `json:"queue"` // its key state
	What   string     `json:"what"`
	Us     int64      `json:"us,omitempty"`
	Spread int64      `json:"spread,omitempty"` // us
	Rate   int        `json:"rate,omitempty"`   // messages a second
	Dry    bool       `json:"dry,omitempty"`
	States []State    `json:"in"`
	Filter coldFilter `json:"of"`
	Begun  int64      `json:"begun"` // us of the server
	Sent   int64      `json:"sent"`  // us; what has a later time in its id was sent after the call had begun
	Left   []int      `json:"left"`  // how many there were in each place, and
	Ends   []int64    `json:"ends"`  // the score of the last one

	position
	InPlace int        `json:"n,omitempty"` // looked at there
	Result  BulkResult `json:"got"`

	Caller string `json:"by"`
	N      int64  `json:"call"`            // number of its last call
	Doubt  *doubt `json:"doubt,omitempty"` // whether that was carried out

	frozen
	names  map[string]bool // Names, once they are asked for
	sample []*MessageStatus

	Entry entryName `json:"entry"`
	Claim string    `json:"claim,omitempty"` // whose it is to continue, of once
	who   onBehalf  // who has begun it, and why, as its entry says
	again bool      // it is continued
	found bool      // its entry was there before
	noted time.Time // when it was written down last
	wrote string    // and then by the server
	mute  bool      // it cannot be written down
}

// doubt is how far an operation has come if its last call, whose reply is lost, was carried out. In ready that is
// not known: it begins there anew, with those that are left.
type doubt struct {
	At      position
	InPlace int
	Looked  int64
	When    int64 // us of the server, before that call
	Wanted  int64 // messages in it
	New     int64 `json:",omitempty"` // that were passed over beside them
}

// count notes what became of one message, and says whether that has left its place.
func (o *operation) count(d steered) (gone bool) {
	switch {
	case d.done:
		o.Result.Done++
		return !d.stays
	case d.holder != "":
		o.pass(PassedKey, 1)
		return false
	default:
		o.pass(PassedMoved, 1)
	}
	return true
}

func (o *operation) pass(why Reason, n int64) {
	if o.Result.Passed == nil {
		o.Result.Passed = map[Reason]int64{}
	}
	if o.Result.Passed[why] += n; o.Result.Passed[why] == 0 {
		delete(o.Result.Passed, why)
	}
}

// A coldFilter is a Filter for a cursor: its texts are bytes, for JSON would change a string that is not UTF-8.
type coldFilter struct {
	From, To                        time.Time
	Key, Contains, Error, ErrorLike []byte
	Headers                         [][2][]byte
	Limit                           int
}

func cold(f Filter) coldFilter {
	c := coldFilter{From: f.From, To: f.To, Key: []byte(f.Key), Contains: []byte(f.Contains), Error: []byte(f.Error),
		ErrorLike: []byte(f.ErrorLike), Limit: f.Limit}
	for name, text := range f.Headers {
		c.Headers = append(c.Headers, [2][]byte{[]byte(name), []byte(text)})
	}
	return c
}

func (c *coldFilter) hot() *Filter {
	f := &Filter{From: c.From, To: c.To, Key: string(c.Key), Contains: string(c.Contains), Error: string(c.Error),
		ErrorLike: string(c.ErrorLike), Limit: c.Limit}
	for _, h := range c.Headers {
		if f.Headers == nil {
			f.Headers = map[string]string{}
		}
		f.Headers[string(h[0])] = string(h[1])
	}
	return f
}

func (o *operation) result(places []place) *BulkResult {
	r := o.Result
	r.Passed = maps.Clone(r.Passed)
	if !o.mute {
		r.Entry = o.Entry.String()
	}
	r.At, r.Sample = instantTime(o.Begun), o.sample
	if o.Place < len(places) {
		r.Next, _ = cursorOf(o) // there is nothing in it that cannot be written
	} else if o.Dry {
		r.Plan = o.plan()
	}
	return &r
}

// cutOff is the result beside an error. Who else continues it has the Next that counts.
func (o *operation) cutOff(places []place, err error) *BulkResult {
	r := o.result(places)
	if errors.Is(err, ErrBadCursor) {
		r.Next = ""
	}
	return r
}

// wanted are those of a page that match and are not new, and how many that match are. It cuts the page off behind
// the last that may be done at once.
func (o *operation) wanted(page *listReply, p place) (targets []spot, isNew int64) {
	f, most := o.Filter.hot(), o.room()
	for i, e := range page.entries {
		switch {
		case e.msg == nil || !f.matches(e.msg):
		case o.isNew(e.msg, p, page.now) || !o.counted(e.tag):
			isNew++
		default:
			targets = append(targets, e.spot)
			if o.Dry {
				o.note(e)
			}
		}
		if len(targets) == most {
			page.entries = page.entries[:i+1]
			break
		}
	}
	return targets, isNew
}

// isNew says whether a message came into its state after the call had begun, by now.
func (o *operation) isNew(m *MessageStatus, p place, now int64) bool {
	switch p.state {
	case StateRetry, StateReady, StateDone: // its record says since when; if that is to come, it came when the clock was ahead
		at := m.EndedAt.UnixMicro()
		return at > o.Begun && at <= now
	case StatePending:
		return sentAt(m.ID) > o.Sent
	default:
		return false
	}
}

// request is what to do to these of a page of so many.
func (o *operation) request(p place, targets []spot, looked int) steerRequest {
	do := steerRequest{what: o.What, us: o.Us, only: stateNames[p.in], targets: targets}
	if p.state == StateUnack {
		do.what = steerCancel
		for i := range targets {
			do.targets[i].score = "" // which each renewal changes
		}
	}
	if o.Spread > 0 { // this page's share of the time, for those of it that match
		share := float64(o.Spread) / float64(max(o.Result.Total, o.Result.Looked+int64(looked)))
		do.us = max(o.Us, o.Begun, o.Committed) + int64(share*float64(o.Result.Looked))
		do.step = int64(share * float64(looked) / float64(len(targets)))
	}
	return do
}

// places are the structures to go through, some in two parts, in such an order and direction that nothing which is
// moved is met again where it has gone to: what leaves ready goes to retry, which has been gone through by then.
func (o *operation) places() (all []place) {
	in := func(s State) bool { return slices.Contains(o.States, s) }
	from, to := o.Filter.hot().bounds()
	if in(StateUnack) {
		all = append(all, place{in: StateUnack, state: StateUnack, from: from, to: to})
	}
	if in(StateGarbage) {
		all = append(all, place{in: StateGarbage, state: StateGarbage, from: from, to: min(to, o.Begun+1)})
	}
	if in(StateDone) {
		all = append(all, place{in: StateDone, state: StateDone, from: max(from, o.Begun+1), to: to})
	}
	waiting := func(structure State) {
		from, to := from, to
		if !in(StateReady) {
			from = max(from, o.Begun+1)
		}
		if !in(structure) {
			to = min(to, o.Begun+1)
		}
		all = o.parts(all, place{in: structure, state: structure}, from, to)
	}
	if in(StateRetry) || in(StateReady) {
		waiting(StateRetry)
	}
	if in(StateReady) && (o.What == steerDelete || o.shifts() > 0) {
		all = append(all, place{in: StateReady, state: StateReady})
	}
	if in(StatePending) || in(StateReady) {
		waiting(StatePending)
	}
	return all
}

// shifts is by how many us it makes what is due later; 0 or less: what is due stays where it is.
func (o *operation) shifts() int64 {
	if o.What == steerAt {
		return o.Us - o.Begun
	}
	return o.Us
}

// parts are those of retry or pending between two scores.
func (o *operation) parts(all []place, p place, from, to int64) []place {
	add := func(from, to int64) {
		if from < to {
			p.from, p.to = from, to
			all = append(all, p)
		}
	}
	switch {
	case o.What == steerAt: // what is due before it, and what is due after it
		target := max(o.Us, o.Begun)
		if o.shifts() > 0 {
			add(from, min(to, target))
		}
		p.part = "later"
		add(max(from, target+o.Spread+1), to)
		if last := len(all) - 1; last >= 0 && all[last].part == p.part {
			all[last].from = max(all[last].from, o.Committed+o.Spread+1) // what has come due since stays
		}
	case o.What == steerBy && o.Us > 0:
		p.back = true
		add(from, to)
	case o.What == steerBy:
		p.part = "later"
		add(max(from, o.Begun+1), to)
	default:
		add(from, to)
	}
	return all
}
