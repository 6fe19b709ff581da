package link

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file finds the node of a Cluster that holds a queue. The user's client knows that as a rule. After an error of the
// network the other nodes are asked, because the client asks them in the background, one at a time and in any order, and
// may wait for a node that is frozen.

// A nodeAddr is the address of a Cluster's node. The client is asked again after linkAgeSentinel, because it may be a
// NewFailoverClusterClient, whose sentinels replace the primary.
type nodeAddr struct {
	addr string
	at   time.Time // when it was found
	not  string    // what the client may say still, though another node knows better; "": nothing
}

const (
	// askNodes is how many other nodes are asked at most, one more each askEvery until one answers, and askTimeout for
	// how long.
	askNodes   = 5
	askEvery   = 50 * time.Millisecond
	askTimeout = 500 * time.Millisecond
	// askSample is how many slots are looked up to learn which nodes there are.
	askSample = 32
)

// findNode returns the address of the server that holds the queue. It is "" if there is only one server. A link that is new has no
// node of a Cluster, whose options its connections need: so the client is asked, even if the address is known.
func (s *Server) findNode(ctx context.Context, l *Link) (string, error) {
	if _, ok := s.Cli.(*redis.ClusterClient); !ok {
		return "", nil
	}
	known := s.nodeAddr.Load()
	if known != nil && time.Since(known.at) < linkAgeSentinel && l.node.Load() != nil {
		return known.addr, nil
	}
	begun := time.Now()
	bounded, cancel := context.WithTimeout(ctx, max(s.AttemptTimeout, minAttemptTimeout))
	defer cancel()
	found := make(chan string, 1)
	err := await(bounded, func() error { // it asks a server if it knows none yet
		node, err := s.Node(bounded)
		if err == nil {
			l.node.Store(node)
			found <- node.Options().Addr
		}
		return err
	})
	if err != nil {
		if ctx.Err() == nil && TimedOut(err) {
			err = &timeoutError{limit: time.Since(begun).Round(time.Millisecond), noConnection: true}
		}
		return "", err
	}
	addr, not := <-found, ""
	if known != nil && addr == known.not {
		addr, not = known.addr, known.not
	}
	s.nodeAddr.Store(&nodeAddr{addr, time.Now(), not})
	return addr, nil
}

// Node is the user's client for the one server that holds the queue.
func (s *Server) Node(ctx context.Context) (*redis.Client, error) {
	switch cli := s.Cli.(type) {
	case *redis.Client:
		return cli, nil
	case *redis.ClusterClient:
		return cli.MasterForKey(ctx, s.slot)
	default:
		return nil, fmt.Errorf("%w: %T", ErrNoNode, s.Cli)
	}
}

// ErrNoNode: a client of this kind does not say which server holds a key.
var ErrNoNode = errors.New("this kind of client does not say which server holds a key")

// askWhereItIs learns which node of a Cluster holds the queue, after an error that may come of a failover. By itself the
// client calls a dead primary until its next reload, which may be a minute away.
func (s *Server) askWhereItIs(ctx context.Context, l *Link, err error) {
	cluster, ok := s.Cli.(*redis.ClusterClient)
	if !ok || !Transient(err) {
		return
	}
	cluster.ReloadState(ctx)
	was := s.nodeAddr.Load()
	if was == nil || l.node.Load() == nil || // without a node the link can make no connection
		cluster.Options().ClusterSlots != nil { // whose servers may know nothing of a Cluster
		s.nodeAddr.Store(nil)
		return
	}
	now := s.askOthers(ctx, l, cluster, was.addr)
	if now == "" || now == was.addr {
		s.nodeAddr.Store(&nodeAddr{addr: was.addr, not: was.not}) // the client is asked again
		return
	}
	s.nodeAddr.Store(&nodeAddr{now, time.Now(), was.addr})
}

// askOthers asks other nodes than one who holds the queue, and returns the first answer; "" if there is none in time.
func (s *Server) askOthers(ctx context.Context, l *Link, cluster *redis.ClusterClient, than string) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	others := otherNodes(ctx, cluster, than)
	answers := make(chan string, len(others))
	for {
		var next <-chan time.Time
		if len(others) > 0 {
			addr := others[0]
			others = others[1:]
			go func() { answers <- s.askNode(ctx, l, addr) }()
			next = time.After(askEvery)
		}
		select {
		case addr := <-answers:
			if addr != "" {
				return addr
			}
		case <-next:
		case <-ctx.Done():
			return ""
		}
	}
}

// otherNodes are nodes of a Cluster, in any order, as far as its client knows them without asking a server.
func otherNodes(ctx context.Context, cluster *redis.ClusterClient, than string) []string {
	all := map[string]bool{}
	for _, addr := range cluster.Options().Addrs {
		all[addr] = true
	}
	for range askSample {
		if node, err := cluster.MasterForKey(ctx, strconv.Itoa(rand.Int())); err == nil {
			all[node.Options().Addr] = true
		}
	}
	delete(all, than)
	others := slices.Collect(maps.Keys(all))
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others[:min(len(others), askNodes)]
}

// askNode asks one node who holds the queue; "" if it does not say. It reads a hash that the scripts read with the same command,
// so that it needs no further right.
func (s *Server) askNode(ctx context.Context, l *Link, addr string) string {
	p, err := l.take(ctx, addr, producing)
	if err != nil {
		return ""
	}
	err = func() (err error) {
		defer contain(&err)
		return p.cli.HMGet(ctx, s.slot, "armed").Err()
	}()
	l.put(p, producing, time.Time{}, err)
	if target, ok := redirection(redis.IsMovedError(err)); ok {
		return target
	}
	if err == nil {
		return addr
	}
	return ""
}

// redirection is the address that a Cluster's node redirects a call to, if it is one.
func redirection(addr string, ok bool) (string, bool) {
	host, _, err := net.SplitHostPort(addr)
	return addr, ok && err == nil && host != ""
}

// asking is a client of a Cluster's node to which a slot is being moved: it takes a call only after ASKING.
type asking struct{ *redis.Client }

func (c asking) Process(ctx context.Context, cmd redis.Cmder) error {
	pipe := c.Pipeline()
	if err := pipe.Process(ctx, cmd); err != nil {
		return err
	}
	if _, err := pipe.Exec(ctx); cmd.Err() == nil {
		return err
	}
	return cmd.Err()
}

func (c asking) Pipeline() redis.Pipeliner { return askingPipeline{c.Client.Pipeline()} }

// askingPipeline has an ASKING before each of its commands, because an ASKING holds for one command.
type askingPipeline struct{ redis.Pipeliner }

func (p askingPipeline) Process(ctx context.Context, cmd redis.Cmder) error {
	if err := p.Pipeliner.Process(ctx, redis.NewStatusCmd(ctx, "asking")); err != nil {
		return err
	}
	return p.Pipeliner.Process(ctx, cmd)
}
