// Package check reads the whole state of one queue from Redis and names every breach of its invariants. It is a second
// reading of the keys of a queue, written from docs/redis.md. It imports only what reads the bytes of one message,
// package message. Tests call [Assert] after every scenario.
//
// The invariants hold between any two calls. Behind each stand the breaches of it, and tests that show what cannot be
// seen in Redis.
//
//  1. Each message is in one place, with all that belongs to it. An accepted message is in exactly one of the seven
//     structures, once, and its envelope is in msg, until it is deleted. The other keys hold what the page says, and
//     nothing else. Breaches: no envelope, malformed tag, wrong place, no place, many places, bad envelope, no record,
//     stray record, key not held, stray key entry, stray result, stray part, lost parts, stray list, unlisted group,
//     lost lease, stray lease, wrong count, leftover.
//  2. No message is handed out before its due instant, by the server's clock. Breaches: malformed score, due differs;
//     TestModel.
//  3. Only the holder of the lease ends its deliveries or renews it, in the writes that Redis has kept. Breaches: wrong
//     record, wrong place; TestModel, TestScriptFailoverForgetsFetch.
//  4. What counts against a message is exact. Failures bring at most 1 + retries deliveries. A loss uses no retry, a
//     release and a snooze use nothing, and so many losses in a row as WithMaxLosses says are poison. An ack counts for
//     one countdown, once. Breaches: malformed record, wrong record; TestModel.
//  5. Work is bounded, O(log n) for each message, O(n) to find one in ready: 500 messages, and 1 MB, which is known
//     before values are read. New messages and retries do not starve each other. Breaches: bad state;
//     TestScriptCostsOfSends, TestScriptFetchBounds, TestScriptFetchBudget.
//  6. A call that arrives twice has the effect of once, and a call that arrives after a later call of its caller has
//     none. Breaches: bad state; TestModel.
//  7. Scripts may run in any order, on any number of machines, and be cut off between any two. Breaches: all others,
//     after TestChaos and each scenario of "make faults".
//  8. After SCRIPT FLUSH, a failover, a resharding or a restart the next call works: "make faults".
//  9. Somebody wakes in time. While anything waits in pending, retry or ready, state.armed is not after the soonest of
//     it or the end of the pause. A marker stands at armed, or where state.limited says. Breaches: late alarm, stray
//     alarm.
//  10. The queue is these keys, of these types, and only consumers, history and journal may expire. Breaches: wrong
//     type, time to live, stray key.
//  11. Every field and record is one of the page, and so is the layout. Breaches: unknown layout, bad state, bad
//     consumer, bad history, bad journal.
//  12. A number of a sequence makes one message at most, until the sequence is dropped: message and number are stored
//     in one call, so a failover forgets both. Breaches: bad sequence; TestSequenceManyRelays, TestModel.
//  13. A lane is handled in order, at most so many at a time as its width says. A live message with a lane has a turn
//     or is in waiting. No turn is free while one waits. Breaches: stray lane member, not in its lane, wrong lane;
//     TestModel.
//  14. The books balance. Breaches: books do not balance; TestModel.
//  15. No id and no key is in two shards, and each id and name lies in the shard that it says. Breaches: many shards,
//     wrong shard.
//
// Nothing in it writes to Redis. A [State] is a value of its own, not kept up to date, and safe for concurrent
// reading.
package check

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// readLimit bounds one reading by Assert and AssertEmpty.
const readLimit = 5 * time.Minute

// maxInstant is 2^53 us, in the year 2255: the first integer from which a
// double, which is what Redis keeps as a score, is no longer exact.
const maxInstant = int64(1) << 53

// Queue names a queue. The zero value names none.
type Queue struct {
	Prefix string // "dq" unless UseCustomPrefix said otherwise
	Name   string
}

// Base is what every key of the queue begins with.
func (q Queue) Base() string { return "{" + q.Prefix + ":" + q.Name + "}:" }

// Key is the Redis key of one structure, such as "pending".
func (q Queue) Key(structure string) string { return q.Base() + structure }

// Keys are the Redis keys of all its structures.
func (q Queue) Keys() []string {
	var all []string
	for _, st := range structures {
		all = append(all, q.Key(st.name))
	}
	return all
}

// State is everything that Redis held of a queue at one instant. What could
// not be decoded is in it all the same, with the reason as its Problem.
type State struct {
	Queue Queue
	Now   int64 // the server's clock at the reading, unix us

	Pending []Entry // in order of score, as are Unack, Retry, Waiting, Garbage and Done
	Ready   []Entry // in order of the list, head first; Score is 0
	Unack   []Entry // what leases hold
	Retry   []Entry
	Waiting []Entry // for a turn of their lanes
	Garbage []Entry
	Done    []Entry

	Leases map[string]Lease // by name
	Lanes  []LaneMember     // turns of lanes, and what waits for one, in the order of the key

	Messages map[string]Envelope // by id
	Fail     map[string]Fail     // by id
	Keys     map[string]string   // message key -> id
	Results  map[string]int      // id -> bytes
	Parts    map[string]int      // <id>:<n> -> bytes, of groups
	// id -> '<acks that have counted> <acks for which it waits>', of a message with a countdown
	Counted  map[string]string
	Missing  map[string]int64  // id -> how many of these are missing
	Left     map[string]string // message key -> ids of the groups that have left it, with blanks between
	Holds    []Marker          // keys that acked messages keep taken, each until its score; in that order
	Wake     int64             // instant of the member "w" of wake, unix us; 0: none
	Markers  []Marker          // every member of wake, "w" included
	Fields   map[string]string // the hash state
	whole    bool              // all of it was read at one instant
	expected int64             // so many are missing by the books, as is known

	Sequences map[string]string // name -> digits

	Consumers map[string]string // what each said of itself, by name
	History   map[string]string // counters
	Journal   []Marker          // what was done, the oldest first

	TTLs      map[string]int64  // structure -> ms to live, of those that would expire
	WrongType map[string]string // structure -> type found, of those that have another than they should
	Strays    []string          // keys under the base that are none of the queue's
}

