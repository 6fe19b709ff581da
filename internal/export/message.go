// Package export writes messages, and what else a list has, as JSON and as CSV, for cmd/ and web/ alike. It imports the
// face of the library, ops, internal/message and the standard library, and has no state. A text of a message never
// becomes a formula of a spreadsheet.
package export

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A Message is one as it is exported.
type Message struct {
	ID         string            `json:"id"`
	Key        string            `json:"key,omitempty"`
	State      string            `json:"state"`
	Sent       *time.Time        `json:"sent,omitempty"` // by the sender's clock
	Due        time.Time         `json:"due"`
	Lane       string            `json:"lane,omitempty"`
	LaneWidth  int               `json:"lane_width,omitempty"`
	TTL        float64           `json:"ttl_seconds,omitempty"`
	Deadline   *time.Time        `json:"deadline,omitempty"`
	Timeout    float64           `json:"timeout_seconds,omitempty"` // negative: none
	Retention  float64           `json:"retention_seconds,omitempty"`
	Countdown  int               `json:"countdown,omitempty"`
	Missing    *int              `json:"countdown_left,omitempty"` // of a countdown
	Counts     string            `json:"counts,omitempty"`
	At         *time.Time        `json:"at,omitempty"`
	Delivery   int               `json:"delivery"`
	Failures   int               `json:"failures"`
	Losses     int               `json:"losses"`
	MaxRetries int               `json:"max_retries"`
	Payload    *string           `json:"payload,omitempty"`
	Base64     []byte            `json:"payload_base64,omitempty"` // of a payload that is no text
	PartCount  int               `json:"part_count,omitempty"`     // of a group; get has the parts
	PartBytes  int               `json:"part_bytes,omitempty"`
	Parts      []string          `json:"parts,omitempty"`
	Parts64    [][]byte          `json:"parts_base64,omitempty"` // of parts of which one is no text
	Headers    map[string]string `json:"headers,omitempty"`
	LastError  string            `json:"last_error,omitempty"`
	LastErrors []DeliveryError   `json:"last_errors,omitempty"` // the newest first
	Result     string            `json:"result,omitempty"`
	Result64   []byte            `json:"result_base64,omitempty"` // of a result that is no text
	EndedAt    *time.Time        `json:"ended_at,omitempty"`
	Consumer   string            `json:"consumer,omitempty"`
	Unreadable string            `json:"unreadable,omitempty"`
}

// A DeliveryError is the error of a delivery.
type DeliveryError struct {
	At       *time.Time `json:"at,omitempty"`
	Delivery int        `json:"delivery,omitempty"`
	Error    string     `json:"error"`
}

// Of is a message as it is exported.
func Of(m *ops.MessageStatus) Message {
	out := Message{
		ID: m.ID, Key: m.Key, State: m.State.String(), Sent: Instant(sentAt(m.ID)), Due: UTC(m.Due), TTL: m.TTL.Seconds(),
		Deadline: Instant(m.Deadline), Timeout: m.Timeout.Seconds(), Retention: m.Retention.Seconds(), At: Instant(m.At),
		Delivery: m.Delivery, Failures: m.Failures,
		Losses: m.Losses, MaxRetries: m.MaxRetries, Headers: m.Headers, LastError: m.LastError, EndedAt: Instant(m.EndedAt),
		Consumer:  m.Consumer,
		Countdown: m.Countdown, Counts: m.Counts, Lane: m.Lane, LaneWidth: m.LaneWidth,
	}
	if m.Countdown > 0 {
		out.Missing = &m.CountdownLeft
	}
	if m.Timeout < 0 {
		out.Timeout = -1
	}
	for _, e := range m.LastErrors {
		out.LastErrors = append(out.LastErrors, DeliveryError{Instant(e.At), e.Delivery, e.Text})
	}
	if m.Broken != nil {
		out.Unreadable = m.Broken.Error()
	}
	if utf8.ValidString(m.Payload) {
		out.Payload = &m.Payload
	} else {
		out.Base64 = []byte(m.Payload)
	}
	out.PartCount, out.PartBytes = m.PartCount, m.PartBytes
	if !slices.ContainsFunc(m.Parts, func(part string) bool { return !utf8.ValidString(part) }) {
		out.Parts = m.Parts
	} else {
		for _, part := range m.Parts {
			out.Parts64 = append(out.Parts64, []byte(part))
		}
	}
	if utf8.ValidString(m.Result) {
		out.Result = m.Result
	} else {
		out.Result64 = []byte(m.Result)
	}
	return out
}

// sentAt is the time in an id; zero if there is none.
func sentAt(id string) time.Time {
	if us := message.SentAt(id); us > 0 {
		return time.UnixMicro(us)
	}
	return time.Time{}
}

// lastInstant is the last instant that JSON can hold; another program may have written a later one.
var lastInstant = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// UTC is an instant as it is exported.
func UTC(t time.Time) time.Time {
	switch t = t.UTC(); {
	case t.After(lastInstant):
		return lastInstant
	case t.Year() < 0:
		return time.Time{}
	}
	return t
}

// Instant is nil for the zero time.
func Instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = UTC(t)
	return &t
}
