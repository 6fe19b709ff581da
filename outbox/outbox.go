package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/userlog"
	"github.com/redis/go-redis/v9"
)

// A Queue is what a Box sends to: a *delayqueue.DelayQueue or a *delayqueue.Publisher.
type Queue interface {
	Name() string
	Redis() (cli redis.UniversalClient, prefix string)
	SendBatch(ctx context.Context, batch []delayqueue.Outgoing) ([]delayqueue.SendResult, error)
	Cancel(ctx context.Context, id string) (*delayqueue.InterceptResult, error)
}

// A Tx is a transaction in which rows are written: *sql.Tx, or what has its method, such as *sqlx.Tx. For pgx without
// database/sql there is Exec.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Exec makes a Tx of the method Exec of a pgx.Tx: outbox.Exec(tx.Exec).
func Exec[R any](exec func(ctx context.Context, query string, args ...any) (R, error)) Tx {
	return execFunc(func(ctx context.Context, query string, args ...any) error {
		_, err := exec(ctx, query, args...)
		return err
	})
}

type execFunc func(ctx context.Context, query string, args ...any) error

func (f execFunc) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return nil, f(ctx, query, args...)
}

// ErrNoTransaction: Send or Cancel was given no transaction, such as a *sql.DB.
var ErrNoTransaction = errors.New("pass the transaction in which your other rows are written")

// ErrUnknownQueue: New was given no queue of this name.
var ErrUnknownQueue = errors.New("the box has no queue of this name")

// A Box writes messages into tables of a database, and relays them to Redis. It is safe for concurrent use.
type Box struct {
	db      *sql.DB
	dialect Dialect
	relays  []*relay // one for each queue
	id      string   // of this Box, among all that relay
	keep    time.Duration
	log     *slog.Logger
	running atomic.Bool

	mu      sync.Mutex
	refused []func(Refusal)
	healed  []func(queue string, messages int64)
}

// maxName is what each kind of database has room for in an index, in bytes.
const maxName = 1000

// DefaultKeep is how long rows are kept that were sent.
const DefaultKeep = 2 * time.Hour

// New makes a Box. db is needed by Run and by all methods without a Tx. queues are those that Run relays, and that
// Send and Cancel know. The tables must be there when the Box is used: see Schema.
func New(db *sql.DB, dialect Dialect, queues ...Queue) (*Box, error) {
	if db == nil {
		return nil, errors.New("outbox: New: the database must not be nil")
	}
	if dialect.name == "" {
		return nil, errors.New("outbox: New: no dialect: Postgres, MySQL or SQLite")
	}
	if len(queues) == 0 {
		return nil, errors.New("outbox: New: no queue")
	}
	b := &Box{
		db: db, dialect: dialect, id: rand.Text(), keep: DefaultKeep,
		log: userlog.Contain(slog.Default()),
	}
	for _, q := range queues {
		if q == nil {
			return nil, errors.New("outbox: New: a queue must not be nil")
		}
		if len(q.Name()) > maxName {
			return nil, fmt.Errorf("outbox: New: the name %.40q… has %d bytes, and a table has room for %d", q.Name(),
				len(q.Name()), maxName)
		}
		if b.relay(q.Name()) != nil {
			return nil, fmt.Errorf("outbox: New: two queues of the name %q", q.Name())
		}
		b.relays = append(b.relays, newRelay(b, q))
	}
	return b, nil
}

// WithKeep sets how long rows are kept that were sent. As far back as that, the Box sends again what Redis has
// forgotten. 0 keeps none. Default: DefaultKeep, two hours, because a Redis that saves an RDB by default does so
// once an hour if little changes. It panics if d is negative. Call it before Run.
func (b *Box) WithKeep(d time.Duration) *Box {
	if d < 0 {
		panic(fmt.Sprintf("outbox: WithKeep(%v): must not be negative", d))
	}
	b.keep = d
	return b
}

// WithLogger sets the log. Default: slog.Default. Call it before Run.
func (b *Box) WithLogger(log *slog.Logger) *Box {
	if log == nil {
		panic("outbox: WithLogger: the logger must not be nil; for silence use slog.DiscardHandler")
	}
	b.log = userlog.Contain(log)
	return b
}

// A Refusal is a message that was not stored, because a live message had its key.
type Refusal struct {
	Row   Row
	Error error // errors.Is(Error, delayqueue.ErrDuplicateKey), and errors.As finds the *DuplicateKeyError
}

