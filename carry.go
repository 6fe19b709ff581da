package delayqueue

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file makes attempts for a batch until there is an answer, and knows of each message whether it can have been stored.

// A batch is what one script call carries. It is guarded by flights.sendMu.
type batch struct {
	msgs     []*outgoing
	gate     *gate // of the last attempt; nil before the first
	first    gate
	one      [1]*outgoing   // room for msgs
	plain    []*sendMessage // what the present attempt sends of msgs
	onePlain [1]*sendMessage
	reached  bool          // an attempt may have been carried out, nobody knows
	staying  int           // messages whose callers have not left
	empty    chan struct{} // closes when nobody stays; nil: nobody wants to know
}

// A gate is passed when an attempt is written to a connection, and never once it is closed. So whoever closes it
// knows that the attempt had no effect and will have none, however late it finds a connection.
type gate struct {
	state atomic.Int32
	call  int64 // its number
}

const (
	gateOpen = iota
	gatePassed
	gateClosed
)

var errGateClosed = errors.New("nobody waits for this attempt any more")

func (g *gate) pass() error {
	if g.state.CompareAndSwap(gateOpen, gatePassed) || g.state.Load() == gatePassed {
		return nil
	}
	return errGateClosed
}

// close says whether it was closed before anything passed.
func (g *gate) close() bool {
	return g.state.CompareAndSwap(gateOpen, gateClosed) || g.state.Load() == gateClosed
}

func (g *gate) String() string { return strconv.FormatInt(g.call, 10) }

// MarshalBinary is called when the command is written to a connection, of which the gate is an argument: the number of the call.
func (g *gate) MarshalBinary() ([]byte, error) { return strconv.AppendInt(nil, g.call, 10), g.pass() }

// carry makes attempts for a batch until there is an answer or nobody waits for one any more.
func (s *sending) carry(c *caller, b *batch, attempt int) {
	for ; !s.attempt(c, b, attempt); attempt++ {
		s.rest(b, backoff(attempt))
	}
}

// rest waits d, or until everybody has left.
func (s *sending) rest(b *batch, d time.Duration) {
	s.sendMu.Lock()
	if b.staying == 0 {
		s.sendMu.Unlock()
		return
	}
	b.empty = make(chan struct{})
	s.sendMu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.empty:
	}
	s.sendMu.Lock()
	b.empty = nil
	s.sendMu.Unlock()
}

// attempt makes one attempt for a batch and says whether that was the last. While none of them can have been
// carried out, those who have left are left behind; from then on each is a repeat of the same call.
func (s *sending) attempt(c *caller, b *batch, n int) (last bool) {
	s.sendMu.Lock()
	if !b.reached {
		b.msgs = slices.DeleteFunc(b.msgs, func(m *outgoing) bool { return m.call == nil })
		c.next()
	}
	if b.staying == 0 || len(b.msgs) == 0 {
		s.sendMu.Unlock()
		return true // everybody has left, with their context's error
	}
	if b.gate == nil {
		b.gate = &b.first
	} else {
		b.gate = new(gate) // an attempt that was late may pass the one before
	}
	b.gate.call, c.gate = c.n, b.gate
	b.plain = slices.Grow(b.onePlain[:0], len(b.msgs))
	for _, m := range b.msgs {
		b.plain = append(b.plain, &m.sendMessage)
	}
	s.sendMu.Unlock()

	begun := time.Now()
	out, err := s.store.send(context.Background(), c, sendRequest{b.plain, s.replicas, s.replicaTimeout})
	if err == nil || errors.Is(err, ErrNotReplicated) {
		s.land(b, out, err)
		return true
	}
	unknown := !b.gate.close() && !refusal(err)
	s.failed(b, begun, err, unknown)
	if stale(err) {
		*c = *newCaller()
		if !b.reached {
			return false
		}
	}
	if errors.Is(err, errGateClosed) || transient(err) {
		return false
	}
	if len(b.msgs) > 1 && !b.reached && !everybodys(err) {
		// It may be the trouble of one of them.
		for _, m := range b.msgs {
			s.carry(c, s.alone(m), 1)
		}
		return true
	}
	s.land(b, out, err)
	return true
}

// alone makes a batch of one message of another.
func (s *sending) alone(m *outgoing) *batch {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	b := &batch{msgs: []*outgoing{m}}
	if m.call != nil {
		b.staying = 1
	}
	m.batch = b
	return b
}

// failed notes why an attempt failed.
func (s *sending) failed(b *batch, begun time.Time, err error, unknown bool) {
	s.sendMu.Lock()
	b.reached = b.reached || unknown
	s.trouble = err
	noted := s.outage
	if noted == nil && transient(err) {
		noted = &outage{log: s.events.logger().With(slog.String("queue", s.store.queue))}
		s.outage = noted
	}
	s.sendMu.Unlock()
	if noted != nil && transient(err) {
		noted.report("send", begun, err)
	}
}

// errCarriedOut is in the error of a call that was carried out by an attempt of which another part failed.
var errCarriedOut = errors.New("the replicas could not be asked")

// refusal tells an answer of the server that says that a call was not carried out. A server's error begins with its
// code in capitals; what does not is a proxy's, which may have passed the call on.
func refusal(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) || errors.Is(err, errCarriedOut) || says(err, "UNBLOCKED") {
		return false
	}
	code, _, _ := strings.Cut(strings.TrimPrefix(answer.Error(), "-"), " ")
	return code != "" && code == strings.ToUpper(code)
}

// everybodys tells what has nothing to do with one message.
func everybodys(err error) bool {
	return errors.Is(err, redis.ErrClosed) || says(err, "OOM", "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF", "READONLY")
}

// land hands out the outcomes of a batch.
func (s *sending) land(b *batch, out sendReply, err error) {
	soonest := int64(math.MaxInt64)
	var sent []string
	told := out.now != 0 && s.events.on()
	s.sendMu.Lock()
	noted := s.outage
	if out.now != 0 {
		s.trouble, s.outage = nil, nil
	}
	for i, m := range b.msgs {
		due := m.when.due(out.now)
		soonest = min(soonest, due)
		if told && out.refused[i] == "" {
			sent = append(sent, m.id)
		}
		if m.call == nil {
			continue // its caller left
		}
		s.outcome(m, b, out, i, err)
		m.call.left--
		if m.call.left == 0 && m.call.done != nil {
			close(m.call.done)
		}
		m.call = nil
	}
	s.sendMu.Unlock()
	if out.now == 0 {
		return
	}
	if noted != nil {
		noted.report("send", time.Time{}, nil)
	}
	s.events.tell(NewMessageEvent, len(sent), sent...)
	if s.sent != nil {
		s.sent(time.Duration(soonest-out.now) * time.Microsecond)
	}
}

// outcome is what became of message i of a batch, with sendMu held.
func (s *sending) outcome(m *outgoing, b *batch, out sendReply, i int, err error) {
	m.err = err
	holder, refused := out.refused[i]
	switch {
	case refused:
		m.stored, m.err = StoredNo, &DuplicateKeyError{Queue: s.store.queue, Key: m.key, ID: holder}
	case out.now != 0:
		m.stored, m.due = StoredYes, time.UnixMicro(m.when.due(out.now))
	case b.reached:
		m.stored = StoredUnknown
	default:
		m.stored = StoredNo
	}
}
