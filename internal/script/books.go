package script

import (
	"context"
	"strconv"
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

// AcceptBalance counts what is there as right, and returns how many messages were missing; less than 0: how many were
// too many.
func (s *Store) AcceptBalance(ctx context.Context, c *Caller) (missing int64, err error) {
	_, before, err := s.set(ctx, c, "accept")
	if err == nil {
		missing, err = strconv.ParseInt(before, 10, 64)
	}
	return missing, err
}
