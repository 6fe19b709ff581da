package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file keeps connections of the library's own beside those of the user's client. In the user's pool a queue would
// compete with blocking calls of other parts of the program, and after a fault of the network it would meet one dead
// connection after the other. Nothing in the user's client ends one call in time: a goroutine that waits beside each
// call is a third of what a lone send costs the client.

// A Link is the library's own connections to the Redis of one client. They are made with that client's options:
// its dialer, so that Sentinel is asked, its credentials and its TLS, but not its hooks. All queues of a
// process on that client share it. It is safe for concurrent use.
type Link struct {
	owner redis.UniversalClient

	// Guarded by links.mu.
	users     int         // consumers, and calls in flight outside of consumers
	consumers int         // of users
	lastUsed  time.Time   // when the last call outside of consumers ended
	expiry    *time.Timer // closes the link when it has been idle for a while; nil: it is not set

	dialErr atomic.Pointer[error]        // of the last dial; nil if that succeeded
	open    atomic.Int64                 // connections
	node    atomic.Pointer[redis.Client] // the user's of one server, of a Cluster the last that was found; nil until there is one
	server  lastServer

	mu         sync.Mutex       // guards the fields below
	pools      map[string]*pool // by address; "" if there is one server only
	promptness map[string]*promptness
	pace       pace      // of calls of consumers
	answeredAt time.Time // when a call of a consumer was answered last
	kept       any       // what Beside made; nil: nothing
	room       serverRoom
	closed     bool         // calls that nobody waits for may still be in flight
	hooks      []redis.Hook // of Interpose
	waitHooks  []redis.Hook // of InterposeWaits
}

// A pool is the connections to one server. After a call that got no answer it is retired: later calls
// go over a new pool, and the old one is closed when no call is in flight on it.
type pool struct {
	cli        *redis.Client
	addr       string
	inFlight   [sides]chan struct{} // an element for each call that may take a connection, and for each that is kept
	onRetired  chan struct{}        // closes when it is retired; link.mu guards that
	reached    atomic.Bool          // a connection of it was ready for calls; until then none has come to a server
	promptness *promptness          // of all pools to this server

	// Guarded by link.mu.
	kept    [sides]int // elements of inFlight that are no calls, so that there are fewer connections
	refused [sides]int // of kept, those for which the server had no room
	putAt   time.Time  // when a call of a consumer ended, or one connection more was allowed
}

// A side has connections that the other side cannot use up. So a lease is renewed in time however many sends wait.
type side int

const (
	producing side = iota // and looking
	consuming
	sides
)

func (p *pool) retired() bool {
	select {
	case <-p.onRetired:
		return true
	default:
		return false
	}
}

// links are those that are in use, by their clients.
var links = struct {
	mu       sync.Mutex
	byClient map[redis.UniversalClient]*Link
}{byClient: map[redis.UniversalClient]*Link{}}

// Linkable says whether a client is of a kind that can have a link: one that tells its options.
func Linkable(cli redis.UniversalClient) bool {
	switch cli.(type) {
	case *redis.Client, *redis.ClusterClient:
		return true
	}
	return false
}

// linkOf returns the link of a client for one call, which releases it; nil if the client can have none.
func linkOf(cli redis.UniversalClient) *Link { return useLink(cli, 0) }

// useLink is linkOf, for so many consumers, each of which calls releaseByConsumer when it ends.
func useLink(cli redis.UniversalClient, consumers int) *Link {
	if !Linkable(cli) {
		return nil
	}
	links.mu.Lock()
	defer links.mu.Unlock()
	l := links.byClient[cli]
	if l == nil {
		l = &Link{owner: cli, pools: map[string]*pool{}, promptness: map[string]*promptness{},
			room: serverRoom{before: map[string][sides]int{}}}
		if node, ok := cli.(*redis.Client); ok {
			l.node.Store(node)
		}
		links.byClient[cli] = l
	}
	l.users++
	l.consumers += consumers
	return l
}

