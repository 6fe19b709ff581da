package observe

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/redis/go-redis/v9"
)

// A hung database does not answer before it is released, whatever the context says, and then fails.
type hung struct {
	calls   atomic.Int64
	release chan struct{}
}

func (h *hung) Connect(context.Context) (driver.Conn, error) {
	h.calls.Add(1)
	<-h.release
	return nil, errors.New("no database")
}

func (h *hung) Driver() driver.Driver { return nil }

// TestHungDatabase: a reading ends in time although the driver does not, and the next ones do not ask again.
func TestHungDatabase(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer cli.Close()
	database := &hung{release: make(chan struct{})}
	db := sql.OpenDB(database)
	defer db.Close()
	box, err := outbox.New(db, outbox.SQLite, delayqueue.NewPublisher("orders", cli),
		delayqueue.NewPublisher("mails", cli))
	testkit.Must(t, err)
	var log testkit.Buffer
	q := Queues{Timeout: 20 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	q.AddOutbox(box)
	down := func() {
		t.Helper()
		got := q.Read(t.Context())
		if len(got) != 2 || got[0].Queue != "orders" || got[1].Queue != "mails" {
			t.Fatalf("%+v", got)
		}
		for _, r := range got {
			for i := range Gauges {
				for label, v := range Gauges[i].Values(&r) {
					if Gauges[i].Prometheus != "outbox_up" || v != 0 {
						t.Errorf("%s %s %s is %v", Gauges[i].Prometheus, r.Queue, label, v)
					}
				}
			}
		}
	}
	testkit.Until(t, "the database is asked", func() bool {
		down()
		return database.calls.Load() > 0
	})
	down()
	down()
	if n := database.calls.Load(); n != 1 {
		t.Errorf("%d calls wait for the database", n)
	}
	close(database.release)
	q.Timeout = testkit.Patience
	down()
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `queues="orders, mails"`) {
		t.Errorf("log: %s", text)
	}
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, `queue "orders" is watched already`) {
			t.Errorf("panic %q", p)
		}
	}()
	q.AddOutbox(box)
}
