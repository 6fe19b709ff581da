package script

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/redis/go-redis/v9"
)

// This file has the typed calls of the scripts that hand out messages and keep leases.

// HasReserved is FetchRequest.Alone of a consumer that has a message reserved and does not ask for it now.
const HasReserved = "-"

// A FetchRequest is what a poll asks for.
type FetchRequest struct {
	Want     int    // deliveries
	Rearm    bool   // set the alarm in any case
	ByAlarm  bool   // the consumer is idle: go by the alarm where that can be
	Alone    string // the Reserved of a reply: that message is asked for, and nothing else; HasReserved; "": none
	Presence string // what the consumer tells of itself; PresenceLeaving; "": nothing new
	Bytes    int    // of envelopes that the reply may hold; 0: MaxBatchBytes
	Expected int    // bytes of messages that the reply may hold as far as is known
	Apart    int    // so many messages from pending come by a call of their own, which costs the server less; 0: never
	Lose     bool   // hand out nothing new; of a lost reply, the lease of the one message ends if it is large
	Seed     int32  // by which it chooses; 0: anything

	Settings *FetchSettings
	Limits   RateLimits // that the consumer asks for
	Began    *time.Time // if not nil, is set to when the attempt has a connection, of one that fails perhaps later
}

// FetchSettings are what a consumer asks for.
type FetchSettings struct {
	Lease      time.Duration // the longest that any consumer of the queue asks for holds for all
	MaxLosses  int
	GarbageAge time.Duration // 0: for ever
	GarbageMax int           // 0: any number
}

// A FetchReply is what a poll brought.
type FetchReply struct {
	Now, Next message.ServerTime // next 0: nothing is waiting
	Tick      bool               // this consumer is to call Tick now
	Lease     *Lease             // of all that is handed out
	Tags      []string
	Envelopes []string
	Fails     []string      // for each of the first tags, "" if there is none; the others, from pending, have none
	Lost      int           // 1 if a large message did not come through, whose lease ends (FetchRequest.Lose)
	Dropped   int           // tags without a message
	First     int           // 1 if no consumer has called before
	Agreed    time.Duration // the lease that holds for all consumers of the queue
	Limits    AgreedLimits
	Totals    Totals
	Big       int    // bytes of the longest message that was ever stored, or more
	Reserved  string // names a message on its last chance, to be asked for alone; "": none

	Extras
}

// Extras belong to messages of a reply: to those that are handed out by their index, to the dead by -1 - their index.
type Extras struct {
	Parts   map[int][]string // of groups, but for the first of each
	Missing map[int]int      // of messages with a countdown: how many acks they still wait for
}

// Totals are what a fetch says of the books, and whether the server still knows of the fetch before.
type Totals struct {
	Call   int64              // number of the last call of this caller that the server knew; 0: it knew none
	Heard  message.ServerTime // when that was
	Stored int64              // messages that entered
	Acked  int64
}

// totals reads them. Those that another program has written count as 0.
func (r *reply) totals() Totals {
	n := fourNumbers(strings.Fields(r.text()))
	return Totals{n[0], message.ServerTime(n[1]), n[2], n[3]}
}

// A Lease is what one fetch handed out, as its holder knows it.
type Lease struct {
	Name     string
	Canceled atomic.Int64 // state.canceled when all that is held of it was known to be there
}

func (s *Store) Fetch(ctx context.Context, c *Caller, q FetchRequest) (FetchReply, error) {
	got, err := s.fetch(ctx, c, q)
	if s.resolved(ctx, &err) {
		return s.fetch(ctx, c, q)
	}
	return got, err
}

func (s *Store) fetch(ctx context.Context, c *Caller, q FetchRequest) (FetchReply, error) {
	args := q.args(c, s.shards)
	name := c.lease()
	got, err := s.runAs(ctx, FetchScript, args, q.Expected, func(ctx context.Context, words ...any) *redis.StringSliceCmd {
		if q.Began != nil {
			*q.Began = time.Now()
		}
		return redis.NewStringSliceCmd(ctx, words...)
	}).fetched(name, q.Apart > 0)
	if err == nil && len(got.Envelopes) < len(got.Tags) {
		err = s.readApart(ctx, &got)
	}
	return got, err
}

// readApart reads the envelopes of messages that a fetch has handed out. If one is missing, or that fails, a repeat
// of the fetch brings what is still held.
func (s *Store) readApart(ctx context.Context, got *FetchReply) error {
	args := append(make([]any, 0, 2+len(got.Tags)), "hmget", s.Keys.msg)
	args = pointersTo(got.Tags, args) // ids, because these are first deliveries
	var read *redis.StringSliceCmd
	err := s.Attempt(ctx,
		link.Effort{Bytes: link.SizeOf(args), Call: func(ctx context.Context, cli redis.UniversalClient) error {
			read = redis.NewStringSliceCmd(ctx, args...)
			return cli.Process(ctx, read)
		}})
	if err != nil {
		return fmt.Errorf("%w, but the messages that it handed out were not read: %w", link.ErrCarriedOut, err)
	}
	if got.Envelopes = read.Val(); len(got.Envelopes) != len(got.Tags) || slices.Contains(got.Envelopes, "") {
		return fmt.Errorf("%w, but not all messages that it handed out are there", link.ErrCarriedOut)
	}
	return nil
}

