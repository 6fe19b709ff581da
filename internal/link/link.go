package link

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file keeps connections of the library's own beside those of the user's client. In the user's pool a queue would
// compete with blocking calls of other parts of the program, and after a fault of the network it would meet one dead
// connection after the other.

// A Link is the library's own connections to the Redis of one client. They are made with that client's options:
// its dialer, so that Sentinel is asked, its credentials and its TLS, but not its hooks. All queues of a
// process on that client share it. It is safe for concurrent use.
type Link struct {
	owner     redis.UniversalClient
	consumers atomic.Int64                 // that use it
	dialErr   atomic.Pointer[error]        // of the last dial; nil if that succeeded
	node      atomic.Pointer[redis.Client] // the user's of a server, or of a node that was found; nil: none was found yet
	silent    sync.Map                     // by address or slot, when a server did not answer: see Within

	mu        sync.Mutex // guards the fields below
	pools     map[place]*pool
	kept      any          // what Beside made; nil: nothing
	hooks     []redis.Hook // of Interpose
	waitHooks []redis.Hook // of InterposeWaits
}

// A place is what a pool is for. Consumers have connections that sends and looks cannot use up. So a lease is renewed
// in time however many sends wait.
type place struct {
	addr      string // of the server; "" if there is one server only
	consuming bool
}

// A pool is the connections of one place. After a call that got no answer it is retired: later calls
// go over a new pool, and the old one is closed when no call is in flight on it.
type pool struct {
	place
	cli       *redis.Client
	inFlight  chan struct{} // an element for each call
	onRetired chan struct{} // closes when it is retired; link.mu guards that
	reached   atomic.Bool   // a connection of it was ready for calls; until then none has come to a server
	answers   atomic.Uint64 // to calls, without errors
	unused    *time.Timer   // retires it
}

func (p *pool) retired() bool { return conc.Closed(p.onRetired) }

// links are those that somebody has, by their clients.
var links = struct {
	mu       sync.Mutex
	byClient map[redis.UniversalClient]weak.Pointer[Link]
}{byClient: map[redis.UniversalClient]weak.Pointer[Link]{}}

// linkOf returns the link of a client. It lives as long as somebody has it. It is nil if the client does not tell its
// options, as one of the user's own type.
func linkOf(cli redis.UniversalClient) *Link {
	switch cli.(type) {
	case *redis.Client, *redis.ClusterClient:
	default:
		return nil
	}
	links.mu.Lock()
	defer links.mu.Unlock()
	if l := links.byClient[cli].Value(); l != nil {
		return l
	}
	l := &Link{owner: cli, pools: map[place]*pool{}}
	if node, ok := cli.(*redis.Client); ok {
		l.node.Store(node)
	}
	links.byClient[cli] = weak.Make(l)
	runtime.AddCleanup(l, forgetLink, cli)
	return l
}

// forgetLink forgets the link of a client, which nobody has any more, unless there is another one by now.
func forgetLink(cli redis.UniversalClient) {
	links.mu.Lock()
	defer links.mu.Unlock()
	if links.byClient[cli].Value() == nil {
		delete(links.byClient, cli)
	}
}

// ConsumersNow is how many consumers use the link.
func (l *Link) ConsumersNow() int { return int(l.consumers.Load()) }

// losesTrust tells errors after which a connection is not trusted: no answer, or the answer of a primary that was
// replaced. A server that hangs up at once may have room for no more connections than there are.
func losesTrust(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrRevoked) || errors.Is(err, errHungUp) {
		return false
	}
	return AnswerOf(err) == "" || Says(err, "READONLY")
}

// ErrAllInUse: a call has waited for a connection of the link until its context ended.
var ErrAllInUse = fmt.Errorf("all %d connections to the server are in use", linkPool)

// take returns the pool of a place for one call, as soon as the pool has a connection to spare. The call that has
// waited longest comes first. Without a link there is no pool.
func (l *Link) take(ctx context.Context, at place) (*pool, error) {
	if l == nil {
		return nil, nil
	}
	for {
		p := l.poolAt(at)
		select {
		case p.inFlight <- struct{}{}:
		default:
			select {
			case p.inFlight <- struct{}{}:
			case <-p.onRetired: // calls on it may hang for long
				continue
			case <-ctx.Done():
				return nil, fmt.Errorf("%w (%w)", ErrAllInUse, ctx.Err())
			}
		}
		if !p.retired() {
			return p, nil
		}
		l.put(p, nil)
	}
}

