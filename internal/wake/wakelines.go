package wake

import (
	"context"
	"slices"
	"sync"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/redis/go-redis/v9"
)

// This file puts queues on lines.

// wakeLines has the lines of one link. The zero value has none.
type wakeLines struct {
	mu        sync.Mutex // guards the fields below, and those of lines and listeners
	all       []*wakeLine
	noUnblock bool // the server, or a proxy, refuses CLIENT ID or CLIENT UNBLOCK
}

// linesOf are the lines of a link.
func linesOf(l *link.Link) *wakeLines {
	return l.Beside(func() any { return new(wakeLines) }).(*wakeLines)
}

// join puts a listener on a line, with mu held: on one of its own while there are fewer than maxWakeLines.
func (ls *wakeLines) join(l *WakeListener) {
	_, shared := l.store.Cli.(*redis.Client)
	if shared && len(ls.all) == maxWakeLines {
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
