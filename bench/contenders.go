package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// A contender is a queue that people may pick.
type contender struct {
	name     string
	backend  func(strict bool) (backend, error)
	open     func(addr string) (system, error) // nil: its worker is not in Go
	command  func(ctx context.Context, addr string) (*exec.Cmd, error)
	drained  int // messages of a drain, so that it takes some seconds
	settings string

	alwaysStrict bool // about durability: what it is measured with is its strictest
}

// contenders in the order of the tables.
func contenders() []contender {
	onRedis := func(open func(*network) system) func(string) (system, error) {
		return func(addr string) (system, error) { return open(&network{addr: addr}), nil }
	}
	return []contender{
		{name: nameLibrary, backend: newRedis, open: onRedis(openLibraryWhole), drained: 400_000,
			settings: "its defaults"},
		{name: nameAsynq, backend: newRedis, open: onRedis(openAsynq), drained: 30_000,
			settings: "its defaults, so that it looks every 5 s for what is due (DelayedTaskCheckInterval)"},
		{name: nameBullMQ, backend: newRedis, command: bullMQCommand, drained: 50_000,
			settings: "`removeOnComplete`, `maxRetriesPerRequest: null`, AOF and `noeviction`, as of " +
				"[Going to production](https://docs.bullmq.io/guide/going-to-production)"},
		{name: nameBeanstalkd, backend: newBeanstalkd, open: openBeanstalkd, drained: 50_000,
			settings: fmt.Sprintf("a log (`-b`), with its default of one fsync in 50 ms; a connection for each sender and "+
				"worker; a TTR of %.0f min", beanstalkdTTR.Minutes())},
		{name: nameRiver, backend: newPostgres, open: openRiver, drained: 30_000, alwaysStrict: true,
			settings: fmt.Sprintf("PostgreSQL's defaults; FetchCooldown %s and FetchPollInterval %s as of "+
				"[`river bench`](https://riverqueue.com/docs/benchmarks), because with its defaults of 100 ms and 1 s "+
				"64 workers handle 640 messages a second at most; `InsertManyFast` for batches; a pool of %d connections",
				riverCooldown, riverPoll, riverConnections)},
	}
}

// workerWord is the first argument that makes this program a worker; the contender's name and its address follow.
const workerWord = "worker"

// runWorker is the worker of a contender in Go.
func runWorker(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("a contender and an address are wanted")
	}
	for _, c := range contenders() {
		if c.name != args[0] || c.open == nil {
			continue
		}
		sys, err := c.open(args[1])
		if err != nil {
			return err
		}
		defer sys.close()
		return beWorker(ctx, sys, os.Stdin, os.Stdout)
	}
	return fmt.Errorf("no contender is called %q", args[0])
}

const bullMQFolder = "bullmq"

// bullMQCommand installs what its worker needs if it is not there, or if something else is wanted since.
func bullMQCommand(ctx context.Context, addr string) (*exec.Cmd, error) {
	wanted, err := os.Stat(filepath.Join(bullMQFolder, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	there, err := os.Stat(filepath.Join(bullMQFolder, "node_modules", ".package-lock.json"))
	if err != nil || there.ModTime().Before(wanted.ModTime()) {
		install := exec.CommandContext(ctx, "npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
		install.Dir = bullMQFolder
		if out, err := install.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("npm ci in bench/%s: %w\n%s", bullMQFolder, err, out)
		}
	}
	return exec.Command("node", filepath.Join(bullMQFolder, "worker.mjs"), addr), nil
}

// versions of a contender: of its server, and of what its workers import.
func (c contender) versions(ctx context.Context) ([]string, error) {
	ask := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, name, args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	modules := func(paths ...string) (out []string) {
		info, _ := debug.ReadBuildInfo() // there is one of what go built
		for _, dep := range info.Deps {
			for _, path := range paths {
				if dep.Path == path {
					out = append(out, strings.TrimPrefix(path, "github.com/")+" "+dep.Version)
				}
			}
		}
		return out
	}
	switch c.name {
	case nameLibrary:
		server, err := redistest.Version(ctx)
		return append([]string{server}, modules("github.com/redis/go-redis/v9")...), err
	case nameAsynq:
		return modules("github.com/hibiken/asynq"), nil
	case nameBeanstalkd:
		server, err := ask("beanstalkd", "-v")
		return append([]string{server}, modules("github.com/beanstalkd/go-beanstalk")...), err
	case nameRiver:
		server, err := ask("psql", "--version")
		return append([]string{server}, modules("github.com/riverqueue/river", "github.com/jackc/pgx/v5")...), err
	case nameBullMQ:
		node, err := ask("node", "--version")
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(bullMQFolder, "node_modules", "bullmq", "package.json"))
		if err != nil {
			return nil, err
		}
		var module struct{ Version string }
		err = json.Unmarshal(text, &module)
		return []string{"bullmq " + module.Version, "Node " + node}, err
	}
	return nil, nil
}

// A stand is a contender with a server of its own, and workers.
type stand struct {
	contender
	backend
	strict  bool
	workers []*workerProcess
}

// newStand starts the server and a worker.
func newStand(ctx context.Context, c contender, strict bool) (_ *stand, err error) {
	s := &stand{contender: c, strict: strict}
	if s.backend, err = c.backend(strict); err != nil {
		return nil, err
	}
	if _, err = s.hire(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// hire starts another worker, and waits until it takes orders.
func (s *stand) hire(ctx context.Context) (*workerProcess, error) {
	var cmd *exec.Cmd
	var err error
	if s.command != nil {
		cmd, err = s.command(ctx, s.address())
	} else {
		var self string
		if self, err = os.Executable(); err == nil {
			cmd = exec.Command(self, workerWord, s.name, s.address())
		}
	}
	if err != nil {
		return nil, err
	}
	w := &workerProcess{cmd: cmd}
	cmd.Stderr = os.Stderr
	if w.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w.orders, w.answers = json.NewEncoder(w.in), json.NewDecoder(out)
	s.workers = append(s.workers, w)
	_, err = w.do(ctx, order{Do: "hello"})
	return w, err
}

func (s *stand) close() error {
	for _, w := range s.workers {
		w.end()
	}
	return s.backend.close()
}

// A workerProcess is a worker, from outside.
type workerProcess struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	orders  *json.Encoder
	answers *json.Decoder
}

// workerEnds is how long a worker may take to end when its input does.
const workerEnds = 10 * time.Second

// do has the worker carry out an order.
func (w *workerProcess) do(ctx context.Context, o order) (answer, error) {
	defer context.AfterFunc(ctx, func() { _ = w.cmd.Process.Kill() })() // ends the wait for its answer
	if err := w.orders.Encode(o); err != nil {
		return answer{}, fmt.Errorf("%s: the worker has gone: %w", o.Do, err)
	}
	var a answer
	switch err := w.answers.Decode(&a); {
	case ctx.Err() != nil:
		return answer{}, ctx.Err()
	case err != nil:
		return answer{}, fmt.Errorf("%s: the worker has gone: %w", o.Do, err)
	case a.Unsupported:
		return answer{}, errors.ErrUnsupported
	case a.Error != "":
		return answer{}, fmt.Errorf("%s: %s", o.Do, a.Error)
	}
	return a, nil
}

func (w *workerProcess) kill() { _ = w.cmd.Process.Kill() } // it may have ended

func (w *workerProcess) end() {
	_ = w.in.Close()
	late := time.AfterFunc(workerEnds, w.kill)
	_ = w.cmd.Wait() // some are killed
	late.Stop()
}
