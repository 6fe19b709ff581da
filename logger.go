package delayqueue

import "log/slog"

// attrs are what every record about a message says of it.
func (m *Message) attrs() slog.Attr {
	attrs := []any{slog.String("id", m.ID), slog.Int("delivery", m.Delivery)}
	if m.Key != "" {
		attrs = append(attrs, slog.String("key", m.Key))
	}
	return slog.Group("message", attrs...)
}