// release gives a link back. It stays open for linkIdle, for the next call.
func (l *Link) release() {
	links.mu.Lock()
	defer links.mu.Unlock()
	l.users--
	l.lastUsed = time.Now()
	if l.users == 0 && l.expiry == nil {
		l.expiry = time.AfterFunc(linkLook, l.expire)
	}
}

// expire closes the link if it has been idle for linkIdle, or for linkLook and the user has closed the client: a program
// that makes a client for each of its jobs would keep the connections of thousands.
func (l *Link) expire() {
	closed := l.ownerClosed()
	links.mu.Lock()
	defer links.mu.Unlock()
	idle := time.Since(l.lastUsed)
	most := linkIdle
	if closed {
		most = linkLook
	}
	switch {
	case l.users > 0:
		l.expiry = nil
	case idle < most:
		l.expiry.Reset(min(linkIdle-idle, linkLook))
	default:
		l.close()
	}
}

// releaseByConsumer gives back the link of a consumer. The last one closes it, unless another call has used it lately.
func (l *Link) releaseByConsumer() {
	links.mu.Lock()
	defer links.mu.Unlock()
	l.users--
	l.consumers--
	if l.users == 0 && l.expiry == nil {
		l.close()
	}
}

// ConsumersNow is how many consumers use the link.
func (l *Link) ConsumersNow() int {
	links.mu.Lock()
	defer links.mu.Unlock()
	return l.consumers
}

// close closes the link, with links.mu held and nobody using it.
func (l *Link) close() {
	delete(links.byClient, l.owner)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.room.end()
	for _, p := range l.pools {
		l.retire(p)
	}
}

// losesTrust tells errors after which a connection is not trusted: no answer, or the answer of a primary that was replaced.
func losesTrust(err error) bool {
	var answer redis.Error
	return err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errLeft) && !errors.Is(err, ErrServerFull) && !errors.As(err, &answer) || Says(err, "READONLY")
}

// ErrAllInUse: a call has waited for a connection of the link until its context ended.
var ErrAllInUse = fmt.Errorf("all %d connections to the server are in use", linkPool)

// take returns the pool of a server for one call, as soon as the pool has a connection to spare. The call that has waited
// longest comes first.
func (l *Link) take(ctx context.Context, addr string, of side) (*pool, error) {
	for {
		p, taken := l.tryTake(addr, of)
		if taken {
			return p, nil
		}
		var stuck <-chan time.Time
		if of == consuming {
			stuck = time.After(stuckAfter)
		}
		select {
		case p.inFlight[of] <- struct{}{}:
			if !p.retired() {
				return p, nil
			}
			l.put(p, of, time.Time{}, nil)
		case <-stuck:
			l.widen(p)
		case <-p.onRetired: // calls on it may hang for long
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", ErrAllInUse, ctx.Err())
		}
	}
}

// tryTake is take that does not wait.
func (l *Link) tryTake(addr string, of side) (p *pool, taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p = l.pools[addr]; p == nil {
		p = l.newPool(addr)
	}
	select {
	case p.inFlight[of] <- struct{}{}:
		return p, true
	default:
		return p, false
	}
}

// newPool makes a pool for a server, with mu held.
func (l *Link) newPool(addr string) *pool {
	p := &pool{addr: addr, onRetired: make(chan struct{}), promptness: l.promptness[addr]}
	if p.promptness == nil {
		p.promptness = new(promptness)
		l.promptness[addr] = p.promptness
	}
	opt := l.options(addr)
	opt.OnConnect = p.onConnect(opt.OnConnect)
	p.cli = redis.NewClient(opt)
	for i := range p.inFlight {
		p.inFlight[i] = make(chan struct{}, linkPool)
	}
	for range linkPool - l.pace.connections() {
		p.keep(consuming)
	}
	l.refuseAsBefore(p)
	for _, hook := range l.hooks {
		p.cli.AddHook(hook)
	}
	if l.closed {
		close(p.onRetired)
	} else {
		l.pools[addr] = p
	}
	return p
}

// Interpose puts a hook between the library's own connections beside a client and their servers. It is for tests of lost, late and
// refused calls, which have no other way in: these connections do not have the client's hooks. The link stays until release.
func Interpose(cli redis.UniversalClient, hook redis.Hook) (release func()) {
	l := linkOf(cli)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, hook)
	for _, p := range l.pools {
		p.cli.AddHook(hook)
	}
	return l.release
}

