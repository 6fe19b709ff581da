package web

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
)

// A verdict is what internal/health thinks of something, in the reader's words. The name of its level is a class of the stylesheet.
type verdict struct {
	Level health.Level
	Text  string
}

func (l *language) verdict(q *health.Look) verdict {
	v := q.Judge()
	return verdict{v.Level, l.text(v.Text)}
}

// text writes what internal/health says.
func (l *language) text(t health.Text) string {
	return t.In(func(english string) string { return l.say(english) }, func(arg any) string {
		switch arg := arg.(type) {
		case time.Duration:
			return l.duration(arg)
		case time.Time:
			return l.clock(arg)
		case int64:
			return l.number(arg)
		case error:
			return l.trouble(arg)
		}
		return shown(fmt.Sprint(arg))
	})
}

// clock is an instant in the middle of words.
func (l *language) clock(t time.Time) string {
	if time.Until(t).Abs() > 12*time.Hour {
		return l.clockOf(t, "2006-01-02 15:04")
	}
	return l.clockOf(t, "15:04")
}

// gone says that a queue is not there, which is no trouble.
func gone(q *health.Look) bool { return errors.Is(q.Err, delayqueue.ErrNoQueue) }
