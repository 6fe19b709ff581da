package produce

import (
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestSpreadOutage: a shard that answers does not end the outage of another one. The log has the begin and the end
// once.
func TestSpreadOutage(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	wire := redistest.NewWire(t, redistest.Start(t).Addr())
	b := newBatcher(f, f.Cli)
	shards := []*script.Store{b.Store, script.NewStore(queuetest.PatientClient(wire.Addr()), "dq", f.Name)}
	t.Cleanup(func() { _ = shards[1].Cli.Close() })
	shards[1].AttemptTimeout = queuetest.Patience
	shards[0].Shard, shards[1].Shard = "shard 1 of 2", "shard 2 of 2"
	b.Events = logsTo{log: f.Logger()}
	b.spreadOver(shards, func(i int) int { return i * 512 })
	send := func() {
		t.Helper()
		if m := sendTo(queuetest.CtxB, b, "x")[0]; m.Stored != StoredYes || m.Err != nil {
			t.Errorf("a send: %d, %v", m.Stored, m.Err)
		}
	}
	send()
	send()
	said := func(text string) int { return strings.Count(f.Log.String(), text) }
	const begin, end = "cannot work with Redis", "working with Redis again"

	wire.Cut()
	queuetest.Eventually(t, "the log says that Redis is away", func() bool { send(); return said(begin) > 0 })
	for range 3 {
		send()
	}
	if n := said(end); n > 0 {
		t.Errorf("the log says %d times that Redis is back, while a shard is away", n)
	}
	wire.Mend()
	queuetest.Eventually(t, "the log says that Redis is back", func() bool { send(); return said(end) > 0 })
	if n := said(begin); n != 1 {
		t.Errorf("the log says %d times that Redis is away", n)
	}
	nothingWaits(t, b)
}

// TestSpreadRefused: what one shard refuses, because its server is full, or too few replicas have what it writes, or
// a key is another program's, goes to another one.
func TestSpreadRefused(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(f *queuetest.Base, cli *redis.Client){
		"full": func(f *queuetest.Base, cli *redis.Client) {
			f.Must(cli.ConfigSet(queuetest.CtxB, "maxmemory", "1mb").Err())
		},
		"no replicas": func(f *queuetest.Base, cli *redis.Client) {
			f.Must(cli.ConfigSet(queuetest.CtxB, "min-replicas-to-write", "1").Err())
		},
		"spoilt": func(f *queuetest.Base, cli *redis.Client) {
			f.Must(cli.Set(queuetest.CtxB, "{dq:"+f.Name+"}:state", "x", 0).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := queuetest.NewBase(t)
			cli := redistest.Start(t).Client(t)
			refuse(f, cli)
			b := newBatcher(f, f.Cli)
			other := script.NewStore(cli, "dq", f.Name)
			stores := []*script.Store{b.Store, other, script.NewStore(cli, "dq", f.Name)}
			b.spreadOver(stores, func(i int) int { return i * 341 })
			for range 9 {
				if m := sendTo(queuetest.CtxB, b, "x")[0]; m.Stored != StoredYes || m.Err != nil {
					t.Errorf("a send: %d, %v", m.Stored, m.Err)
				}
			}
			b.mu.Lock()
			b.targets = b.targets[1:]
			b.mu.Unlock()
			if name == "no replicas" {
				return // that may pass
			}
			if m := sendTo(queuetest.CtxB, b, "x")[0]; m.Stored != StoredNo || m.Err == nil {
				t.Errorf("a send that all refuse: %d, %v", m.Stored, m.Err)
			}
			nothingWaits(t, b)
		})
	}
}