// InterposeWaits is Interpose for the connections that wait for wake-ups.
func InterposeWaits(cli redis.UniversalClient, hook redis.Hook) (release func()) {
	l := linkOf(cli)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waitHooks = append(l.waitHooks, hook)
	return l.release
}

// put gives a pool back after a call with this error, which may retire the pool. begun is when a consumer's call began to use
// the pool; zero: it did not.
func (l *Link) put(p *pool, of side, begun time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrServerFull) && !p.retired() {
		p.kept[of]++ // the element of this call
		p.refused[of]++
		l.probeLater()
	} else {
		<-p.inFlight[of]
	}
	if of == consuming {
		now := time.Now()
		p.putAt = now
		if err == nil {
			l.answeredAt = now
		}
		if err == nil && !begun.IsZero() {
			l.pace.note(now.Sub(begun))
		}
		for p.kept[of]-p.refused[of] > linkPool-l.pace.connections() {
			p.free(of)
		}
	}
	if err != nil && losesTrust(err) {
		l.retire(p)
	}
	p.closeIdle()
}

// retire has a pool closed as soon as no call is in flight on it, with mu held. A pool that is retired stays as it is.
func (l *Link) retire(p *pool) {
	if p.retired() {
		return
	}
	delete(l.pools, p.addr)
	l.room.before[p.addr] = p.refused
	close(p.onRetired)
	p.closeIdle()
}

// closeIdle closes a retired pool if no call is in flight on it, with link.mu held.
func (p *pool) closeIdle() {
	if p.retired() && len(p.inFlight[producing])-p.kept[producing]+len(p.inFlight[consuming])-p.kept[consuming] == 0 {
		_ = p.cli.Close() // nobody can use this error
	}
}

const (
	// linkPool is how many calls of a side have a connection to one server at most; connections are made when they are needed.
	linkPool = 64
	// linkFew is how many consumers have if the server is near: more would not bring more through it. stuckAfter is when
	// they get one more, if no call has ended for so long.
	linkFew    = 6
	stuckAfter = 250 * time.Millisecond
	// LinkAge is how old a connection gets, give or take a fifth: it may lead to a primary that was replaced and does
	// not know it.
	LinkAge = 10 * time.Second
	// linkAgeSentinel is LinkAge with Sentinel: a planned failover leaves the old primary alive. It takes and hands
	// out messages for some 8 s more, and forgets all of that when it becomes a replica.
	linkAgeSentinel = time.Second
	// sentinelAddr is the address in the options of every client that asks sentinels (go-redis 9.22).
	sentinelAddr = "FailoverClient"
	// linkIdle is how long a link stays open unused, and linkLook how often it looks meanwhile whether its client is closed.
	linkIdle = 10 * time.Second
	linkLook = time.Second
	// linkLimit bounds what no context bounds, such as a handshake that nobody waits for any more.
	linkLimit = time.Minute
)

// options returns those of the user, changed for connections of the library's own, with mu held. The link has a node.
func (l *Link) options(addr string) *redis.Options {
	opt := *l.node.Load().Options()
	age := LinkAge
	if opt.Addr == sentinelAddr {
		age = linkAgeSentinel
	}
	if addr != "" {
		opt.Addr, opt.NodeAddress = addr, addr
	}
	opt.Dialer, opt.OnConnect = l.dialer(opt.Dialer), l.onConnect(opt.OnConnect)
	opt.DialerRetries, opt.MaxRetries = 1, -1 // a repeat is the library's to make
	opt.ContextTimeoutEnabled = true          // the context is what bounds a call
	opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = linkLimit, linkLimit, linkLimit
	connections := (int(sides) + 1) * linkPool // of each side, and where sends wait for replicas in vain (ReplicatedCall.Exec)
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

// Beside is what another package keeps with a link. The first call makes it.
func (l *Link) Beside(make func() any) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		l.kept = make()
	}
	return l.kept
}
