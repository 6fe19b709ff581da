package message

import (
	"cmp"
	"log/slog"
	"time"
)

// A Delivered is a message as a handler gets it. Message of the root package has the same fields, so a *Delivered converts to
// a *Message.
type Delivered struct {
	ID      string
	Key     string
	Payload string
	Parts   []string
	Headers map[string]string
	Lane    string
	Due     time.Time

	Delivery   int
	Failures   int
	MaxRetries int

	CountdownLeft int
}

// Delivered is the message of an envelope in one delivery.
func (e *Envelope) Delivered(id string, number, failures int) Delivered {
	return Delivered{
		ID: id, Key: cmp.Or(e.Key, e.Group.Key), Payload: e.Payload, Parts: e.allParts(), Headers: e.Headers,
		Lane: e.Lane.Name, Due: time.UnixMicro(e.Due),
		Delivery: number, Failures: failures, MaxRetries: e.Retries,
	}
}

// Attrs names the message in a record of the log.
func (d *Delivered) Attrs() slog.Attr {
	attrs := []any{slog.String("id", d.ID), slog.Int("delivery", d.Delivery)}
	if d.Key != "" {
		attrs = append(attrs, slog.String("key", d.Key))
	}
	return slog.Group("message", attrs...)
}