// Entry is one tag in pending, ready, unack, retry, waiting, garbage or done.
type Entry struct {
	Tag          string
	ID           string // "" if no id can be made out
	Delivery     int64  // 1 for a plain id; 0 if the tag is malformed
	Score        int64  // unix us, in unack the end of the lease; 0 in ready, and where ScoreProblem says why
	TagProblem   string // "" for a well-formed tag
	ScoreProblem string // "" for an integer in (0, 2^53), and in ready
	Lease        string // in unack: the name of the lease that holds it
}

// Marker is one member of wake.
type Marker struct {
	Member  string
	Score   int64 // unix us; 0 if Problem is not ""
	Problem string
}

// place is one structure that holds tags, by name.
type place struct {
	name    string
	entries []Entry
}

// places lists the seven structures in the order a message goes through them.
func (s *State) places() []place {
	return []place{
		{"pending", s.Pending},
		{"ready", s.Ready},
		{"unack", s.Unack},
		{"retry", s.Retry},
		{"waiting", s.Waiting},
		{"garbage", s.Garbage},
		{"done", s.Done},
	}
}

// Where names the structure that holds the message: "pending", "ready",
// "unack", "retry", "waiting", "garbage" or "done", and "gone" if none does. Of several,
// which is a breach, it names the first in this order.
func (s *State) Where(id string) string {
	for _, p := range s.places() {
		for _, e := range p.entries {
			if e.ID == id {
				return p.name
			}
		}
	}
	return "gone"
}

// Assert reads the queue and reports every breach as an error of the test, with
// a dump of the state if there is one. It returns the state. A queue that
// cannot be read ends the test, so it must be called from the test's own
// goroutine, or from a Cleanup.
//
// Call it when no script of the queue is under way, or keep in mind that the
// search for stray keys is not part of the snapshot.
func Assert(t testing.TB, cli redis.UniversalClient, prefix, name string) *State {
	t.Helper()
	return AssertMissing(t, cli, prefix, name, 0)
}

// AssertMissing does what Assert does for a queue of which so many messages are missing by the books, because the
// test has deleted them. Less than 0: it has made so many.
func AssertMissing(t testing.TB, cli redis.UniversalClient, prefix, name string, missing int64) *State {
	t.Helper()
	s := mustRead(t, cli, prefix, name)
	if s != nil {
		s.Expect(missing)
		report(t, s.Breaches(), s)
	}
	return s
}

// AssertEmpty does what AssertMissing does, and reports every message that is left
// anywhere: in a structure, in msg, fail or key.
func AssertEmpty(t testing.TB, cli redis.UniversalClient, prefix, name string, missing int64) *State {
	t.Helper()
	s := mustRead(t, cli, prefix, name)
	if s != nil {
		s.Expect(missing)
		report(t, append(s.Breaches(), s.leftovers()...), s)
	}
	return s
}

// mustRead returns nil only where t.Fatalf returns, as a test's stand-in may.
func mustRead(t testing.TB, cli redis.UniversalClient, prefix, name string) *State {
	t.Helper()
	return must(t, cli, func(ctx context.Context) (*State, error) { return Read(ctx, cli, prefix, name) })
}

// must reads until there is a reading, and ends the test if there is none in time.
func must[T any](t testing.TB, cli redis.UniversalClient, read func(context.Context) (*T, error)) *T {
	t.Helper()
	// Not t.Context(): that one has ended when a Cleanup runs.
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	s, err := read(ctx)
	// While a node of a Cluster is promoted, or comes back, others may send the client on more often than it follows.
	// A client may know for a minute only the node that has died.
	for cluster, ok := cli.(*redis.ClusterClient); ok && err != nil && ctx.Err() == nil; {
		select {
		case <-time.After(50 * time.Millisecond):
			cluster.ReloadState(ctx)
			s, err = read(ctx)
		case <-ctx.Done():
		}
	}
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	return s
}

func report(t testing.TB, breaches []string, states ...*State) {
	t.Helper()
	for _, b := range breaches {
		t.Errorf("%s", b)
	}
	for i := 0; i < len(states) && len(breaches) > 0; i++ {
		t.Logf("state of the queue:\n%s", strings.TrimRight(states[i].Dump(), "\n"))
	}
}
