package script

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// This file has the typed calls about the books.

// Balance has the fields of Balance in the face.
type Balance struct {
	Since       time.Time
	Entered     int64
	Sent        int64
	Followed    int64
	Scheduled   int64
	Imported    int64
	Found       int64
	Left        int64
	Acked       int64
	Over        int64
	Superseded  int64
	Intercepted int64
	Canceled    int64
	Deleted     int64
	Aged        int64
	Trimmed     int64
	WrittenOff  int64
	Here        int64
	Unaccounted int64
}

// Balance reads the books at one instant. It returns ErrNoQueue if the queue was never used.
func (s *Store) Balance(ctx context.Context) (b Balance, err error) {
	r := s.run(ctx, BalanceScript, nil)
	r.int64()
	fields := r.int64()
	b.Since, b.Here, b.Unaccounted = message.InstantTime(r.int64()), r.int64(), r.int64()
	b.Sent, b.Found = r.int64(), r.int64()
	kept := r.int64()
	b.Followed, b.Scheduled, b.Imported = r.int64(), r.int64(), r.int64()
	b.Acked = r.int64() - kept
	b.Over, b.Superseded, b.Intercepted, b.Canceled, b.Deleted = r.int64(), r.int64(), r.int64(), r.int64(), r.int64()
	b.Aged, b.Trimmed, b.WrittenOff = r.int64(), r.int64(), r.int64()
	b.Entered = b.Sent + b.Found
	b.Sent -= b.Followed + b.Scheduled + b.Imported
	b.Left = b.Acked + b.Over + b.Superseded + b.Intercepted + b.Canceled + b.Deleted + b.Aged + b.Trimmed + b.WrittenOff
	if err = r.err("balance"); err == nil && fields == 0 && b.Here == 0 {
		err = ErrNoQueue
	}
	return b, err
}

// A Loss is what a consumer has noticed: messages are gone that nobody took out.
type Loss struct {
	From, At message.ServerTime // when the queue was last seen whole, and when the loss was noticed
	Messages int64              // at most
	// each consumer that notices it counts all of its messages; else those that it came upon itself
	All bool
}

// NoteLoss notes a loss until AcceptBalance.
func (s *Store) NoteLoss(ctx context.Context, c *Caller, l Loss) error {
	_, _, err := s.set(ctx, c, "loss", int64(l.From), int64(l.At), l.Messages, l.All)
	return err
}

// lossOf reads the field loss of state.
func lossOf(text string) (since time.Time, messages int64) {
	words := strings.Fields(text)
	if n := fourNumbers(words); len(words) == 3 && n[0] > 0 {
		return message.InstantTime(n[0]), n[2]
	}
	return since, 0
}

// Accepted is what AcceptBalance has accepted.
type Accepted struct {
	Missing      int64     // messages; less than 0: so many were too many
	LossSince    time.Time // zero: no loss was noted
	LossMessages int64
}

// AcceptBalance counts what is there as right, and forgets the losses that were noted.
func (s *Store) AcceptBalance(ctx context.Context, c *Caller) (a Accepted, err error) {
	_, before, err := s.set(ctx, c, "accept")
	if err == nil {
		missing, loss, _ := strings.Cut(before, " ")
		a.LossSince, a.LossMessages = lossOf(loss)
		a.Missing, err = strconv.ParseInt(missing, 10, 64)
	}
	return a, err
}
