package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// onBehalf is the person who acts, and the reason, as given.
type onBehalf struct{ by, why string }

// A Queue is a queue as a person on call sees it: it counts, lists and finds, and changes one message, many, or the
// queue itself. Its changes stand in the journal of the queue. It is safe for concurrent use.
//
// All calls are about the whole queue, however many shards it has. A change of the queue itself (Pause, SetLimits) is
// made in each shard. Of several shards, none is waited for longer than two seconds, and one that has not answered
// for less than that, for some seconds. If some do not answer, the call is made in the others, and returns its result
// beside an ErrMissingShards that names the shards, and says why. The journal says in how many shards a change was
// made. The same call, made again, makes it in all.
type Queue struct {
	monitor    *delayqueue.Monitor
	store      *shard.Queue
	calls      script.LimitedCalls
	who        onBehalf
	anew       bool
	most       int          // bytes that are read of a message at most; 0: any number
	unwritable atomic.Bool  // this user may not write the journal
	log        *slog.Logger // nil: slog.Default
}

// Of returns the queue of a Monitor.
func Of(m *delayqueue.Monitor) *Queue {
	cli, prefix := m.Redis()
	return &Queue{monitor: m, store: shard.New(script.NewStore(cli, prefix, m.Name()), 0)}
}

// Name is the name of the queue.
func (m *Queue) Name() string { return m.store.Queue }

// Monitor is the Monitor of which Of made the Queue. Its calls do not stand in the journal.
func (m *Queue) Monitor() *delayqueue.Monitor { return m.monitor }

// WithOperator says in whose name the Queue acts. The name stands in the events of its calls (Event.By), with a pause
// (Counts.PausedBy) and in the journal. At most 200 bytes are kept, as one line. Call it before all other methods.
// Default: none.
func (m *Queue) WithOperator(name string) *Queue {
	m.who.by = script.OneLine(name, script.MaxBy)
	return m
}

// WithReason says why the Queue acts. The reason stands with a pause (Counts.PauseReason) and in the journal. At most
// 1,000 bytes are kept, as one line. Call it before all other methods, and make a Queue for each act, which costs
// next to nothing. Default: none.
func (m *Queue) WithReason(text string) *Queue {
	m.who.why = script.OneLine(text, script.MaxWhy)
	return m
}

// Anew makes RunNow, Requeue, Reschedule and the like lift the deadline of a message that would have expired when it
// is due, for good, and begin its TTL anew. Otherwise they return ErrExpired. Bulk.Anew does the same for many. Call
// it before all other methods, and make a Queue for each act.
func (m *Queue) Anew() *Queue {
	m.anew = true
	return m
}

// WithReadLimit makes the Queue read no message of more than so many bytes. A message may have 511 MB. Of a larger
// one payload, headers, key and options are not known, and its Broken is ErrNotRead. Find by an id or a key, and the
// error of a refused Requeue, read a message all the same. Call WithReadLimit before all other methods. 0: no limit,
// which is the default.
func (m *Queue) WithReadLimit(bytes int) *Queue {
	m.most = max(bytes, 0)
	return m
}

// failed is an error that names the queue and the call.
func (m *Queue) failed(err error, format string, args ...any) error {
	return m.store.Failed(err, format, args...)
}

// there returns ErrNoQueue if the queue has no key in Redis. Calls that found nothing use it, and say themselves which
// shards they did not ask.
func (m *Queue) there(ctx context.Context) error {
	_, err := m.store.ReadCounts(ctx)
	if partly(err) != "" {
		return nil
	}
	return err
}

// partly says of how many shards a change was made that was not made in all; "" if it was made in all, or in none.
func partly(err error) string {
	var missing *shard.MissingError
	if !errors.As(err, &missing) {
		return ""
	}
	return fmt.Sprintf("in %d of %d shards", missing.Answered, missing.Of)
}

// partly adds how many shards were changed, if err says that not all were.
func (r journalRecord) partly(err error) journalRecord {
	if some := partly(err); some != "" {
		r.Detail = strings.TrimPrefix(r.Detail+"; "+some, "; ")
	}
	return r
}

// tellTime bounds the attempts to publish an event. A failure is not reported, because perhaps nobody listens.
const tellTime = time.Second

// tell publishes an event to the listeners of all processes.
func (m *Queue) tell(what delayqueue.EventCode, n int, ids ...string) {
	text, _ := json.Marshal([]delayqueue.Event{{Code: what, Time: time.Now(), Count: n, IDs: ids,
		By: m.who.by}}) // there is nothing in it that cannot be written
	_ = m.store.Publish(tellTime, text)
}

// What keeps DeleteQueue from deleting a queue without force.
var (
	ErrConsumersAlive = script.ErrConsumersAlive // the queue has consumers that are alive
	ErrNotEmpty       = script.ErrNotEmpty       // the queue holds messages in any state, or schedules
)

// ErrUnknownLayout: a newer version of this library writes the queue, and may keep messages where this version does
// not look. So calls for many and DeleteQueue are refused: upgrade this program. Sending, consuming and calls for one
// message go on.
var ErrUnknownLayout = script.ErrUnknownLayout

// DeleteQueue deletes a queue: its messages, keys, sequences, history, pauses, limits, and its periodic messages
// (schedule/). The journal stays for 31 days.
//
// Without force, it deletes only a queue that is out of use. It returns ErrNotEmpty if the queue holds messages in
// any state (those in garbage and those that are kept after their ack too) or periodic messages, and
// ErrConsumersAlive if consumers are alive. A message that is done counts until a consumer has deleted it. Keys that
// are held, sequences and history do not count.
//
// With force, nothing of that matters. The contexts of handlers end within a third of a lease, their acks are void,
// and consumers go on with messages that are sent later. These consumers note a loss (Counts.LossSince) if messages
// were in the queue.
//
// DeleteQueue returns ErrUnknownLayout, with force too, if a newer version of this library writes the queue. There is
// one attempt: after an error of the network the queue may or may not have been deleted. If the queue has several
// shards, nothing is deleted if any shard holds something when the call begins. A message that is sent, or a consumer
// that starts, while the shards are deleted one after the other, keeps its shard and those that follow: the error
// says in how many shards the queue was deleted. DeleteQueue can be called again then.
func (m *Queue) DeleteQueue(ctx context.Context, force bool) error {
	messages, err := m.store.Drop(ctx, force)
	if err != nil && partly(err) == "" {
		return m.failed(err, "delete it")
	}
	if err == nil {
		m.tell(delayqueue.QueueDeletedEvent, 0)
	}
	m.done(ctx, journalRecord{Act: journal.DeleteQueue, N: int64(messages)}.partly(err))
	if err != nil {
		return m.failed(err, "delete it")
	}
	return nil
}
