package delayqueue

import (
	"context"
	"fmt"
	"log/slog"
)

// contained makes a logger out of the user's. A panic in the user's handler loses that record, and
// ends neither the goroutine that had something to say nor the process.
func contained(log *slog.Logger) *slog.Logger {
	if _, ok := log.Handler().(containedHandler); ok {
		return log
	}
	return slog.New(containedHandler{log.Handler()})
}

type containedHandler struct{ user slog.Handler }

func (h containedHandler) Enabled(ctx context.Context, level slog.Level) (ok bool) {
	defer func() { _ = recover() }() // there is nowhere to say it
	return h.user.Enabled(ctx, level)
}

func (h containedHandler) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the log's handler panicked: %v", p)
		}
	}()
	return h.user.Handle(ctx, r)
}

func (h containedHandler) WithAttrs(attrs []slog.Attr) (with slog.Handler) {
	with = h
	defer func() { _ = recover() }() // then without them
	return containedHandler{h.user.WithAttrs(attrs)}
}

func (h containedHandler) WithGroup(name string) (with slog.Handler) {
	with = h
	defer func() { _ = recover() }()
	return containedHandler{h.user.WithGroup(name)}
}

// attrs are what every record about a message says of it.
func (m *Message) attrs() slog.Attr {
	attrs := []any{slog.String("id", m.ID), slog.Int("delivery", m.Delivery)}
	if m.Key != "" {
		attrs = append(attrs, slog.String("key", m.Key))
	}
	return slog.Group("message", attrs...)
}
