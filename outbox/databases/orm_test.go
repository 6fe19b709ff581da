package databases

import (
	"context"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// TestTransactions: rows are written in the transactions that people have. Of each kind one commits, and one rolls
// back.
func TestTransactions(t *testing.T) {
	w := newWorld(t, postgres, postgres.dsn(t), queuetest.SharedBase(t))
	b, ctx := w.box(), t.Context()
	send := func(tx outbox.Tx, payload string) { w.send(b, tx, payload, delayqueue.WithKey(payload)) }

	gormDB, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: w.db}), &gorm.Config{
		Logger: logger.Default.LogMode(logger.Silent)})
	queuetest.Must(t, err)
	conn, err := pgx.Connect(ctx, postgres.dsn(t))
	queuetest.Must(t, err)
	defer conn.Close(context.Background())
	for _, commits := range []bool{true, false} {
		name := map[bool]string{true: "committed ", false: "rolled back "}[commits]
		end := func(commit, rollback func() error) {
			t.Helper()
			if commits {
				queuetest.Must(t, commit())
			} else {
				queuetest.Must(t, rollback())
			}
		}

		sqlTx := w.begin()
		send(sqlTx, name+"sql")
		end(sqlTx.Commit, sqlTx.Rollback)

		sqlxTx, err := sqlx.NewDb(w.db, "pgx").BeginTxx(ctx, nil)
		queuetest.Must(t, err)
		send(sqlxTx, name+"sqlx")
		end(sqlxTx.Commit, sqlxTx.Rollback)

		gormTx := gormDB.Begin()
		queuetest.Must(t, gormTx.Error)
		send(gormTx.Statement.ConnPool, name+"gorm")
		end(func() error { return gormTx.Commit().Error }, func() error { return gormTx.Rollback().Error })

		// What ent generates has the method ExecContext of this one, with the feature sql/execquery.
		entTx, err := entsql.OpenDB(dialect.Postgres, w.db).BeginTx(ctx, nil)
		queuetest.Must(t, err)
		send(entTx.(*entsql.Tx), name+"ent")
		end(entTx.Commit, entTx.Rollback)

		pgxTx, err := conn.Begin(ctx)
		queuetest.Must(t, err)
		send(outbox.Exec(pgxTx.Exec), name+"pgx")
		end(func() error { return pgxTx.Commit(ctx) }, func() error { return pgxTx.Rollback(ctx) })
	}
	w.run(b)
	w.relayed(b)
	for _, kind := range []string{"sql", "sqlx", "gorm", "ent", "pgx"} {
		if _, err := w.look.GetKey(ctx, "committed "+kind); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if n := w.live(); n != 5 {
		t.Errorf("%d messages", n)
	}
}
