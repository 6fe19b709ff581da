package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/dbtest"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// A backend is the server of a contender.
type backend interface {
	address() string
	pid() int
	// memory is what messages take: bytes of memory, or of PostgreSQL's files.
	memory(ctx context.Context) (float64, error)
	// calls is how many commands or transactions there have been.
	calls(ctx context.Context) (float64, error)
	close() error
}

type redisBackend struct {
	server *redistest.Server
	cli    *redis.Client
	meter  *meter
}

// newRedis has the settings that BullMQ's page on production asks for, and for all three the same.
func newRedis(strict bool) (backend, error) {
	server, err := redistest.Run("--appendonly", "yes", "--appendfsync", choose(strict, "always", "everysec"),
		"--maxmemory-policy", "noeviction")
	if err != nil {
		return nil, err
	}
	cli := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return &redisBackend{server: server, cli: cli, meter: &meter{cli: cli, net: &network{}}}, nil
}

func (r *redisBackend) address() string { return r.server.Addr() }
func (r *redisBackend) pid() int        { return r.server.Pid() }

func (r *redisBackend) memory(ctx context.Context) (float64, error) {
	used, err := r.meter.figures(ctx, "used_memory")
	if err != nil {
		return 0, err
	}
	return used[0], nil
}

func (r *redisBackend) calls(ctx context.Context) (float64, error) {
	now, err := r.meter.read(ctx)
	return float64(now.commands), err
}

func (r *redisBackend) close() error {
	err := r.cli.Close()
	r.server.Close()
	return err
}

type postgresBackend struct {
	server *dbtest.Server
	pool   *pgxpool.Pool
	asked  float64 // transactions of its own
}

// newPostgres has PostgreSQL's own settings, by which a commit is on disk.
func newPostgres(bool) (backend, error) {
	server, err := dbtest.Postgres()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(context.Background(), server.DSN)
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &postgresBackend{server: server, pool: pool}, nil
}

func (p *postgresBackend) address() string { return p.server.DSN }
func (p *postgresBackend) pid() int        { return p.server.Pid() }

func (p *postgresBackend) ask(ctx context.Context, query string) (float64, error) {
	var v float64
	err := p.pool.QueryRow(ctx, query).Scan(&v)
	p.asked++
	return v, err
}

func (p *postgresBackend) memory(ctx context.Context) (float64, error) {
	return p.ask(ctx, "SELECT pg_database_size(current_database())::float8")
}

func (p *postgresBackend) calls(ctx context.Context) (float64, error) {
	mine := p.asked
	v, err := p.ask(ctx, "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database "+
		"WHERE datname = current_database()")
	return v - mine, err
}

func (p *postgresBackend) close() error {
	p.pool.Close()
	return p.server.Close()
}

type beanstalkdBackend struct {
	process *redistest.Process
	addr    string
	port    int
	folder  string
	output  *os.File
}

// newBeanstalkd has a log, which the server of Debian's package has not, and which its page on it calls for.
func newBeanstalkd(strict bool) (_ backend, err error) {
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		return nil, fmt.Errorf("beanstalkd: %w", err)
	}
	b := &beanstalkdBackend{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.folder, err = os.MkdirTemp("", "bench-beanstalkd-"); err != nil {
		return nil, err
	}
	if b.output, err = os.Create(filepath.Join(b.folder, "output")); err != nil {
		return nil, err
	}
	if b.port, err = redistest.ReservePort(); err != nil {
		return nil, err
	}
	b.addr = fmt.Sprint("127.0.0.1:", b.port)
	args := []string{"-l", "127.0.0.1", "-p", strconv.Itoa(b.port), "-b", b.folder}
	if strict {
		args = append(args, "-f", "0")
	}
	if b.process, err = redistest.StartProcess(path, args, b.folder, b.output); err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err = beanstalkdStats(b.addr); err == nil || b.process.Ended() {
			break
		}
	}
	return b, err
}

func (b *beanstalkdBackend) address() string { return b.addr }
func (b *beanstalkdBackend) pid() int        { return b.process.Pid() }

// memory is that of the process, because it does not say what messages take.
func (b *beanstalkdBackend) memory(context.Context) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.pid()))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	return pages * float64(os.Getpagesize()), err
}

func (b *beanstalkdBackend) calls(context.Context) (float64, error) {
	stats, err := beanstalkdStats(b.addr)
	if err != nil {
		return 0, err
	}
	var sum float64
	for name, value := range stats {
		if !strings.HasPrefix(name, "cmd-") || name == "cmd-stats" {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("beanstalkd: stats: %s: %w", name, err)
		}
		sum += n
	}
	return sum, nil
}

func (b *beanstalkdBackend) close() error {
	if b.process != nil {
		b.process.Kill()
	}
	redistest.ReleasePort(b.port)
	var err error
	if b.output != nil {
		err = b.output.Close()
	}
	return errors.Join(err, os.RemoveAll(b.folder))
}

const cpuTick = 10 * time.Millisecond // of Linux's /proc, on all that Go runs on

// cpuOf is what a process and its children have used.
func cpuOf(pid int) (time.Duration, error) {
	used, parent := map[int]time.Duration{}, map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		_, rest, _ := strings.Cut(string(text), ") ")
		// state, ppid, …; utime, stime, and those of children that ended are the 12th to the 15th
		fields := strings.Fields(rest)
		if len(fields) < 15 {
			return 0, fmt.Errorf("%s: %q", file, text)
		}
		parent[id], _ = strconv.Atoi(fields[1])
		for _, ticks := range fields[11:15] {
			n, err := strconv.ParseInt(ticks, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", file, err)
			}
			used[id] += time.Duration(n) * cpuTick
		}
	}
	if _, ok := used[pid]; !ok {
		return 0, fmt.Errorf("/proc has no process %d", pid)
	}
	var sum time.Duration
	for id, d := range used {
		for at := id; at > 1; at = parent[at] {
			if at == pid {
				sum += d
				break
			}
		}
	}
	return sum, nil
}
