package link

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// This file says how long an attempt waits for its answer. Only answers teach that. Silence says nothing of how long the
// next answer takes, so an attempt never waits longer because earlier attempts were in vain: if answers were not late before, the
// attempt that waits when the server is back is at most a second old. Only the time for the bytes of large calls grows by silence. On a slow
// line some attempts are listened to after they were given up, and later attempts wait twice as long as their answers took. How fast a line
// is, only large calls tell.

// A promptness is what is known of the way to one server. The zero value knows nothing. It is safe for concurrent use.
type promptness struct {
	uneasy atomic.Bool // an attempt was in vain, or the last answer took long; otherwise nobody measures

	mu     sync.Mutex              // guards the fields below
	slow   time.Duration           // how long the last answer took, without the time for its bytes; 0: not long
	taught time.Time               // when the attempt with that answer began
	strays [len(strayLives)]*stray // those that are listened to

	speed lineSpeed
}

// AttemptTimeout bounds an attempt, besides the time for its bytes. The client's ReadTimeout bounds it if that
// is shorter, and for a consumer a quarter of a lease. Only tests change it.
var AttemptTimeout = time.Second

const (
	// minAttemptTimeout is the least that AttemptTimeout and its bounds come to.
	minAttemptTimeout = 50 * time.Millisecond
	// maxAttemptTimeout is how long an attempt waits at most on a slow line, besides the time for its bytes.
	maxAttemptTimeout = 30 * time.Second
	// maxConsumerAttemptTimeout is how long an attempt of a consumer waits at most, or a lease if that is longer.
	maxConsumerAttemptTimeout = 5 * time.Second
	// AttemptBytesPerSecond is the speed that a connection is expected to have. It is halved for each large call in a row
	// that was written in vain, so that a slow line is not filled with repeats.
	AttemptBytesPerSecond = 1 << 20
	maxHalvings           = 5
	// largeCall is how many bytes a call has at least that tells something of the speed.
	largeCall = AttemptBytesPerSecond / int(time.Second/minAttemptTimeout)
	// speedLife is for how long the speed is remembered, besides the time for one large call.
	speedLife = 30 * time.Second
)

// strayLives are how long attempts are listened to in all, if they are not answered in time: three at most for a server.
// There is always a young one soon, for what was dialled in an outage may never be answered.
var strayLives = [...]time.Duration{maxAttemptTimeout, maxAttemptTimeout / 3, maxAttemptTimeout / 9}

// An Effort is what one attempt is about.
type Effort struct {
	Bytes int           // of its arguments, and of its reply as far as that is known
	Extra time.Duration // how long the server may take for it
	Call  callFunc
}

// attemptBounds say how long an attempt waits.
type attemptBounds struct {
	first    time.Duration // for a connection that is ready for calls, and for a first sign of the server
	whole    time.Duration // for the answer
	bytes    int           // of the effort
	halvings int           // of the speed, when it began
}

// bounds returns those of an attempt that begins now.
func (p *promptness) bounds(s *Server, e Effort) attemptBounds {
	b := attemptBounds{first: max(s.AttemptTimeout, minAttemptTimeout), bytes: e.Bytes, halvings: p.speed.now()}
	if p.uneasy.Load() {
		p.mu.Lock()
		b.first = max(b.first, min(2*p.slow, maxAttemptTimeout))
		p.mu.Unlock()
	}
	b.whole = b.first + transfer(e.Bytes, b.halvings)
	if s.lease > 0 {
		most := max(s.lease, maxConsumerAttemptTimeout)
		b.first, b.whole = min(b.first, most), min(b.whole, most)
	}
	b.whole += e.Extra
	return b
}

