package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/redis/go-redis/v9"
)

// MaxBatch is how many messages one script call moves at most, and MaxBatchBytes where
// a batch stops growing: both keep the server from being held for long.
const (
	MaxBatch      = 500
	MaxBatchBytes = 1 << 20
)

// A SendMessage is a message as it is sent.
type SendMessage struct {
	ID      string
	Key     string
	When    message.When
	Version byte        // of its envelope
	Text    string      // its envelope, as encode makes it
	Put     *PutOptions // nil: send stores it, else put
	Sent    *string     // the id, as attempts send it; nil: &ID. What it points to does not change
}

// id is the id as an argument.
func (m *SendMessage) id() *string {
	if m.Sent != nil {
		return m.Sent
	}
	return &m.ID
}

// alike says whether the send script can take two messages in one run.
func (m *SendMessage) alike(other *SendMessage) bool {
	return m.When.Absolute && other.When.Absolute || m.When == other.When && m.Version == other.Version
}

// delay is what the scripts are told of it: nothing if it is absolute, for then it is in the envelope.
func (m *SendMessage) delay() any {
	if m.When.Absolute {
		return ""
	}
	return &m.When.Us
}

// A SendRequest is a batch, and how many replicas are to confirm it within what time.
type SendRequest struct {
	Messages []*SendMessage
	Replicas int
	Timeout  time.Duration
}

// A SendReply is what became of a batch.
type SendReply struct {
	Now     int64          // unix us of the call that stored it
	refused map[int]string // index -> id of the message that holds the key
	// of put: one for each message, or for the first of them; the others are to be sent by another call
	Answers []SendAnswer
	Uneven  string // of put: a lane of which messages ask for different widths; "": none was seen
}

// singleBytes is how long a message may be that is sent by the script single.
const singleBytes = 2048

// single says whether that script is enough, which writes version 1.
func (q *SendRequest) single() bool {
	m := q.Messages[0]
	return q.Replicas == 0 && len(q.Messages) == 1 && m.Put == nil && m.Key == "" && m.Version == message.FlagsVersion &&
		len(m.Text) <= singleBytes-message.EnvelopeHead
}

// Send stores messages; it is one attempt of the caller's present call.
func (s *Store) Send(ctx context.Context, c *Caller, q SendRequest) (got SendReply, err error) {
	for again := false; ; again = true {
		got, err = SendReply{}, nil
		if q.single() {
			got.Now, err = s.sendSingle(ctx, c, q.Messages[0])
		}
		if err == nil && got.Now == 0 {
			got, err = s.sendMany(ctx, c, q)
		}
		if again || !s.resolved(ctx, &err) {
			return got, err
		}
	}
}

func (s *Store) sendMany(ctx context.Context, c *Caller, q SendRequest) (SendReply, error) {
	sc, argsOf, read := SendScript, (*SendRequest).args, (*reply).stored
	if q.Messages[0].Put != nil {
		sc, argsOf, read = plainPut, (*SendRequest).putArgs, (*reply).put
		if slices.ContainsFunc(q.Messages, (*SendMessage).laned) {
			sc = PutScript
		}
	}
	args := argsOf(&q, c, s.shards)
	if q.Replicas > 0 {
		r, err := s.runOnReplicas(ctx, sc, args, q.Replicas, q.Timeout)
		if err != nil && !errors.Is(err, link.ErrNotReplicated) {
			return SendReply{}, err
		}
		out, bad := read(r, len(q.Messages))
		return out, errors.Join(bad, err)
	}
	return read(s.run(ctx, sc, args), len(q.Messages))
}

// sendSingle returns 0 if the script leaves the message to send.
func (s *Store) sendSingle(ctx context.Context, c *Caller, m *SendMessage) (now int64, err error) {
	args := []any{c.name(), c.number(), m.delay(), m.id(), &m.Text}
	if s.shards != "1" {
		args = append(args, s.shards)
	}
	cmd, err := eval(ctx, s, SingleScript, args, 0, redis.NewIntCmd)
	if err != nil {
		if noNumber := new(strconv.NumError); errors.As(err, &noNumber) {
			err = fmt.Errorf("%w: single: %w", ErrBadReply, err)
		}
		return 0, err
	}
	if now = cmd.Val(); now < 0 {
		return 0, fmt.Errorf("%w: single: %d", ErrBadReply, now)
	}
	return now, nil
}

func (q *SendRequest) args(c *Caller, shards any) []any {
	keyed := slices.ContainsFunc(q.Messages, func(m *SendMessage) bool { return m.Key != "" })
	if keyed {
		shards = shards.(string) + "+"
	}
	args := append(c.args(4+2*len(q.Messages)), shards)
	for rest := q.Messages; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].alike(rest[0]) {
			n++
		}
		args = append(args, rest[0].delay(), n, rest[0].Version)
		for _, m := range rest[:n] {
			args = append(args, m.id(), &m.Text)
		}
		rest = rest[n:]
	}
	return args
}

// stored reads the reply to a send of n messages.
func (r *reply) stored(n int) (SendReply, error) {
	out := SendReply{Now: r.int64(), refused: r.refused(n)}
	if err := r.err("send"); err != nil {
		return SendReply{}, err
	}
	return out, nil
}

// Forget forgets some callers that are heard of no more.
func (s *Store) Forget(ctx context.Context) error {
	r := s.run(ctx, ForgetScript, nil)
	r.number()
	return r.err("forget")
}

// A SendAnswer is what became of one message.
type SendAnswer struct {
	Kind   answerKind
	Held   bool   // the message that has its key was acked, and keeps the key
	Due    int64  // unix us, of the message that is there
	Holder string // id of the message that has its key
	Last   int64  // of its sequence
}

type answerKind int8

const (
	AnswerStored  answerKind = iota
	AnswerTaken              // another message has its key
	AnswerPassed             // its sequence has passed its number
	AnswerStopped            // its sequence has not come to the number before it in its batch
	AnswerKept               // holder is there in its place, perhaps changed
)

// Answer says what became of message i of a request, which is m.
func (r *SendReply) Answer(i int, m *SendMessage) SendAnswer {
	if r.Answers != nil {
		return r.Answers[i]
	}
	if holder, taken := r.refused[i]; taken {
		holder, held := strings.CutPrefix(holder, acked)
		return SendAnswer{Kind: AnswerTaken, Holder: holder, Held: held}
	}
	return SendAnswer{Due: m.When.Due(r.Now)}
}
