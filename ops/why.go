package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A Why says what a message waits for, or the next message of a lane.
type Why struct {
	Message *MessageStatus // nil: the answer is about a lane
	Now     time.Time      // by the server's clock; all other instants are of that clock, too
	// all that is known to hold the message now, in the order in which it must end; at least one
	Causes []Cause
}

// A Cause is a reason why a message is not handled now.
type Cause struct {
	// Code says what the message waits for:
	//
	//	instant      its own due instant
	//	retry        its next delivery, after a failure, a loss, a Snooze or a Throttle
	//	acks         acks of other messages (WithCountdown)
	//	resume       the queue is paused
	//	consumer     no consumer is alive
	//	throttle     a handler has returned Throttle
	//	rate         the rate limit of the queue
	//	concurrency  all places of the queue are taken (WithQueueConcurrency, SetLimits)
	//	worker       all workers of all consumers are busy; of a consumer that reports 100 messages, all count as busy
	//	lane         its turn in its lane; a second one without a Message says how many get theirs before it
	//	others       messages that are due as well
	//	nothing      a consumer takes it next
	//
	// Of a message that does not wait, Code is one of these:
	//
	//	handled      a handler has it
	//	lease        a consumer has it, and no handler, as far as consumers say
	//	garbage      it was given up on
	//	done         it was acked
	Code string
	// since when. In "worker" and "others" it is since when Message is handled, and since when the oldest of them is
	// due; in "lane", since when the message itself is. Zero: not known, or not yet.
	Since time.Time
	// when this ends by itself at the earliest; in "lane" it is the next try of Message, which may fail. In "handled" it
	// is the time limit of the handler, and in "done" the instant until which the message is kept. Zero: not known.
	Until time.Time
	// the id of the message that is in the way: in "lane" one that has the turn, in "worker" and "concurrency" the one
	// that has been handled for longest, in "acks" the one that died last; "" if not known
	Message  string
	Dead     []string // in "acks": ids of dead messages whose acks are missing, the one that died last first; at most 3
	Consumer string   // the ID of the Consumer that handles Message, or the message itself; "" if not known
	Remedy   string   // what would end it sooner, in English; "" if nothing would

	english string
	args    []any
}

// Say returns the cause as a sentence in English, with %s for each of the arguments: a time.Time, an int64, or a
// string, which somebody else may have written. So a program can write instants in its own way, or translate.
func (c Cause) Say() (english string, args []any) { return c.english, c.args }

// say sets the sentence.
func (c Cause) say(english string, args ...any) Cause {
	c.english, c.args = english, args
	return c
}

