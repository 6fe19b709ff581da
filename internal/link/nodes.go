package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file finds the node of a Cluster that holds a queue, and calls it. The user's client knows the nodes.

// findNode returns the address of the server that holds the queue. It is "" if there is only one server.
func (s *Server) findNode(ctx context.Context) (string, error) {
	if _, ok := s.Cli.(*redis.ClusterClient); !ok {
		return "", nil
	}
	if s.Link.node.Load() == nil { // the client asks a server, because it knows none yet
		begun := time.Now()
		bounded, cancel := context.WithTimeout(ctx, max(s.AttemptTimeout, minAttemptTimeout))
		defer cancel()
		err := callUntil(bounded, func() error { _, err := s.Node(bounded); return err })
		if err != nil && ctx.Err() == nil && TimedOut(err) {
			err = s.Link.late(begun, true)
		}
		if err != nil {
			return "", err
		}
	}
	node, err := s.Node(ctx)
	if err != nil {
		return "", err
	}
	s.Link.node.Store(node) // connections of the library's own have its options
	return node.Options().Addr, nil
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

// nodeAddr is the address of the node of a Cluster that holds the queue, as far as the client knows the nodes; "" if
// there is none. It asks nobody.
func (s *Server) nodeAddr() string {
	if cluster, ok := s.Cli.(*redis.ClusterClient); ok {
		if node, err := cluster.MasterForKey(canceled, s.slot); err == nil {
			return node.Options().Addr
		}
	}
	return ""
}

// ErrNoNode: a client of this kind does not say which server holds a key.
var ErrNoNode = errors.New("this kind of client does not say which server holds a key")

// hedge is when one more node is asked for the primaries, because the first may hang.
const hedge = 300 * time.Millisecond

// Primaries are the servers that hold the keys.
func Primaries(ctx context.Context, cli redis.UniversalClient) ([]*redis.Client, error) {
	var cluster *redis.ClusterClient
	switch cli := cli.(type) {
	case *redis.Client:
		return []*redis.Client{cli}, nil
	case *redis.ClusterClient:
		cluster = cli
	case *redis.Ring:
		return nil, ErrRing
	default:
		return nil, fmt.Errorf("%w: %T", ErrNoNode, cli)
	}
	type answer struct {
		nodes []*redis.Client
		err   error
	}
	const most = 5
	answers := make(chan answer, most)
	ask := func() {
		var mu sync.Mutex
		var a answer
		a.err = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			a.nodes = append(a.nodes, node)
			return nil
		})
		answers <- a
	}
	go ask()
	again := time.NewTicker(hedge)
	defer again.Stop()
	for asked := 1; ; {
		select {
		case a := <-answers:
			return a.nodes, a.err
		case <-again.C:
			if asked < most {
				asked++
				go ask()
			}
		case <-ctx.Done():
			return nil, Ended(ctx)
		}
	}
}

// lookAgain has the client of a Cluster ask, in the background, which node holds which slot, after an error that may
// come of a failover. By itself it calls a dead primary until its next reload, which may be a minute away.
func (s *Server) lookAgain(ctx context.Context, err error) {
	if cluster, ok := s.Cli.(*redis.ClusterClient); ok && Transient(err) {
		cluster.ReloadState(ctx)
	}
}

// callNode makes a call to the node of a Cluster that holds the queue, and follows redirections, each within the bounds
// of an attempt.
func (s *Server) callNode(ctx context.Context, e Effort) error {
	addr, err := s.findNode(ctx)
	if err != nil {
		return err
	}
	call := e.Call
	const redirections = 3
	for n := 0; ; n++ {
		if err = s.callAt(ctx, addr, e); n == redirections {
			return err
		}
		moved, isMoved := redirection(redis.IsMovedError(err))
		target, isAsk := redirection(redis.IsAskError(err))
		switch {
		case isMoved:
			addr, e.Call = moved, call
			s.lookAgain(ctx, err)
		case isAsk:
			addr = target
			e.Call = func(ctx context.Context, cli redis.UniversalClient) error {
				return call(ctx, asking{cli.(*redis.Client)})
			}
		default:
			return err
		}
	}
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
