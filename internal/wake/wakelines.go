package wake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/redis/go-redis/v9"
)

// This file puts queues on lines.

// wakeLines has the lines of one link. The zero value has none.
type wakeLines struct {
	mu        sync.Mutex // guards the fields below, and those of lines and listeners
	all       []*wakeLine
	fullAt    time.Time // when the server had no room for one more
	noUnblock bool      // the server, or a proxy, refuses CLIENT ID or CLIENT UNBLOCK
}

// linesOf are the lines of a link.
func linesOf(l *link.Link) *wakeLines {
	return l.Beside(func() any { return new(wakeLines) }).(*wakeLines)
}

// join puts a listener on a line, with mu held: on one of its own while there are fewer than maxWakeLines.
func (ls *wakeLines) join(l *WakeListener) {
	_, shared := l.store.Cli.(*redis.Client)
	if shared && (len(ls.all) == maxWakeLines || len(ls.all) > 0 && time.Since(ls.fullAt) < link.LinkAge) {
		l.line = slices.MinFunc(ls.all, func(a, b *wakeLine) int { return len(a.listeners) - len(b.listeners) })
		l.line.listeners = append(l.line.listeners, l)
		return
	}
	w := &wakeLine{lines: ls, changed: conc.NewSignal(), retryNow: conc.NewSignal(), ended: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.listeners = []*WakeListener{l}
	if shared {
		ls.all = append(ls.all, w)
	} else {
		w.alone = l.store.Link
	}
	l.line = w
	go w.run()
}

// leave takes a listener off its line, with mu held, and says whether it was the last.
func (ls *wakeLines) leave(l *WakeListener) (last bool) {
	w := l.line
	w.listeners = slices.DeleteFunc(w.listeners, func(other *WakeListener) bool { return other == l })
	l.line, l.asking = nil, false
	if last = len(w.listeners) == 0; last {
		ls.all = slices.DeleteFunc(ls.all, func(other *wakeLine) bool { return other == w })
	}
	return last
}

// merge moves the listeners of a line for which the server has no room to a line that works, with mu held. It reports whether there is one.
func (ls *wakeLines) merge(w *wakeLine) bool {
	i := slices.IndexFunc(ls.all, func(other *wakeLine) bool { return other != w && other.call != nil })
	if i < 0 || len(w.listeners) == 0 {
		return false
	}
	to := ls.all[i]
	ls.fullAt = time.Now()
	for _, l := range w.listeners {
		l.line = to
	}
	to.interrupt(w.listeners[0].store)
	to.listeners, w.listeners = append(to.listeners, w.listeners...), nil
	ls.all = slices.DeleteFunc(ls.all, func(other *wakeLine) bool { return other == w })
	w.end()
	return true
}