// String says all causes in English, and what would end them, a line for each.
func (w *Why) String() string {
	var lines []string
	for _, c := range w.Causes {
		args := slices.Clone(c.args)
		for i, arg := range args {
			if at, ok := arg.(time.Time); ok {
				args[i] = w.instant(at)
			}
			args[i] = fmt.Sprint(args[i])
		}
		line := fmt.Sprintf(c.english, args...) + "."
		if c.Remedy != "" {
			line += " " + c.Remedy + "."
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// instant is an instant with its distance from w.Now.
func (w *Why) instant(at time.Time) string {
	far := at.Sub(w.Now).Round(time.Second)
	if far <= 0 {
		return fmt.Sprintf("%s (%v ago)", instantText(at), far.Abs())
	}
	return fmt.Sprintf("%s (in %v)", instantText(at), far)
}

// Why says what the message with this id waits for. It reads the message, the counts and the consumers of the queue,
// and the lane of a message that waits for its turn with the message in front, one after the other. So if messages
// move meanwhile, the answer may be one of a moment before. It returns ErrNotFound if there is no such message.
func (m *Queue) Why(ctx context.Context, id string) (*Why, error) {
	msg, err := m.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return m.why(ctx, msg)
}

// WhyKey is Why for the message that GetKey finds, with the same errors.
func (m *Queue) WhyKey(ctx context.Context, key string) (*Why, error) {
	msg, err := m.GetKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return m.why(ctx, msg)
}

func (m *Queue) why(ctx context.Context, msg *MessageStatus) (*Why, error) {
	f, err := m.whyFacts(ctx, "id", msg.ID)
	if err != nil {
		return nil, m.failed(err, "why %s", msg.ID)
	}
	if msg.State == delayqueue.StateWaiting && msg.Lane != "" {
		f.lane, err = m.oneLane(ctx, msg.Lane, script.BeforeIn(msg.At.UnixMicro(), msg.ID))
		if err != nil && f.lane == nil && !errors.Is(err, delayqueue.ErrNotFound) { // the lane may be gone by now
			return nil, err
		}
		if f.lane != nil {
			f.before = f.lane.Waiting
		}
	}
	f.readFront(ctx, m)
	f.readDead(ctx, m, msg)
	return &Why{Message: msg, Now: f.now(), Causes: f.causes(msg)}, nil
}

// readDead reads which of the 100 messages that died last count for a message with a countdown. If they cannot be
// read, the answer says less.
func (f *whyFacts) readDead(ctx context.Context, m *Queue, msg *MessageStatus) {
	if msg.CountdownLeft == 0 {
		return
	}
	page, err := Of(m.Monitor()).WithReadLimit(64<<10).List(ctx, delayqueue.StateGarbage, Filter{LatestFirst: true}, "")
	if page == nil || err != nil && partly(err) == "" {
		return
	}
	for _, dead := range page.Messages { // those that died before it was sent counted for an earlier one with its key
		if dead.Counts == msg.Key && dead.At.UnixMicro() > message.SentAt(msg.ID) && len(f.dead) < msg.CountdownLeft {
			f.dead = append(f.dead, dead)
		}
	}
}

// readFront reads the message in front of the lane, if that waits for a retry. It may be gone by now, or be taken: then
// the answer says less.
func (f *whyFacts) readFront(ctx context.Context, m *Queue) {
	if f.lane == nil || len(f.lane.Holders) == 0 {
		return
	}
	if h := f.lane.inFront(); h.State == delayqueue.StateRetry {
		if front, err := m.Get(ctx, h.ID); err == nil && front.State == delayqueue.StateRetry {
			f.front = front
		}
	}
}

// WhyLane says what the next message of a lane waits for. It returns ErrNotFound as Lane does.
func (m *Queue) WhyLane(ctx context.Context, name string) (*Why, error) {
	l, err := m.Lane(ctx, name)
	if err != nil && l == nil {
		return nil, err
	}
	f, err := m.whyFacts(ctx, "key", name) // a lane is in the shard of its name, as a key is
	if err != nil {
		return nil, m.failed(err, "why lane %q", name)
	}
	f.lane = l
	f.readFront(ctx, m)
	return &Why{Now: f.now(), Causes: f.inLane(l.Name, l.Since)}, nil
}

// A WhyGroup is the messages of which the first cause is the same. They are counted without a look at their lanes: what
// waits for its turn is in "lane", although Example may first name what holds up the message in front.
type WhyGroup struct {
	Code    string
	Count   int64
	Example *Why // of the first that was met
}

// WhyAll counts the messages that match f by what they wait for (Cause.Code), the largest group first. It looks at
// all messages that are to be delivered or are being handled, at most of them (0: 100,000), page by page, as Find
// does. left is how many it has not looked at. Beside an error it returns what was counted until then. List says
// what if some shards do not answer.
func (m *Queue) WhyAll(ctx context.Context, f Filter, most int) (groups []WhyGroup, left int64, err error) {
	var w walk
	places, facts, err := m.whyPlaces(ctx, f, &w.Absence)
	if err == nil {
		err = w.start(ctx, m, places)
	}
	if err == nil && w.Total == 0 {
		err = m.there(ctx)
	}
	if err == nil {
		err = w.goOn(ctx, m, places, walkPage, cmp.Or(max(most, 0), 100_000), 64<<20, func(msg *MessageStatus) bool {
			if f.matches(msg) {
				groups = addWhy(groups, msg, facts[places[w.Place].shard])
			}
			return true
		})
	}
	if w.Place < len(places) {
		left = max(w.Total-w.Looked, 0)
	}
	slices.SortStableFunc(groups, func(a, b WhyGroup) int { return cmp.Compare(b.Count, a.Count) })
	if err != nil {
		return groups, left, m.failed(err, "why")
	}
	err = m.failed(w.Err(len(facts), ""), "why")
	for i := range groups {
		one, failure := m.why(ctx, groups[i].Example.Message) // with its lane
		if failure != nil {
			err = cmp.Or(err, failure)
			continue
		}
		groups[i].Example = one
	}
	return groups, left, err
}

// whyPlaces are the structures of WhyAll, and what is known of each shard. A shard that does not say it is left out.
func (m *Queue) whyPlaces(ctx context.Context, f Filter, out *shard.Absence) (places []place, facts []*whyFacts,
	err error) {
	set, err := m.store.Look(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, state := range []delayqueue.State{delayqueue.StateRetry, delayqueue.StateUnack, delayqueue.StateReady,
		delayqueue.StateWaiting, delayqueue.StatePending} {
		some, err := placesOf(set, state, f)
		if err != nil {
			return nil, nil, err
		}
		places = append(places, some...)
	}
	alive, err := m.alive(ctx)
	if err != nil && partly(err) == "" {
		return nil, nil, err
	}
	for i, s := range set.All {
		one, err := shard.One(ctx, s, func(ctx context.Context, s *script.Store) (*whyFacts, error) {
			return factsOf(ctx, s, len(set.All))
		})
		if err = places[0].leaveOut(ctx, i, err, out); err != nil {
			return nil, nil, s.InShard(err)
		}
		one.consumers = alive
		facts = append(facts, one)
	}
	return places, facts, nil
}

// addWhy adds a message to its group.
func addWhy(groups []WhyGroup, msg *MessageStatus, f *whyFacts) []WhyGroup {
	w := &Why{Message: msg, Now: f.now(), Causes: f.causes(msg)}
	code := w.Causes[0].Code
	if i := slices.IndexFunc(groups, func(g WhyGroup) bool { return g.Code == code }); i >= 0 {
		groups[i].Count++
		return groups
	}
	return append(groups, WhyGroup{code, 1, w})
}

// whyFacts are what is known beside the message itself. Counts and limits are those of the message's shard, because
// only these hold it up.
type whyFacts struct {
	counts    script.CountsReply
	limits    Limits // of the whole queue, those in force
	consumers []Consumer
	lane      *Lane            // in which the message waits; nil: it waits in none, or that is not known
	before    int64            // how many messages of the lane wait before it
	front     *MessageStatus   // in that lane, if it waits for a retry; nil: it does not, or that is not known
	dead      []*MessageStatus // that count for the message, the one that died last first; as far as is known
}

func (f *whyFacts) now() time.Time { return message.InstantTime(f.counts.Now) }

// whyFacts reads what is known of the shard of an "id" or a "key". The consumers are those of the shards that answer.
func (m *Queue) whyFacts(ctx context.Context, by, what string) (*whyFacts, error) {
	f := &whyFacts{}
	set, err := m.store.Look(ctx)
	if err != nil {
		return f, err
	}
	s, err := m.store.By(ctx, by, what)
	if err != nil {
		return f, err
	}
	if f, err = factsOf(ctx, s, len(set.All)); err != nil {
		return f, s.InShard(err)
	}
	if f.consumers, err = m.alive(ctx); partly(err) != "" {
		err = nil
	}
	return f, err
}

// factsOf reads the counts of one of so many shards.
func factsOf(ctx context.Context, s *script.Store, shards int) (*whyFacts, error) {
	c, err := link.Read(ctx, s.Counts)
	whole := func(l script.RateLimits) Limits { return Limits(shard.Whole(l, shards)) }
	return &whyFacts{counts: c, limits: QueueLimits{Asked: whole(c.Asked), Set: whole(c.Set)}.InForce()}, err
}
