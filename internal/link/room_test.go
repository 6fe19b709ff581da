package link

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestFullServerIsNotDialledMore: neither calls that take long, nor one that gets no answer, make a link try for more connections
// than the server has room for.
func TestFullServerIsNotDialledMore(t *testing.T) {
	t.Parallel()
	l := linkOf(queuetest.NewBase(t).Client())
	defer l.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.room.end()
	p := l.newPool("")
	widens := func() int {
		p.putAt = time.Now().Add(-time.Hour)
		before := p.kept[consuming]
		l.mu.Unlock()
		defer l.mu.Lock()
		l.widen(p)
		return before - p.kept[consuming] // nobody else has it
	}
	if n := widens(); n != 1 {
		t.Errorf("widened by %d", n)
	}
	for of, n := range map[side]int{producing: linkPool, consuming: 3} {
		for range n {
			p.keep(of)
			p.refused[of]++
		}
	}
	if n := widens(); n != 0 {
		t.Errorf("widened by %d at a full server", n)
	}
	for range 2 {
		l.retire(p)
		p = l.newPool("")
		if p.refused != [sides]int{linkPool - 1, 3} || p.kept != [sides]int{linkPool - 1, linkPool - linkFew + 3} ||
			len(p.inFlight[consuming]) != p.kept[consuming] {
			t.Errorf("the next pool has %d places that are empty, of %d that are kept", p.refused, p.kept)
		}
		if l.room.probe == nil {
			t.Error("nobody will fill them")
		}
	}
	l.room.end()
	for range linkPool + 2 {
		l.fillPlace()
	}
	if p.refused != [sides]int{} || p.kept != [sides]int{0, linkPool - linkFew} {
		t.Errorf("%d are empty at last, of %d", p.refused, p.kept)
	}
	l.retire(p)
	if p = l.newPool(""); p.refused != [sides]int{} {
		t.Errorf("%d are empty afterwards", p.refused)
	}
	l.retire(p)
}

// TestPace: consumers have few connections to a near server, and more the farther it is.
func TestPace(t *testing.T) {
	t.Parallel()
	for fastest, want := range map[time.Duration]int{
		50 * time.Microsecond: linkFew, 999 * time.Microsecond: linkFew,
		time.Millisecond: 16, 3 * time.Millisecond: 48, time.Second: linkPool,
	} {
		var p pace
		for range paceLeast - 1 {
			p.note(time.Second)
		}
		if n := p.connections(); n != linkFew {
			t.Errorf("%d connections after %d calls", n, paceLeast-1)
		}
		p.note(fastest)
		if n := p.connections(); n != want {
			t.Errorf("%v: %d connections, want %d", fastest, n, want)
		}
		for range 2 * paceCalls {
			p.note(time.Second)
		}
		if n := p.connections(); n != linkPool {
			t.Errorf("%d connections when the server is far at last", n)
		}
	}
}

// TestLinkWidens: consumers whose calls all take long get more connections, one after the other.
func TestLinkWidens(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	cli := f.Client()
	l := linkOf(cli)
	defer l.release()
	var p *pool
	for range linkFew + 2 {
		var err error
		p, err = l.take(queuetest.Within(t, queuetest.Patience), "", consuming)
		f.Must(err)
	}
	for range linkFew + 2 {
		l.put(p, consuming, time.Time{}, nil)
	}
}
