package delayqueue

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file keeps connections of the library's own beside those of the user's client. In the user's
// pool a queue would have to share with blocking calls of strangers, after a fault of the network it would
// find one dead connection after the other, and nothing there ends a call in time: a goroutine that does
// instead costs as much again as the call.

// A link is the library's own connections to the Redis of one client, made with that client's options:
// its dialer, so that Sentinel is asked, its credentials and its TLS, but not its hooks. All queues of a
// process on that client share it. It is safe for concurrent use.
type link struct {
	owner redis.UniversalClient

	// Guarded by links.mu.
	users     int         // consumers, and calls under way
	consumers int         // of them
	used      time.Time   // when the last call outside of consumers ended
	expiry    *time.Timer // closes the link when nobody has used it for a while; nil: none is under way

	mu        sync.Mutex
	like      *redis.Options        // of one server; nil until one is known
	pools     map[string]*pool      // by address; "" if there is one server only
	hooks     []redis.Hook          // of tests
	listening func(*redis.Client)   // of tests, with a connection for wake-ups
	fault     atomic.Pointer[error] // why the last dial failed; nil if it did not
	over      bool                  // it is released; calls that nobody waits for may be under way
}

// A pool is the connections to one server. After a call that got no answer they are not trusted any more:
// the next one goes over a new pool, and the old one is closed when nothing is under way on it.
type pool struct {
	cli  *redis.Client
	addr string
	busy int // calls under way
	over bool
}

// links are those that are in use.
var links = struct {
	mu sync.Mutex
	of map[redis.UniversalClient]*link
}{of: map[redis.UniversalClient]*link{}}

// tellsOptions says whether a client is of a kind that can have a link.
func tellsOptions(cli redis.UniversalClient) bool {
	switch cli.(type) {
	case *redis.Client, *redis.ClusterClient:
		return true
	}
	return false
}

// linkTo returns the link of a client for one call, which releases it; nil if the client is of a kind that
// does not tell its options.
func linkTo(cli redis.UniversalClient) *link {
	if !tellsOptions(cli) {
		return nil
	}
	links.mu.Lock()
	defer links.mu.Unlock()
	l := links.of[cli]
	if l == nil {
		l = &link{owner: cli, pools: map[string]*pool{}}
		links.of[cli] = l
	}
	l.users++
	return l
}

// release gives a link back. It stays open for a while, for the next call.
func (l *link) release() {
	links.mu.Lock()
	defer links.mu.Unlock()
	l.users--
	l.used = time.Now()
	if l.users == 0 && l.expiry == nil {
		l.expiry = time.AfterFunc(linkIdle, l.expire)
	}
}

// expire closes the link if nobody has used it for a while.
func (l *link) expire() {
	links.mu.Lock()
	defer links.mu.Unlock()
	idle := time.Since(l.used)
	switch {
	case l.users > 0:
		l.expiry = nil
	case idle < linkIdle:
		l.expiry.Reset(linkIdle - idle)
	default:
		l.close()
	}
}

// linkForConsumer is linkTo for a consumer, which leaves when it ends.
func linkForConsumer(cli redis.UniversalClient) *link {
	l := linkTo(cli)
	if l != nil {
		links.mu.Lock()
		defer links.mu.Unlock()
		l.consumers++
	}
	return l
}

// leave gives back the link of a consumer. The last one who leaves closes it, unless somebody else has used it lately.
func (l *link) leave() {
	links.mu.Lock()
	defer links.mu.Unlock()
	l.users--
	l.consumers--
	if l.users == 0 && l.expiry == nil {
		l.close()
	}
}

// close closes the link, with links.mu held and nobody using it.
func (l *link) close() {
	delete(links.of, l.owner)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, p := range l.pools {
		l.retire(p)
	}
}

// call makes a call over the connections to one server.
func (l *link) call(ctx context.Context, addr string, c call) error {
	p := l.take(addr)
	defer l.put(p)
	err := c(ctx, p.cli)
	if err != nil && dubious(err) {
		l.distrust(p)
	}
	return err
}

// dubious tells errors after which a connection is not trusted: no answer, or that of a primary that was replaced.
func dubious(err error) bool {
	var answer redis.Error
	return !errors.Is(err, context.Canceled) && !errors.As(err, &answer) || says(err, "READONLY")
}

// take returns the pool of a server for one call; put gives it back.
func (l *link) take(addr string) *pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pools[addr]
	if p == nil {
		p = &pool{cli: redis.NewClient(l.options(addr)), addr: addr}
		for _, hook := range l.hooks {
			p.cli.AddHook(hook)
		}
		if p.over = l.over; !l.over {
			l.pools[addr] = p
		}
	}
	p.busy++
	return p
}

func (l *link) put(p *pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.busy--
	p.closeIdle()
}

// distrust has calls that begin from now on use other connections than those of p.
func (l *link) distrust(p *pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.over {
		l.retire(p)
	}
}

