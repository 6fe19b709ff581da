package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A Row is a message of the outbox.
type Row struct {
	ID      int64
	Queue   string
	Payload string    // of a cancel: the key
	Cancel  bool      // it was written by Cancel
	Created time.Time // by the database's clock
	Error   string    // why it is dead; "": it is not

	Options delayqueue.Description // as they were given to Send

	number int64
	age    time.Duration // when it was read
	read   time.Time     // by this process, later than the database's clock was read
	broken error         // its options cannot be read
}

const rowColumns = "id, queue, kind, payload, options, created_us, COALESCE(number, 0), COALESCE(error, ''), {now}"

// rows reads rows, and no more when they have batchBytes. query goes on behind FROM.
func (b *Box) rows(ctx context.Context, query string, args ...any) ([]Row, error) {
	found, err := b.readRows(ctx, query, args...)
	if err != nil {
		return nil, b.failed(err)
	}
	return found, nil
}

func (b *Box) readRows(ctx context.Context, query string, args ...any) (found []Row, err error) {
	got, err := b.db.QueryContext(ctx, b.dialect.fill("SELECT "+rowColumns+" FROM {prefix}outbox "+query), args...)
	if err != nil {
		return nil, err
	}
	defer got.Close()
	var payload, options sql.RawBytes
	for size := 0; size < batchBytes && got.Next(); size += len(payload) + len(options) {
		var row Row
		var kind string
		var createdUs, nowUs int64
		err := got.Scan(&row.ID, &row.Queue, &kind, &payload, &options, &createdUs, &row.number, &row.Error, &nowUs)
		if err != nil {
			return nil, err
		}
		row.read, row.age = time.Now(), time.Duration(nowUs-createdUs)*time.Microsecond
		row.Payload, row.Created, row.Cancel = string(payload), time.UnixMicro(createdUs), kind == cancelKind
		if kind != sendKind && kind != cancelKind {
			row.broken = fmt.Errorf("kind %q: neither send nor cancel", kind)
		}
		if len(options) > 0 {
			strict := json.NewDecoder(bytes.NewReader(options))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&row.Options); err != nil {
				row.broken = fmt.Errorf("options: %w", err)
			} else if _, err := strict.Token(); err != io.EOF {
				row.broken = errors.New("options: there is something behind the JSON")
			}
			o := &row.Options // somebody else may have written them
			o.Timed = o.Timed || o.Delay != 0 || !o.Schedule.IsZero()
		}
		found = append(found, row)
	}
	return found, got.Err()
}

// size is about how much of an argument of Redis the row takes.
func (r *Row) size() int {
	n := len(r.Payload)
	for name, value := range r.Options.Headers {
		n += len(name) + len(value)
	}
	return n
}

// ageNow is how old the row is by now. It is less than 0 if the database's clock was ahead when the row was written.
func (r *Row) ageNow() time.Duration { return r.age + time.Since(r.read) }

// outgoing is the message as it is to be sent at this age, with what is left of its delay and its TTL. An error says
// why it can never be sent.
func (r *Row) outgoing(sequence string, age time.Duration) (delayqueue.Outgoing, error) {
	d := r.Options
	now := r.Created.Add(age)
	age = max(age, 0)
	late := age // how long it has been due
	switch {
	case r.broken != nil:
		return delayqueue.Outgoing{}, r.broken
	case !d.Schedule.IsZero():
		late = now.Sub(d.Schedule)
	case d.Timed:
		late = age - d.Delay
		d.Delay = max(-late, 0)
		if d.Countdown != nil {
			d.Delay = max(d.Delay, time.Microsecond) // a send refuses a countdown of a message that is due now
		}
	}
	if d.TTL > 0 && late > 0 {
		d.TTL -= late.Truncate(time.Microsecond)
	}
	over := !d.Deadline.IsZero() && (!now.Before(d.Deadline) || !time.Now().Add(d.Delay).Before(d.Deadline))
	if d.TTL < 0 || d.TTL == 0 && r.Options.TTL > 0 || over {
		return delayqueue.Outgoing{}, fmt.Errorf("%w before it could be sent", delayqueue.ErrExpired)
	}
	d.TTL = max(d.TTL, min(r.Options.TTL, time.Millisecond)) // less than 1 ms is no TTL
	return delayqueue.Outgoing{
		Payload: r.Payload, Options: append(d.Options(), delayqueue.WithSequence(sequence, r.number)),
	}, nil
}
