package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// The kinds of strikes.
const (
	serviceKilled    = "service killed"
	relayKilled      = "relay killed"
	relayFrozen      = "relay frozen past its lease"
	databaseStopped  = "database restarted"
	databaseKilled   = "database killed"
	databasePromoted = "database failed over"
	redisKilled      = "Redis killed, appendfsync always"
	redisFailedOver  = "Redis failed over, unconfirmed"
	redisRestored    = "Redis restored from an old RDB"
)

// kinds are all strikes, in the order of the table.
var kinds = []string{serviceKilled, relayKilled, relayFrozen, databaseStopped, databaseKilled, databasePromoted,
	redisKilled, redisFailedOver, redisRestored}

// A strike is one time that a fault struck.
type strike struct {
	kind     string
	since    int64 // unix us: Redis has forgotten what it learned later; 0: it has forgotten nothing
	from, to int64 // unix us: when it began, and when it was over
}

// struck lets a fault strike.
func (w *world) struck(ctx context.Context, kind string) error {
	st := strike{kind: kind, from: time.Now().UnixMicro()}
	hits := map[string]func(context.Context, *strike) error{
		serviceKilled: w.killService, relayKilled: w.killRelay, relayFrozen: w.freezeRelay,
		databaseStopped: w.stopDatabase, databaseKilled: w.killDatabase, databasePromoted: w.promote,
		redisKilled: w.killRedis, redisFailedOver: w.failOver, redisRestored: w.restore,
	}
	if err := hits[kind](ctx, &st); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	st.to = time.Now().UnixMicro()
	w.strikes = append(w.strikes, st)
	return nil
}

func (w *world) kill(name string) error {
	w.services[name].Kill()
	return w.start(name)
}

func (w *world) killService(context.Context, *strike) error {
	return w.kill(serviceName(w.random.IntN(services)))
}

func (w *world) killRelay(ctx context.Context, _ *strike) error {
	name, err := w.relay(ctx)
	if err != nil {
		return err
	}
	return w.kill(name)
}

// freezeRelay freezes the service that relays until another one does, and some time longer.
func (w *world) freezeRelay(ctx context.Context, _ *strike) error {
	name, err := w.relay(ctx)
	if err != nil {
		return err
	}
	w.services[name].Pause()
	defer w.services[name].Resume()
	wait(ctx, 6*time.Second)
	return w.await(ctx, "another service relays", func(ctx context.Context) bool {
		other, err := w.relay(ctx)
		return err == nil && other != name
	})
}

// relay is the service that relays: no other one numbers rows, or notes how far Redis is.
func (w *world) relay(ctx context.Context) (name string, err error) {
	err = w.await(ctx, "some service relays", func(ctx context.Context) bool {
		return w.db.QueryRowContext(ctx, "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 's_' "+
			"AND (query LIKE '%number IS NULL ORDER BY id%' OR query LIKE '%holder = $_ AND numbered%') AND "+
			"query_start > now() - interval '2 s' ORDER BY query_start DESC LIMIT 1").Scan(&name) == nil
	})
	return name, err
}

func (w *world) stopDatabase(ctx context.Context, _ *strike) error {
	if err := w.database.Stop(); err != nil {
		return err
	}
	return w.startAgain(ctx)
}

func (w *world) killDatabase(ctx context.Context, _ *strike) error {
	w.database.Kill()
	return w.startAgain(ctx)
}

// startAgain starts the database when nothing is left of the one that was killed.
func (w *world) startAgain(ctx context.Context) error {
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); wait(ctx, 100*time.Millisecond) {
		if err = w.database.Start(); err == nil {
			return w.await(ctx, "the database answers", w.databaseAnswers)
		}
	}
	return err
}

// promote kills the database, and promotes its standby, which has all that was confirmed.
func (w *world) promote(ctx context.Context, _ *strike) error {
	if w.standby == nil {
		return errors.New("there is no standby any more")
	}
	err := w.await(ctx, "the standby follows", func(ctx context.Context) bool {
		var n int
		err := w.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&n)
		return err == nil && n == 1
	})
	if err != nil {
		return err
	}
	w.database.Kill()
	if err := w.standby.Promote(); err != nil {
		return err
	}
	old := w.database
	w.database, w.standby = w.standby, nil
	w.sqlProxy.use(hostOf(w.database))
	return errors.Join(old.Close(), w.await(ctx, "the database answers", w.databaseAnswers))
}

