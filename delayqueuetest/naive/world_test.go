package naive

import (
	"sync"
	"time"
)

// A world is what a service works on: its database, a payment provider and a mail provider. The processes of the
// service share the world, and it outlives them. Each method is one step, within which no process dies. All methods are
// safe for concurrent use.
type world struct {
	now func() time.Time // the clock of all machines

	mu      sync.Mutex        // guards the fields below
	rows    map[string]string // of the database
	charges []charge
	mails   []mail
}

// A charge is money that the payment provider took.
type charge struct {
	key, what string
	cents     int
}

// A mail is a mail that the mail provider delivered.
type mail struct {
	key, to, text string
	at            time.Time
}

func newWorld(now func() time.Time) *world { return &world{now: now, rows: map[string]string{}} }

// get reads a row of the database. A row that is not there is "".
func (w *world) get(row string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rows[row]
}

// set writes a row of the database.
func (w *world) set(row, value string) {
	w.update(func(rows map[string]string) { rows[row] = value })
}

// update is a transaction of the database: no other process sees the rows in between.
func (w *world) update(do func(rows map[string]string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do(w.rows)
}

// charge takes money. Calls with one key take it once, as with the idempotency keys of payment providers. A call
// without a key takes it each time.
func (w *world) charge(key, what string, cents int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.charges {
		if key != "" && c.key == key {
			return
		}
	}
	w.charges = append(w.charges, charge{key, what, cents})
}

// charged is how often money was taken for something.
func (w *world) charged(what string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.charges {
		if c.what == what {
			n++
		}
	}
	return n
}

// mail delivers a mail. Calls with one key deliver one mail. A call without a key delivers a mail each time.
func (w *world) mail(key, to, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.mails {
		if key != "" && m.key == key {
			return
		}
	}
	w.mails = append(w.mails, mail{key, to, text, w.now()})
}

// mailed is when somebody got this text, each time.
func (w *world) mailed(to, text string) (at []time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.mails {
		if m.to == to && m.text == text {
			at = append(at, m.at)
		}
	}
	return at
}