func (q *FetchRequest) args(c *Caller, shards any) []any {
	bytes := cmp.Or(q.Bytes, MaxBatchBytes)
	if q.Lose {
		bytes = 0
	}
	alarm := 0
	if q.Rearm {
		alarm = 1
	} else if q.ByAlarm {
		alarm = 2
	}
	args := append(c.args(11), seedOr(q.Seed), q.Want, q.Settings.Lease.Microseconds(), q.Settings.MaxLosses, alarm,
		q.Alone, q.Presence,
		bytes, q.Limits.text(), q.Apart)
	if shards != "1" {
		args = append(args, shards)
	}
	return args
}

// fetched reads the reply of the fetch whose lease has that name. apart: envelopes may be left out.
func (r *reply) fetched(lease string, apart bool) (FetchReply, error) {
	got := FetchReply{Lease: &Lease{Name: lease}}
	given := r.last()
	got.Envelopes = r.take(min(given, MaxBatch))
	if got.Tags = strings.Fields(r.text()); len(got.Tags) != given && !(apart && given == 0) || len(got.Tags) > MaxBatch {
		r.fail("%d tags of %d messages", len(got.Tags), given)
	}
	got.Now, got.Next, got.Tick = message.ServerTime(r.int64()), message.ServerTime(r.int64()), r.number() == 1
	got.Lost, got.Dropped, got.First = r.number(), r.number(), r.number()
	got.Agreed = message.Microseconds(r.int64())
	got.Limits = r.limits()
	fails := r.number()
	got.Lease.Canceled.Store(r.int64())
	got.Totals = r.totals()
	missing := r.number()
	got.Reserved, got.Big = r.text(), r.number()
	got.Fails = r.take(fails)
	if got.Big < 0 {
		r.fail("%d bytes", got.Big)
	}
	got.Extras = r.extras(missing, len(got.Tags), 0)
	return got, r.err("fetch")
}

// extras reads them, to the end of the reply.
func (r *reply) extras(missing, given, dead int) (x Extras) {
	for len(x.Missing) < missing && r.bad == nil {
		if x.Missing == nil {
			x.Missing = map[int]int{}
		}
		x.Missing[r.nth(given, dead)] = r.number()
	}
	for len(r.rest) > 0 && r.bad == nil {
		if x.Parts == nil {
			x.Parts = map[int][]string{}
		}
		nth := r.nth(given, dead)
		x.Parts[nth] = r.take(r.number())
	}
	return x
}

// nth reads which message something belongs to, and returns its index among those that are given, or -1 - its index
// among the dead.
func (r *reply) nth(given, dead int) int {
	nth := r.number()
	if nth == 0 || nth > given || -nth > dead {
		r.fail("message %d of %d and %d", nth, given, dead)
	}
	if nth > 0 {
		nth--
	}
	return nth
}

// An ExtendReply is what extend says of leases and messages, in the order of the call.
type ExtendReply struct {
	Canceled int64
	Left     []int  // of each lease its count; 0: it is over
	There    []bool // of each id; false: the message is nowhere
}

// Extend renews leases by their names, and looks at messages by their ids.
func (s *Store) Extend(ctx context.Context, lease time.Duration, names, ids []string) (ExtendReply, error) {
	args := append(make([]any, 0, 2+len(names)+len(ids)), lease.Microseconds(), len(names))
	args = pointersTo(ids, pointersTo(names, args))
	r := s.run(ctx, ExtendScript, args)
	got := ExtendReply{Canceled: r.int64(), Left: make([]int, len(names)), There: make([]bool, len(ids))}
	for i := range got.Left {
		if got.Left[i] = r.number(); got.Left[i] < 0 {
			r.fail("count %d", got.Left[i])
		}
	}
	for i := range got.There {
		word := r.number()
		if got.There[i] = word == 1; word != 0 && word != 1 {
			r.fail("answer %d", word)
		}
	}
	return got, r.err("extend")
}

// Keep parts a lease: what its holder holds of it stays, and what else is held goes on without it. It returns how
// many messages do.
func (s *Store) Keep(ctx context.Context, name string, tags []string) (others int, err error) {
	r := s.run(ctx, KeepScript, pointersTo(tags, append(make([]any, 0, 1+len(tags)), name)))
	others = r.number()
	return others, r.err("keep")
}

// Presence is what a consumer reports of itself, as JSON. Its times are durations until then, for the
// server's clock is not this machine's.
type Presence struct {
	Host        string           `json:"host"`
	PID         int              `json:"pid"`
	UpUs        int64            `json:"up"`
	Concurrency int              `json:"concurrency"`
	Handling    []HandledMessage `json:"handling,omitempty"`
	KindHeader  string           `json:"kind_header,omitempty"`
	Kinds       []KindCount      `json:"kinds,omitempty"`
}

type HandledMessage struct {
	ID string `json:"id"`
	Us int64  `json:"us"` // since its handler started
}

// KindCount is what a consumer did with the messages of one kind, in this hour and the hour before.
type KindCount struct {
	Kind    string  `json:"kind"`
	Other   bool    `json:"other,omitempty"` // all kinds that have no count of their own
	Handled int64   `json:"n"`
	Failed  int64   `json:"failed,omitempty"`
	Took    []int64 `json:"took"` // how many handlers took less than 1 ms, 2 ms, 4 ms, ...; zeros at the end are left out
}

// What a consumer reports of kinds, at most.
const (
	MaxKinds     = 50
	MaxKindBytes = 64
	KindBuckets  = 22 // the last one has all handlers that took 2^20 ms (17 min) or longer
)

const (
	MinAlive        = 3 * time.Second // how long a silent consumer counts as alive, if its lease is not longer
	PresenceLeaving = "-"             // a consumer has stopped, which it says in place of all this
)