// answered notes an answer to an attempt at a server.
func (p *promptness) answered(s *Server, e Effort, begun time.Time) {
	took := time.Since(begun) - e.Extra
	took -= transfer(e.Bytes, p.speed.answered(e.Bytes, begun, took-max(s.AttemptTimeout, minAttemptTimeout)/2))
	var over []*stray // answers come in time: these have nothing more to teach
	defer func() {
		for _, a := range over {
			a.put()
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	if begun.Before(p.taught) {
		return // a server that stood still answers all at last; what began later says how it is now
	}
	p.taught, p.slow = begun, 0
	if took > max(s.AttemptTimeout, minAttemptTimeout)/2 {
		p.slow = took
	}
	if p.uneasy.Store(p.slow > 0); p.slow == 0 {
		over = p.takeLeft()
	}
}

// inVain notes that an attempt with these bounds was not answered in time. written: its call was, to a connection that works.
func (p *promptness) inVain(b attemptBounds, written bool) {
	if written {
		p.speed.inVain(b)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uneasy.Store(true)
}

// A lineSpeed is what large calls have told of the speed of a line: how often AttemptBytesPerSecond is halved. Small ones have
// hardly any time for their bytes, so their answers tell nothing, and it costs them nothing what is expected.
type lineSpeed struct {
	halvings atomic.Int32

	mu        sync.Mutex // guards the fields below, and changes of halvings
	largest   int        // bytes of the largest call that was in vain since
	taught    time.Time  // when the attempt began whose answer told it
	forgotten time.Time  // when all of that will be
}

// transfer is the time for so many bytes.
func transfer(bytes, halvings int) time.Duration {
	return time.Duration(bytes) * time.Second / AttemptBytesPerSecond << halvings
}

// now is how often the speed is halved.
func (l *lineSpeed) now() int {
	if l.halvings.Load() == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().After(l.forgotten) {
		l.set(0)
	}
	return int(l.halvings.Load())
}

// set notes the halvings, with mu held.
func (l *lineSpeed) set(halvings int) {
	l.halvings.Store(int32(halvings))
	if halvings == 0 {
		l.largest = 0
	}
	l.forgotten = time.Now().Add(speedLife + transfer(l.largest, halvings))
}

// inVain notes that a call was written in vain.
func (l *lineSpeed) inVain(b attemptBounds) {
	if b.bytes < largeCall {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := int(l.halvings.Load()); h == b.halvings { // of all that began together one counts
		l.largest = max(l.largest, b.bytes)
		l.set(min(h+1, maxHalvings))
	}
}

// answered notes that the answer to a call of so many bytes took so long, and returns how many of the halvings it needed.
func (l *lineSpeed) answered(bytes int, begun time.Time, took time.Duration) (needed int) {
	if bytes < largeCall || l.now() == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for needed < int(l.halvings.Load()) && transfer(bytes, needed) < took {
		needed++
	}
	if bytes >= l.largest/2 && !begun.Before(l.taught) {
		l.taught = begun
		l.set(needed)
	}
	return needed
}

// A stray is an attempt that may be listened to after it was given up.
type stray struct {
	left bool   // it was given up
	put  func() // gives its pool back, once, which ends it if no other call uses that pool
}

// listen returns how long an attempt is listened to in all, and what forgets it.
func (p *promptness) listen(a *stray, whole time.Duration) (life time.Duration, forget func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, life := range strayLives {
		if life > whole && p.strays[i] == nil {
			p.strays[i] = a
			return life, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.strays[i] == a {
					p.strays[i] = nil
				}
			}
		}
	}
	return whole, func() {}
}

// leave notes that an attempt was given up.
func (p *promptness) leave(a *stray) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.left = true
}

// takeLeft takes out those that were given up, with mu held.
func (p *promptness) takeLeft() (all []*stray) {
	for i, a := range p.strays {
		if a != nil && a.left {
			all, p.strays[i] = append(all, a), nil
		}
	}
	return all
}

// A standing is how an attempt stands that is made apart. It is in the attempt's context.
type standing struct {
	left  atomic.Bool // nobody waits for it any more: whoever makes its connection makes no call over it then
	heard atomic.Bool // its own connection was made for it, or has answered the first command of several
}

type standingKey struct{}

// standingOf is that of the attempt with this context. For one that is made plainly nobody looks at it.
func standingOf(ctx context.Context) *standing {
	if s, ok := ctx.Value(standingKey{}).(*standing); ok {
		return s
	}
	return new(standing)
}

// apart makes an attempt in another goroutine, and waits for it no longer than it may take, or until ctx ends. reached says
// whether a connection to the server was ready for calls. What takes the server its time needs a sign of its own connection:
// others may be answered while that is dead.
func (s *Server) apart(ctx context.Context, p *promptness, e Effort, reached func() bool, put func(err error),
	call func(ctx context.Context) error) error {
	b := p.bounds(s, e)
	var once sync.Once
	a := &stray{put: func() { once.Do(func() { put(errUnanswered) }) }}
	life, forget := p.listen(a, b.whole)
	var state standing
	first, heard := b.first, reached
	if e.Extra > 0 { // all is written before the first answer is read
		first, heard = min(first+transfer(b.bytes, b.halvings), b.whole), state.heard.Load
	}
	inner, cancel := context.WithTimeout(context.WithValue(ctx, standingKey{}, &state), life)
	result := make(chan error, 1)
	begun := time.Now()
	go func() {
		err := error(errUnanswered) // if the call ends its goroutine
		defer func() {
			cancel()
			forget()
			once.Do(func() { put(err) })
			switch {
			case err == nil || AnswerOf(err) != "":
				p.answered(s, e, begun)
			case errors.Is(err, errLeft) && !errors.Is(err, ErrRevoked):
				p.answered(s, Effort{}, begun) // it has a connection, and nothing was written over that
			}
			result <- err
		}()
		defer contain(&err)
		err = call(inner)
	}()
	err, over := resultBefore(ctx, first, result)
	if !over && ctx.Err() == nil && b.whole > first && heard() {
		err, over = resultBefore(ctx, b.whole-first, result)
	}
	if !over {
		state.left.Store(true)
		p.leave(a)
		err, over = resultBefore(context.Background(), awaitGrace, result) // which says why it was not done
		if over = over && !errors.Is(err, errLeft); !over {
			err = errUnanswered
		}
	}
	if ctx.Err() == nil && TimedOut(err) {
		p.inVain(b, heard())
	}
	return err
}

// resultBefore waits for a result until ctx ends, for so long at most.
func resultBefore(ctx context.Context, d time.Duration, result <-chan error) (err error, ok bool) {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case err := <-result:
		return err, true
	case <-ctx.Done():
	case <-late.C:
	}
	return nil, false
}

// SilentAfter is when a server counts as silent that has not answered any consumer on a link. Only tests change it.
var SilentAfter = 750 * time.Millisecond

// A SilenceCtx is of calls that are not waited for after its end, however short they are.
type SilenceCtx struct{ context.Context }

// UntilSilent is ctx until the server counts as silent: it has answered nothing since begun, nor to a call that is made now.
func (l *Link) UntilSilent(ctx context.Context, begun time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var look func()
	look = func() {
		last := begun
		if l != nil {
			l.mu.Lock()
			if l.answeredAt.After(last) {
				last = l.answeredAt
			}
			l.mu.Unlock()
		}
		if left := SilentAfter - time.Since(last); left <= 0 {
			cancel()
		} else if ctx.Err() == nil {
			time.AfterFunc(left, look)
		}
	}
	time.AfterFunc(max(SilentAfter-time.Since(begun), SilentAfter/3), look)
	return SilenceCtx{ctx}, cancel
}
