//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	nodeCount   = 6      // half of them are replicas
	nodeTimeout = "2000" // ms after which nodes hold a silent one for dead
	formLimit   = time.Minute
)

// A node is a server of the Cluster. It keeps its port and its folder when it is killed and started again.
type node struct {
	server string // the executable
	dir    string
	port   int
	cli    *redis.Client
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the server has ended; nil: it never ran
}

type nodes []*node

func (n *node) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)) }
func (n *node) name() string { return ":" + strconv.Itoa(n.port) }

func (ns nodes) addrs() (all []string) {
	for _, n := range ns {
		all = append(all, n.addr())
	}
	return all
}

// startNodes starts servers, and makes a Cluster of them. The caller must stop the nodes, also after an error.
func startNodes(ctx context.Context) (ns nodes, err error) {
	ctx, cancel := context.WithTimeout(ctx, formLimit)
	defer cancel()
	server, err := exec.LookPath("redis-server")
	if err != nil {
		if server, err = exec.LookPath("valkey-server"); err != nil {
			return nil, errors.New("neither redis-server nor valkey-server is in PATH: install Redis 6.2 or later, or Valkey, " +
				"as with apt-get install redis-server or brew install redis")
		}
	}
	dir, err := os.MkdirTemp("", "delayqueue-cluster-")
	if err != nil {
		return nil, err
	}
	port := freePorts()
	for i := range nodeCount {
		n := &node{server: server, dir: filepath.Join(dir, strconv.Itoa(i)), port: port + i}
		n.cli = redis.NewClient(&redis.Options{Addr: n.addr(), MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Second})
		ns = append(ns, n)
		if err := errors.Join(os.Mkdir(n.dir, 0o700), n.start(ctx)); err != nil {
			return ns, err
		}
	}
	return ns, ns.form(ctx)
}

// freePorts is the first of so many ports that nobody listens on, as on the ports of the cluster bus, 10000 above.
func freePorts() int {
	for {
		port, free := 10000+rand.IntN(10000-nodeCount), true
		for i := range nodeCount {
			for _, p := range []int{port + i, port + i + 10000} {
				ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
				if free = free && err == nil; err == nil {
					ln.Close()
				}
			}
		}
		if free {
			return port
		}
	}
}

// start starts the server, also after it was killed, and waits until it answers.
func (n *node) start(ctx context.Context) error {
	cmd, ended := exec.Command(n.server, "--bind", "127.0.0.1", "--port", strconv.Itoa(n.port), "--dir", n.dir,
		"--logfile", "log",
		"--save", "", "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-node-timeout", nodeTimeout,
		// By default all nodes refuse all calls while a slot has no node. Sends go on only if the others serve their slots.
		"--cluster-require-full-coverage", "no",
		"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"),
		make(chan struct{})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this program alone
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait(); close(ended) }()
	n.cmd, n.ended = cmd, ended
	return await(ctx, func() error { return n.cli.Ping(ctx).Err() })
}

// kill ends the server as kill -9 does.
func (n *node) kill() {
	if n.ended != nil {
		_ = n.cmd.Process.Kill()
		<-n.ended
	}
}

// stop ends all servers, and removes what they wrote.
func (ns nodes) stop() {
	for _, n := range ns {
		n.kill()
		_ = n.cli.Close()
		_ = os.RemoveAll(filepath.Dir(n.dir))
	}
}

// form makes a Cluster of the servers, and waits until each of them is ready.
func (ns nodes) form(ctx context.Context) error {
	cli := strings.TrimSuffix(ns[0].server, "-server") + "-cli"
	args := append([]string{"--cluster", "create", "--cluster-replicas", "1", "--cluster-yes"}, ns.addrs()...)
	if said, err := exec.CommandContext(ctx, cli, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s --cluster create: %w: %s", cli, err, said)
	}
	for _, n := range ns {
		if err := await(ctx, func() error {
			info, err := n.cli.Info(ctx, "replication").Result()
			state, cerr := n.cli.ClusterInfo(ctx).Result()
			if linked := field(info, "master_link_status") == "up" || strings.Contains(info, "state=online"); err == nil &&
				(!linked || !strings.Contains(state, "cluster_state:ok")) {
				err = fmt.Errorf("%s is not ready:\n%s%s", n.name(), info, state)
			}
			return errors.Join(err, cerr)
		}); err != nil {
			return err
		}
	}
	return nil
}

// await calls f until it returns nil or ctx ends.
func await(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
