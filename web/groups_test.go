package web

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func TestFold(t *testing.T) {
	for _, c := range []struct{ text, pattern, common string }{
		{"", "", ""},
		{"timeout", "timeout", "timeout"},
		{"order 4711: timed out after 30s", "order …: timed out after …s", ": timed out after"},
		{`no customer "Ada"`, `no customer …`, "no customer"},
		{"request 8a7f3c21 failed", "request … failed", "request"},
		{"id 01a2038a-7034-7731-b87b-cccdbcf22000 is gone", "id … is gone", "is gone"},
		{"dial tcp 10.0.0.7:443: connect: refused", "dial tcp …: connect: refused", ": connect: refused"},
		{"dead beef", "dead beef", "dead beef"},
	} {
		if pattern, common := fold(c.text); pattern != c.pattern || common != c.common {
			t.Errorf("%q: %q, %q", c.text, pattern, common)
		}
	}
}

func TestGarbageIsGrouped(t *testing.T) {
	f := newFixture(t, Config{})
	n := 0
	q := delayqueue.NewQueue("orders", f.cli, nil).WithHandler(func(context.Context, *delayqueue.Message) error {
		n++
		if n%3 == 0 {
			return errors.Join(delayqueue.ErrSkipRetry, errors.New("no customer"))
		}
		return fmt.Errorf("order %d: timed out <b>: %w", n, delayqueue.ErrSkipRetry)
	})
	for range 9 {
		f.send("orders", "x")
	}
	done := q.StartConsume()
	m := delayqueue.NewMonitor("orders", f.cli)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := m.Counts(f.Context())
		if err != nil || time.Now().After(end) {
			t.Fatal(c, err)
		}
		if c.Garbage == 9 {
			break
		}
	}
	q.StopConsume()
	<-done
	got := f.get("queue?q=orders").body
	f.sees(got, "order …: timed out &lt;b&gt;: skip retry", `<td class="num">6</td>`, `<td class="num">3</td>`)
	f.lacks(got, "timed out <b>")
}