// retire has a pool closed as soon as nothing is under way on it, with mu held.
func (l *link) retire(p *pool) {
	delete(l.pools, p.addr)
	p.over = true
	p.closeIdle()
}

func (p *pool) closeIdle() {
	if p.over && p.busy == 0 {
		_ = p.cli.Close() // connections that are thrown away have nothing to tell
	}
}

const (
	// linkPool is how many connections a link makes to one server at most; they are made when they are wanted.
	linkPool = 64
	// linkAge is how old a connection gets, give or take a fifth: it may lead to a primary that has been
	// replaced, and that nobody has told so.
	linkAge = 10 * time.Second
	// linkAgeSentinel is that of a Sentinel's: a planned failover leaves the old primary alive, and it takes
	// and hands out messages for some 8 s more, all of which is forgotten when it becomes a replica.
	linkAgeSentinel = time.Second
	// sentinelAddr is the address in the options of every client that asks sentinels (go-redis 9.22).
	sentinelAddr = "FailoverClient"
	// linkIdle is how long a link stays open that nobody uses.
	linkIdle = 10 * time.Second
	// linkLimit bounds what a context does not, such as a handshake that nobody waits for any more.
	linkLimit = time.Minute
)

// options are the user's, for connections of the library's own, with mu held.
func (l *link) options(addr string) *redis.Options {
	if l.like == nil {
		l.like = l.owner.(*redis.Client).Options() // a Cluster's are learned by locate
	}
	opt := *l.like
	if addr != "" {
		opt.Addr, opt.NodeAddress = addr, addr
	}
	opt.Dialer = l.dialer(opt.Dialer)
	opt.DialerRetries, opt.MaxRetries = 1, -1 // a repeat is the library's to make
	opt.ContextTimeoutEnabled = true          // the context is what bounds a call
	opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = linkLimit, linkLimit, linkLimit
	opt.PoolSize, opt.MaxConcurrentDials, opt.PoolFIFO = linkPool, linkPool, true
	opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 0, 0, 0
	age := linkAge
	if l.like.Addr == sentinelAddr {
		age = linkAgeSentinel
	}
	opt.ConnMaxLifetime, opt.ConnMaxLifetimeJitter = age, age/5
	opt.PipelineReadBufferSize, opt.PipelineWriteBufferSize = 0, 0
	opt.ClientSideCache, opt.ClientSideCacheConfig, opt.PushNotificationProcessor = nil, nil, nil
	// Of no use to a connection that is made anew in seconds; and the user's own is still
	// being written to while its first connections are made (go-redis 9.22).
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &opt
}

// dialTime is how long a dial goes on that nobody waits for any longer, to learn why it fails.
const dialTime = 5 * time.Second

// dialer notes why dialling fails: a call that is not waited for any longer does not learn it.
func (l *link) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.ownerClosed() {
			return nil, redis.ErrClosed
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTime)
		defer cancel()
		conn, err := dial(ctx, network, addr)
		if err == nil {
			l.fault.Store(nil)
		} else {
			l.fault.Store(&err)
		}
		return conn, err
	}
}

// ownerClosed says whether the user has closed the client, and nothing consumes over the link: a consumer goes on until it
// is stopped. A client tells by nothing but a call; this one ends before it takes a connection.
func (l *link) ownerClosed() bool {
	links.mu.Lock()
	consumers := l.consumers
	links.mu.Unlock()
	cli, ok := l.owner.(*redis.Client)
	if !ok || consumers > 0 {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return errors.Is(cli.WithTimeout(time.Second).Ping(ctx).Err(), redis.ErrClosed)
}

// dialFault is why the last dial failed; nil if it did not.
func (l *link) dialFault() error {
	if fault := l.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// learn notes the options of a Cluster's servers.
func (l *link) learn(node *redis.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.like == nil {
		l.like = node.Options()
	}
}

// single is a client with one connection, for blocking calls. Whoever asked for it closes it.
func (l *link) single(addr string) *redis.Client {
	l.mu.Lock()
	defer l.mu.Unlock()
	opt := l.options(addr)
	opt.PoolSize, opt.MaxConcurrentDials, opt.ConnMaxLifetime = 1, 1, 0
	cli := redis.NewClient(opt)
	if l.listening != nil {
		l.listening(cli)
	}
	return cli
}

// asking is a client of a Cluster's node that has only some keys of a slot yet.
type asking struct{ *redis.Client }

func (c asking) Process(ctx context.Context, cmd redis.Cmder) error {
	pipe := c.Pipeline()
	for _, each := range []redis.Cmder{redis.NewStatusCmd(ctx, "asking"), cmd} {
		if err := pipe.Process(ctx, each); err != nil {
			return err
		}
	}
	if _, err := pipe.Exec(ctx); cmd.Err() == nil {
		return err
	}
	return cmd.Err()
}
