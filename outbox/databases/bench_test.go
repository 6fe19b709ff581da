package databases

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/dbtest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestDrainRate measures how fast a filled table drains.
func TestDrainRate(t *testing.T) {
	rows := testkit.Size(100_000, 5_000)
	each(t, func(w *world) {
		b := w.box()
		w.fill(rows)
		begun := time.Now()
		w.run(b)
		queuetest.Eventually(w.T, "sent", func() bool { return w.stats(b).Sent == int64(rows) })
		took := time.Since(begun)
		w.Logf("%d rows in %v: %.0f rows a second", rows, took, float64(rows)/took.Seconds())
	})
}

// fill writes rows of messages that are due in 15 minutes.
func (w *world) fill(rows int) {
	w.T.Helper()
	const options = `{"timed":true,"delay":900000000000}`
	query := map[*kind]string{
		postgres: "SELECT '%s', convert_to('order ' || g, 'UTF8'), convert_to('%s', 'UTF8'), 1 FROM generate_series(1, %d) g",
		mariadb:  "SELECT '%s', CONCAT('order ', seq), '%s', 1 FROM seq_1_to_%d",
		sqlite: "WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM g WHERE i < %[3]d) " +
			"SELECT '%[1]s', 'order ' || i, '%[2]s', 1 FROM g",
	}[w.kind]
	w.exec("INSERT INTO {}outbox (queue, payload, options, created_us) " + fmt.Sprintf(query, w.Name, options, rows))
}

// TestTableStaysSmall: autovacuum finds what was deleted, so that neither the table nor an index grows with all that
// was ever sent.
func TestTableStaysSmall(t *testing.T) {
	t.Parallel()
	server, err := dbtest.Postgres("autovacuum_naptime=1s")
	queuetest.Must(t, err)
	t.Cleanup(func() { queuetest.Must(t, server.Close()) })
	w := newWorld(t, postgres, server.DSN, queuetest.SharedBase(t))
	w.run(w.box().WithKeep(0))
	sizes := func() (all []int64) {
		for _, relation := range []string{"outbox", "outbox_pkey", "outbox_waiting", "outbox_numbered"} {
			all = append(all, w.number("SELECT pg_relation_size('{}"+relation+"')"))
		}
		return all
	}
	most := make([]int64, 4) // of the first two rounds, because vacuum may leave none of the table
	for round := range testkit.Size(6, 3) {
		w.fill(20_000)
		queuetest.Eventually(t, "all is sent and deleted", func() bool {
			return w.number("SELECT COUNT(*) FROM {}outbox") == 0
		})
		queuetest.Eventually(t, "autovacuum has found it", func() bool {
			return w.number("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = '{}outbox'") < 6000
		})
		t.Logf("round %d: bytes of the table and its indices: %v; runs of autovacuum: %d", round+1, sizes(),
			w.number("SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = '{}outbox'"))
		for i, size := range sizes() {
			if round < 2 {
				most[i] = max(most[i], size)
			} else if size > 3*most[i] {
				t.Errorf("relation %d had %d bytes in the first two rounds, and has %d", i, most[i], size)
			}
		}
	}
}