func (w *world) killRedis(ctx context.Context, _ *strike) error {
	w.server.Kill()
	return errors.Join(restart(w.server), w.await(ctx, "Redis answers", w.redisAnswers))
}

// failOver promotes the replica some time after it has heard of Redis for the last time.
func (w *world) failOver(ctx context.Context, st *strike) error {
	if err := w.followed(ctx); err != nil {
		return err
	}
	cli := redis.NewClient(&redis.Options{Addr: w.replica.Addr()})
	defer cli.Close()
	st.since = time.Now().UnixMicro() - replicaLag.Microseconds()
	if err := cli.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		return err
	}
	wait(ctx, w.unheard)
	w.server.Close()
	w.server = w.replica
	w.redisProxy.use(w.server.Addr())
	if err := w.await(ctx, "Redis answers", w.redisAnswers); err != nil {
		return err
	}
	return w.follow(ctx)
}

// replicaLag is how long a replica may be behind that follows.
const replicaLag = 2 * time.Second

// save keeps an RDB.
func (w *world) save(ctx context.Context) error {
	var at int64
	err := w.await(ctx, "Redis saves an RDB", func(ctx context.Context) bool { // not while it saves one for its replica
		at = time.Now().UnixMicro()
		return w.cli.Save(ctx).Err() == nil
	})
	if err != nil {
		return err
	}
	dir, err := w.cli.ConfigGet(ctx, "dir").Result()
	if err != nil {
		return err
	}
	rdb, err := os.ReadFile(filepath.Join(dir["dir"], "dump.rdb"))
	if err != nil {
		return err
	}
	path := filepath.Join(w.dir, fmt.Sprintf("%d.rdb", at))
	w.snapshots = append(w.snapshots, snapshot{at, path})
	return os.WriteFile(path, rdb, 0o600)
}

// restore ends Redis, and starts it with an RDB that is old enough.
func (w *world) restore(ctx context.Context, st *strike) error {
	i := len(w.snapshots) - 1
	for i > 0 && w.snapshots[i].at > st.from-w.age.Microseconds() {
		i--
	}
	if i < 0 {
		return errors.New("there is no RDB")
	}
	st.since = w.snapshots[i].at
	rdb, err := os.ReadFile(w.snapshots[i].path)
	if err != nil {
		return err
	}
	dir, err := w.cli.ConfigGet(ctx, "dir").Result()
	if err != nil {
		return err
	}
	w.server.Kill()
	files := filepath.Join(dir["dir"], "appendonlydir")
	const base, manifest = "appendonly.aof.1.base.rdb", "appendonly.aof.manifest"
	err = errors.Join(os.RemoveAll(files), os.Mkdir(files, 0o700),
		os.WriteFile(filepath.Join(files, base), rdb, 0o600),
		os.WriteFile(filepath.Join(files, manifest), []byte("file "+base+" seq 1 type b\n"), 0o600))
	if err != nil {
		return err
	}
	return errors.Join(restart(w.server), w.await(ctx, "Redis answers", w.redisAnswers))
}

// restart starts a server of Redis again.
func restart(s *redistest.Server) error {
	t := &failing{}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Restart(t)
	}()
	<-over
	return t.err
}

// failing has the methods of a test that redistest calls.
type failing struct {
	testing.TB
	err error
}

func (t *failing) Helper() {}

func (t *failing) Fatal(args ...any) {
	t.err = errors.New(strings.TrimSpace(fmt.Sprintln(args...)))
	runtime.Goexit()
}

// A long transaction writes an order first, and commits last.
type long struct {
	tx   *sql.Tx
	book ledger
}

const longName = "long"

func (w *world) openLong(ctx context.Context) (*long, error) {
	book, err := openLedger(w.dir, longName)
	if err != nil {
		return nil, err
	}
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	id := longName + "-000000"
	book.write(entry{Kind: tried, Order: id})
	if _, err = tx.ExecContext(ctx, "INSERT INTO orders (id, code) VALUES ($1, $1)", id); err == nil {
		err = w.box.Send(ctx, tx, queueName, id)
	}
	return &long{tx, book}, err
}

func (l *long) commit() error {
	err := l.tx.Commit()
	if err == nil {
		l.book.write(entry{Kind: told, Order: longName + "-000000"})
	}
	return errors.Join(err, l.book.file.Close())
}
