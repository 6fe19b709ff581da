package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/dbtest"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/redis/go-redis/v9"
)

// A world is all servers, proxies and services of a run.
type world struct {
	plan
	random *rand.Rand // of the strikes

	dir   string
	books *books

	database, standby *dbtest.Server // standby: nil when it has become the database
	server, replica   *redistest.Server
	sqlProxy          *proxy
	redisProxy        *proxy

	db        *sql.DB       // by its proxy, as services have it
	cli       *redis.Client // likewise
	box       *outbox.Box   // which does not run
	queue     *ops.Queue
	services  map[string]*redistest.Process
	snapshots []snapshot

	strikes []strike
}

// A snapshot is an RDB of Redis.
type snapshot struct {
	at   int64 // unix us
	path string
}

// The schema has a clock of its own that is 30 s ahead, which the outbox finds first.
const schema = `
CREATE SCHEMA storm;
CREATE FUNCTION storm.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
	AS $$ SELECT pg_catalog.clock_timestamp() + interval '30 seconds' $$;
ALTER DATABASE postgres SET search_path = storm, pg_catalog;
SET search_path = storm, pg_catalog;
CREATE TABLE orders (id text PRIMARY KEY, code text NOT NULL UNIQUE, parked boolean NOT NULL DEFAULT false);
`

// open starts all servers and services. close ends those that were started, also after an error.
func (w *world) open(ctx context.Context) (err error) {
	w.services = map[string]*redistest.Process{}
	if w.dir, err = os.MkdirTemp("", "storm-"); err != nil {
		return err
	}
	w.books = &books{dir: w.dir, read: map[string]int64{}, next: map[string]int{}, ended: map[string]bool{}}
	if err := w.startDatabase(ctx); err != nil {
		return err
	}
	if w.server, err = redistest.Run(persistent...); err != nil {
		return err
	}
	if w.redisProxy, err = newProxy(w.server.Addr()); err != nil {
		return err
	}
	w.cli = redis.NewClient(&redis.Options{Addr: w.redisProxy.addr()})
	w.queue = ops.Of(delayqueue.NewMonitor(queueName, w.cli))
	w.box, err = outbox.New(w.db, outbox.Postgres, delayqueue.NewPublisher(queueName, w.cli))
	if err != nil {
		return err
	}
	if err := w.follow(ctx); err != nil {
		return err
	}
	for n := range services {
		if err := w.start(serviceName(n)); err != nil {
			return err
		}
	}
	return nil
}

// persistent is how a Redis is started that loses nothing when it is killed.
var persistent = []string{"--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"}

func serviceName(n int) string { return fmt.Sprintf("s%d", n+1) }

// startDatabase starts a PostgreSQL and its standby, without which it commits nothing.
func (w *world) startDatabase(ctx context.Context) (err error) {
	w.database, err = dbtest.Postgres("fsync=off", "synchronous_commit=on", "synchronous_standby_names=*")
	if err != nil {
		return err
	}
	if w.sqlProxy, err = newProxy(hostOf(w.database)); err != nil {
		return err
	}
	if w.db, err = sql.Open("pgx", w.dsn("storm")); err != nil {
		return err
	}
	if err := w.await(ctx, "the database answers", w.databaseAnswers); err != nil {
		return err
	}
	if w.standby, err = w.database.Replica("fsync=off", "wal_retrieve_retry_interval=200ms"); err != nil {
		return err
	}
	_, err = w.db.ExecContext(ctx, schema+outbox.Schema(outbox.Postgres))
	return err
}

func hostOf(s *dbtest.Server) string {
	found, err := url.Parse(s.DSN)
	if err != nil {
		panic(err) // dbtest writes it
	}
	return found.Host
}

// dsn names the database as the program of a name reaches it.
func (w *world) dsn(name string) string {
	return strings.Replace(w.database.DSN, hostOf(w.database), w.sqlProxy.addr(), 1) + "&application_name=" + name
}

func (w *world) databaseAnswers(ctx context.Context) bool { return w.db.PingContext(ctx) == nil }

func (w *world) redisAnswers(ctx context.Context) bool { return w.cli.Ping(ctx).Err() == nil }

// follow starts a replica of Redis.
func (w *world) follow(ctx context.Context) (err error) {
	if w.replica, err = redistest.Run(persistent...); err != nil {
		return err
	}
	host, port, _ := strings.Cut(w.server.Addr(), ":")
	cli := redis.NewClient(&redis.Options{Addr: w.replica.Addr()})
	defer cli.Close()
	if err := cli.ReplicaOf(ctx, host, port).Err(); err != nil {
		return err
	}
	return w.followed(ctx)
}

// followed waits until the replica has what Redis has.
func (w *world) followed(ctx context.Context) error {
	cli := redis.NewClient(&redis.Options{Addr: w.replica.Addr()})
	defer cli.Close()
	return w.await(ctx, "the replica follows", func(ctx context.Context) bool {
		info, err := cli.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

// start starts a service, which goes on where its ledger ends.
func (w *world) start(name string) error {
	if err := w.books.catchUp(); err != nil {
		return err
	}
	t := task{Name: name, Dir: w.dir, DSN: w.dsn(name), Redis: w.redisProxy.addr(), From: w.books.next[name],
		To: w.orders / services, Over: w.over, Seed: w.seed}
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(w.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the service has its own
	w.services[name], err = redistest.StartProcess(program, []string{childFlag, string(text)}, w.dir, log)
	return err
}

// await waits until ok, for some minutes.
func (w *world) await(ctx context.Context, what string, ok func(ctx context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		within, stop := context.WithTimeout(ctx, time.Second)
		done := ok(within)
		stop()
		if done {
			return nil
		}
		if !wait(ctx, 50*time.Millisecond) {
			return fmt.Errorf("did not happen: %s", what)
		}
	}
}

const limit = 3 * time.Minute

// close ends all.
func (w *world) close() {
	for _, p := range w.services {
		p.Kill()
	}
	if w.cli != nil {
		_ = w.cli.Close()
	}
	if w.db != nil {
		_ = w.db.Close()
	}
	for _, p := range []*proxy{w.sqlProxy, w.redisProxy} {
		if p != nil {
			p.close()
		}
	}
	for _, s := range []*redistest.Server{w.server, w.replica} {
		if s != nil {
			s.Close()
		}
	}
	for _, s := range []*dbtest.Server{w.database, w.standby} {
		if s != nil {
			_ = s.Close()
		}
	}
	_ = os.RemoveAll(w.dir) // what is left behind harms nobody
}

// logs are the ends of the services' logs.
func (w *world) logs() string {
	var b strings.Builder
	for name := range w.services {
		text, _ := os.ReadFile(filepath.Join(w.dir, name+".log")) // one that is not there says nothing
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&b, "%s said:\n%s\n", name, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	return b.String()
}