// OnRefused calls f for each message that is refused because a live message has its key, in the process that relays,
// after its row was deleted. If the process dies just then, or the answer of the database is lost, f is not called.
// While f runs, this Box relays nothing of the queue, and after some five seconds another one does. A panic in f is
// logged. OnRefused panics if f is nil.
func (b *Box) OnRefused(f func(Refusal)) {
	if f == nil {
		panic("outbox: OnRefused: the function must not be nil")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = append(b.refused, f)
}

// OnHealed calls f when messages were sent again that Redis had forgotten: how many of which queue, since the last
// call. While f runs, this Box relays nothing of the queue. A panic in f is logged. It panics if f is nil.
func (b *Box) OnHealed(f func(queue string, messages int64)) {
	if f == nil {
		panic("outbox: OnHealed: the function must not be nil")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.healed = append(b.healed, f)
}

// Queues returns the names of the queues that New was given, in that order.
func (b *Box) Queues() []string {
	names := make([]string, len(b.relays))
	for i, r := range b.relays {
		names[i] = r.name
	}
	return names
}

func (b *Box) relay(queue string) *relay {
	i := slices.IndexFunc(b.relays, func(r *relay) bool { return r.name == queue })
	if i < 0 {
		return nil
	}
	return b.relays[i]
}

const (
	sendKind   = "send"
	cancelKind = "cancel"
)

// Send writes a message for a queue into the outbox, in your transaction. If tx commits, it becomes one message of
// the queue, and if tx rolls back, none. A delay counts from this call, by the database's clock.
//
// opts are all options of a message but WithSequence. Their texts must be UTF-8. An error wraps ErrUnknownQueue,
// ErrNoTransaction, delayqueue.ErrBadOption, delayqueue.ErrPayloadTooLarge, or that of the database; nothing was
// written then.
func (b *Box) Send(ctx context.Context, tx Tx, queue, payload string, opts ...delayqueue.MsgOption) error {
	options, err := encode(payload, opts)
	if err != nil {
		return fmt.Errorf("outbox: send to %q: %w", queue, err)
	}
	return b.write(ctx, tx, queue, sendKind, payload, options)
}

// Cancel writes into the outbox, in your transaction, that the live message with this key is to be taken out, also
// while it is being handled (DelayQueue.CancelKey). It comes after all that was sent with the key in this
// transaction or in one that had committed before. It is no error if there is no such message.
func (b *Box) Cancel(ctx context.Context, tx Tx, queue, key string) error {
	if _, err := encode("", []delayqueue.MsgOption{delayqueue.WithKey(key)}); err != nil {
		return fmt.Errorf("outbox: cancel in %q: %w", queue, err)
	}
	return b.write(ctx, tx, queue, cancelKind, key, nil)
}

func (b *Box) write(ctx context.Context, tx Tx, queue, kind, payload string, options []byte) error {
	if b.relay(queue) == nil {
		return fmt.Errorf("outbox: %s to %q: %w", kind, queue, ErrUnknownQueue)
	}
	if options == nil {
		options = []byte{}
	}
	if err := inTransaction(tx); err != nil {
		return fmt.Errorf("outbox: %s to %q: %w", kind, queue, err)
	}
	_, err := tx.ExecContext(ctx, b.dialect.fill(
		"INSERT INTO {prefix}outbox (queue, kind, payload, options, created_us) VALUES (?, ?, ?, ?, {now})"),
		queue, kind, []byte(payload), options)
	if err != nil {
		return fmt.Errorf("outbox: %s to %q: %w", kind, queue, b.failed(err))
	}
	return nil
}

// inTransaction refuses what is known to be no transaction, because a row that commits by itself would be sent even if
// your transaction rolls back.
func inTransaction(tx Tx) error {
	begins, connection := tx.(interface {
		BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	})
	switch {
	case tx == nil:
		return fmt.Errorf("%w: it is nil", ErrNoTransaction)
	case connection:
		return fmt.Errorf("%w: it is a %T", ErrNoTransaction, begins)
	}
	return nil
}

// failed says which tables of what are meant, because an error of a database does not.
func (b *Box) failed(err error) error {
	return fmt.Errorf("%s, tables %soutbox…: %w", b.dialect.name, b.dialect.prefix, err)
}

// An execer is a *sql.DB or a *sql.Tx.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// exec executes a statement, and returns how many rows it changed.
func (b *Box) exec(ctx context.Context, in execer, query string, args ...any) (int64, error) {
	result, err := in.ExecContext(ctx, b.dialect.fill(query), args...)
	if err != nil {
		return 0, b.failed(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, b.failed(err)
	}
	return n, nil
}

// one reads one row.
func (b *Box) one(ctx context.Context, into []any, query string, args ...any) error {
	if err := b.db.QueryRowContext(ctx, b.dialect.fill(query), args...).Scan(into...); err != nil {
		return b.failed(err)
	}
	return nil
}

// encode is what is stored of options; nil: none.
func encode(payload string, opts []delayqueue.MsgOption) ([]byte, error) {
	d := delayqueue.Describe(opts...)
	if err := d.Check(payload); err != nil {
		return nil, err
	}
	if d.Sequence != "" {
		return nil, fmt.Errorf("%w: WithSequence(%q): an outbox numbers its messages itself", delayqueue.ErrBadOption,
			d.Sequence)
	}
	texts := []string{d.Key, d.Counts, d.Lane}
	for name, value := range d.Headers {
		texts = append(texts, name, value)
	}
	for _, text := range texts { // JSON would change it without a word
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: %q is no UTF-8, as an outbox stores it", delayqueue.ErrBadOption, text)
		}
	}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", delayqueue.ErrBadOption, err)
	}
	if string(text) == "{}" {
		return nil, nil
	}
	return text, nil
}
