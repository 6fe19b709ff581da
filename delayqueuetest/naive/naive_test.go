// Package naive has ten services whose handlers make a mistake that users of other queues made in production, and for
// each service a correct one. A scenario is such a pair, with the world that both work on, what happens in that world,
// and a check that says in plain words what is wrong with it afterwards. It names the public report of the mistake.
// The package has tests only. It imports the library, its rig and what the library's tests use.
//
// Both services of a scenario pass on an ordinary rig, where nothing goes wrong: see TestWithoutMisfortune. A rig that
// plays misfortunes must find the naive service at some seed, by any of the misfortunes that the scenario names. The
// correct service must pass at every seed.
package naive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/delayqueuetest"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

var scenarios = []scenario{charging, progress, mailing, feeds, statuses, reviews, reports, shipments, syncs, moderation}

// A scenario is a service that is there twice: as it was written, and as it should be.
type scenario struct {
	name    string
	source  source
	mistake string        // of the naive service, in one sentence
	found   []misfortune  // any of them finds the mistake
	queues  []string      // all queues of the service
	points  []string      // where a process may die: each is reached by the naive service
	start   time.Time     // when the clock begins; zero: any instant
	lasts   time.Duration // how long the test moves the clock

	// naive and correct set the handlers of a process, and return what happens in the world. A process that starts
	// later, after a death, sets the handlers again, and its steps are ignored.
	naive, correct func(p *process) []step

	check func(w *world) error // what is wrong in the end
}

// A source is the public report of a mistake.
type source struct{ url, title string }

// A misfortune is something that happens to handlers in production.
type misfortune string

// The misfortunes. A correct service bears each of them, but forgets only if its scenario names it. A restart of all
// consumers is dies for each of them. A limit that is hit, and a schedule that fires too late, make a message late.
const (
	again      misfortune = "a message is delivered again although its handler succeeded, because the ack was lost"
	dies       misfortune = "the process dies at a point, and the message is delivered again after its lease"
	beside     misfortune = "two handlers run at once, of two messages or of one whose lease was lost"
	late       misfortune = "a message is delivered minutes after it was due"
	outOfOrder misfortune = "a message is delivered before a neighbour that was sent earlier"
	replyLost  misfortune = "a send stores its message and returns an error that says: may have been stored"
	forgets    misfortune = "Redis forgets what it stored in the last second"
)

// A step is what somebody outside of the queues does: a customer, a partner, a cron job. Whoever takes the step takes
// it again if it returns an error. No process dies within a step.
type step struct {
	after time.Duration // since the clock began
	do    func(ctx context.Context) error
}

// A sender is what a service sends with: a *delayqueue.Publisher, or a rig's.
type sender interface {
	Send(ctx context.Context, payload string, opts ...delayqueue.MsgOption) (*delayqueue.MessageInfo, error)
	InterceptKey(ctx context.Context, key string) (*delayqueue.InterceptResult, error)
}

// A process is one process of a service. The world outlives it.
type process struct {
	*world
	queue  func(name string) *delayqueue.DelayQueue // makes a queue that this process consumes
	sender func(name string) sender
	point  func(name string) // is called between the steps of handlers; nil in production
}

// at says where the handler is. The process may die here, so at may not return, and then nothing that the handler has
// deferred may run. It may also take minutes, while other handlers run. A handler holds no lock of the world here.
func (p *process) at(point string) {
	if p.point != nil {
		p.point(point)
	}
}

// held is how long a key stays taken after the ack, which is longer than any scenario's caller tries.
const held = 24 * time.Hour

// sends makes a step that may be taken more than once: the key makes one message of all its sends.
func sends(to sender, payload, key string, opts ...delayqueue.MsgOption) func(ctx context.Context) error {
	opts = append(slices.Clip(opts), delayqueue.WithKey(key, delayqueue.Keep), delayqueue.WithKeyHold(held))
	return func(ctx context.Context) error {
		_, err := to.Send(ctx, payload, opts...)
		return err
	}
}

// rig makes a rig whose clock begins when the scenario says.
func (s scenario) rig(t *testing.T) *delayqueuetest.Rig {
	t.Helper()
	if s.start.IsZero() {
		return delayqueuetest.New(t)
	}
	return delayqueuetest.NewAt(t, s.start)
}

// play runs one service of a scenario in a new world on an ordinary rig, and returns what check says in the end.
func (s scenario) play(t *testing.T, service func(p *process) []step, point func(name string)) error {
	t.Helper()
	rig := s.rig(t)
	begun := rig.Now()
	p := &process{
		world:  newWorld(rig.Now),
		queue:  func(name string) *delayqueue.DelayQueue { return rig.Queue(name) },
		sender: func(name string) sender { return delayqueue.NewPublisher(name, rig.Client()) },
		point:  point,
	}
	steps := service(p)
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.after, b.after) })
	for _, next := range steps {
		rig.AdvanceTo(begun.Add(next.after))
		testkit.Must(t, next.do(t.Context()))
	}
	rig.AdvanceTo(begun.Add(s.lasts))
	rig.RequireEmpty()
	for _, name := range s.queues {
		check.Assert(t, rig.Client(), "dq", name)
	}
	return s.check(p.world)
}

// TestWithoutMisfortune: if nothing goes wrong, no check tells a naive service from a correct one.
func TestWithoutMisfortune(t *testing.T) {
	for _, s := range scenarios {
		for which, service := range map[string]func(p *process) []step{"naive": s.naive, "correct": s.correct} {
			t.Run(fmt.Sprintf("%s/%s", s.name, which), func(t *testing.T) {
				t.Parallel()
				var reached sync.Map
				err := s.play(t, service, func(name string) { reached.Store(name, true) })
				if err != nil {
					t.Error(err)
				}
				reached.Range(func(name, _ any) bool {
					if !slices.Contains(s.points, name.(string)) {
						t.Errorf("the scenario does not name the point %q", name)
					}
					return true
				})
				for _, name := range s.points {
					if _, ok := reached.Load(name); !ok && which == "naive" {
						t.Errorf("the point %q is never reached", name)
					}
				}
			})
		}
	}
}

// TestChecksSeeAnEmptyWorld: in a world in which nothing was done, each check says so.
func TestChecksSeeAnEmptyWorld(t *testing.T) {
	for _, s := range scenarios {
		if s.check(newWorld(time.Now)) == nil {
			t.Errorf("%s: nothing was done, and the check finds nothing wrong", s.name)
		}
	}
}

// TestSources: each scenario says what the mistake is, who reported it and what finds it, and no two have one source.
func TestSources(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios {
		if !strings.HasPrefix(s.source.url, "https://") || s.source.title == "" || s.mistake == "" || len(s.found) == 0 ||
			seen[s.source.url] || seen[s.name] {
			t.Errorf("%s: %+v, %q, found by %q", s.name, s.source, s.mistake, s.found)
		}
		seen[s.source.url], seen[s.name] = true, true
	}
}