// poolAt returns the pool of a place, and makes it if there is none.
func (l *Link) poolAt(at place) *pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pools[at]; p != nil {
		return p
	}
	p := &pool{place: at, inFlight: make(chan struct{}, linkPool), onRetired: make(chan struct{})}
	opt := l.options(at.addr)
	connected := opt.OnConnect
	opt.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		err := connected(ctx, conn)
		p.reached.CompareAndSwap(false, err == nil)
		return err
	}
	p.cli = redis.NewClient(opt)
	p.unused = time.AfterFunc(linkIdle, func() {
		if len(p.inFlight) == 0 { // else put begins anew
			l.retire(p)
		}
	})
	for _, hook := range l.hooks {
		p.cli.AddHook(hook)
	}
	l.pools[at] = p
	return p
}

// put gives a pool back after a call with this error, which may retire the pool.
func (l *Link) put(p *pool, err error) {
	<-p.inFlight
	switch {
	case p.retired():
		p.closeIdle()
	case losesTrust(err):
		l.retire(p)
	default:
		p.unused.Reset(linkIdle)
	}
}

// retire has a pool closed as soon as no call is in flight on it.
func (l *Link) retire(p *pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.retired() {
		return
	}
	delete(l.pools, p.place)
	close(p.onRetired)
	p.closeIdle()
}

// closeIdle closes a retired pool if no call is in flight on it.
func (p *pool) closeIdle() {
	if p.retired() && len(p.inFlight) == 0 {
		_ = p.cli.Close() // nobody can use this error, which a second call gives too
	}
}

const (
	// linkPool is how many calls of a place have a connection at most; connections are made when they are needed.
	linkPool = 64
	// linkAge is how old a connection gets, give or take a fifth: it may lead to a primary that was replaced and does
	// not know it.
	linkAge = 10 * time.Second
	// linkAgeSentinel is linkAge with Sentinel: a planned failover leaves the old primary alive. It takes and hands
	// out messages for some 8 s more, and forgets all of that when it becomes a replica.
	linkAgeSentinel = time.Second
	// sentinelAddr is the address in the options of every client that asks sentinels (go-redis 9.22).
	sentinelAddr = "FailoverClient"
	// linkIdle is how long a pool stays open after its last call. A program may make a client for each job.
	linkIdle = 5 * time.Second
	// linkLimit bounds what no context bounds, such as a handshake that nobody waits for any more.
	linkLimit = time.Minute
)

// options returns those of the user, changed for connections of the library's own. The link has a node.
func (l *Link) options(addr string) *redis.Options {
	opt := *l.node.Load().Options()
	age := linkAge
	if opt.Addr == sentinelAddr {
		age = linkAgeSentinel
	}
	if addr != "" {
		opt.Addr, opt.NodeAddress = addr, addr
	}
	opt.Dialer = l.dialer(opt.Dialer)
	endInTime(&opt)
	opt.DialerRetries, opt.MaxRetries = 1, -1 // a repeat is the library's to make
	opt.ContextTimeoutEnabled = true          // the context is what bounds a call
	opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = linkLimit, linkLimit, linkLimit
	const connections = 2 * linkPool // where sends wait for replicas in vain, a call has two (ReplicatedCall.Exec)
	opt.PoolSize, opt.MaxConcurrentDials, opt.PoolFIFO = connections, connections, true
	opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 0, 0, 0
	opt.ConnMaxLifetime, opt.ConnMaxLifetimeJitter = age, age/5
	opt.PipelineReadBufferSize, opt.PipelineWriteBufferSize = 0, 0
	opt.ClientSideCache, opt.ClientSideCacheConfig, opt.PushNotificationProcessor = nil, nil, nil
	// It is of no use to a connection that lives for seconds, and go-redis 9.22 writes to the user's own while it makes
	// its first connections.
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &opt
}

// Interpose puts a hook between the library's own connections beside a client and their servers, for tests of lost,
// late and refused calls: these connections do not have the client's hooks. The link stays until release.
func Interpose(cli redis.UniversalClient, hook redis.Hook) (release func()) {
	l := linkOf(cli)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, hook)
	for _, p := range l.pools {
		p.cli.AddHook(hook)
	}
	return func() { runtime.KeepAlive(l) }
}

// InterposeWaits is Interpose for the connections that wait for wake-ups.
func InterposeWaits(cli redis.UniversalClient, hook redis.Hook) (release func()) {
	l := linkOf(cli)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waitHooks = append(l.waitHooks, hook)
	return func() { runtime.KeepAlive(l) }
}

// Beside is what another package keeps with a link. The first call makes it.
func (l *Link) Beside(make func() any) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		l.kept = make()
	}
	return l.kept
}
