package delayqueue

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// MessageSettings are what options say of a message, as plain data: for who keeps them and sends the message
// later (schedule/). The zero value says nothing.
type MessageSettings struct {
	Retries   *int              `json:"retries,omitempty"`   // WithRetryCount; nil: not said
	TTL       time.Duration     `json:"ttl,omitempty"`       // WithMsgTTL, ns in JSON
	Timeout   *time.Duration    `json:"timeout,omitempty"`   // WithTimeout; nil: not said; 0: none
	Retention time.Duration     `json:"retention,omitempty"` // WithRetention
	Headers   map[string]string `json:"headers,omitempty"`   // WithHeader
}

// SettingsOf reads options. It returns ErrBadOption for one that is wrong, and for one that is of a single message, and
// so cannot be kept for others: a key, a sequence, a delay, a schedule, a deadline.
func SettingsOf(opts ...MsgOption) (MessageSettings, error) {
	d := draft{}
	d.retries = notSaid
	for i, opt := range opts {
		if opt == nil {
			return MessageSettings{}, fmt.Errorf("%w: option %d is nil", ErrBadOption, i+1)
		}
		if err := opt(&d); err != nil {
			return MessageSettings{}, err
		}
	}
	for _, of := range []struct {
		one  bool
		what string
	}{
		{d.key != "" || d.put.payloadKey || d.keyHold != 0 || d.put.maxWait != 0 || d.put.maxParts != 0, "a key"},
		{d.put.sequence != "", "a sequence"},
		{d.put.timed, "a delay or a schedule"}, {d.deadline != 0, "a deadline (use WithMsgTTL)"},
	} {
		if of.one {
			return MessageSettings{}, fmt.Errorf("%w: %s belongs to one message, and cannot be kept for others", ErrBadOption, of.what)
		}
	}
	s := MessageSettings{TTL: d.ttl, Retention: d.retention, Headers: maps.Clone(d.headers)}
	s.Retries, s.Timeout = d.pointers()
	return s, nil
}

// Options are those that SettingsOf has read.
func (s MessageSettings) Options() (opts []MsgOption) {
	if s.Retries != nil {
		opts = append(opts, WithRetryCount(*s.Retries))
	}
	if s.TTL != 0 {
		opts = append(opts, WithMsgTTL(s.TTL))
	}
	if s.Timeout != nil {
		opts = append(opts, WithTimeout(*s.Timeout))
	}
	if s.Retention != 0 {
		opts = append(opts, WithRetention(s.Retention))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Headers)) {
		opts = append(opts, WithHeader(k, s.Headers[k]))
	}
	return opts
}
