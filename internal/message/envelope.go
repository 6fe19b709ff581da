package message

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The envelope is what Redis keeps of a message, in the hash msg:
//
//	version    1 byte, 1 or 2
//	due        16 decimal digits, unix us
//	key length 2 bytes, big endian
//	key
//
// then in version 1, which is written if a message needs no field of version 2 alone:
//
//	flags      1 byte: 1 = a TTL follows, 2 = headers follow
//	retries    uvarint
//	ttl        uvarint, us, if flagged
//	headers    uvarint count, then for each a uvarint length and the bytes of its key and of its value, if flagged
//	payload    the rest
//
// and in version 2 fields to the end: a type byte, a uvarint length, and as many bytes. Each type comes once, higher
// types first. The payload is always there and comes last. A reader that does not know a type of 128 or more leaves
// the message to other consumers. A reader skips lower types that it does not know. So a new setting of messages
// takes a new type, and no new version.
//
// The rules of the package say which of these scripts read.
const (
	FlagsVersion  = 1
	fieldsVersion = 2
	dueDigits     = 16
	EnvelopeHead  = 1 + dueDigits

	flagTTL     = 1
	flagHeaders = 2

	fieldPayload = 1
	fieldHeaders = 2 // as in version 1; absent: none
	fieldRetries = 3 // as in version 1; absent: 0
	fieldTTL     = 4 // as in version 1; absent: none
	fieldLatest  = 5 // 16 decimal digits, unix us, which put fills in; absent: none
	// 16 decimal digits, unix us, from which the TTL counts if that is after due: put fills them in; absent: due
	fieldSince    = 6
	fieldCritical = 128
	// of a group: 4 digits, how many parts; 7, bytes of all but the first; the key that it had; absent: no group
	fieldParts     = 129
	fieldDeadline  = 130 // 16 decimal digits, unix us; absent: none
	fieldTimeout   = 131 // uvarint, us, 0: none; absent: the queue's own
	fieldKeyHold   = 132 // uvarint, us; absent: none
	fieldRetention = 133 // uvarint, us; absent: none
	fieldCountdown = 134 // 10 decimal digits, 1 or more: how many acks of others it waits for; absent: none
	fieldCounts    = 135 // the key of the message for whose countdown its ack counts; absent: none
	fieldLane      = 136 // 3 decimal digits, its width, and the name of its lane; absent: none

	// MaxHeaders bounds what a few bytes of another program can cost a reader: an empty header takes two bytes in an
	// envelope, and a hundred in a map.
	MaxHeaders = 10_000
)

// LatestUnknown stands in an envelope until put writes the instant: of fieldLatest, or of fieldSince.
const LatestUnknown = 1

const (
	MaxKey       = 512           // bytes of a message key
	MaxCountdown = 1_000_000_000 // acks
	MaxLane      = 200           // bytes of the name of a lane
	MaxWidth     = 100           // messages of a lane at a time

	countdownDigits = 10
)

// NoTimeout is the timeout of a message whose handler may run for ever.
const NoTimeout = -time.Microsecond

// An Envelope is what Redis keeps of a message, decoded.
type Envelope struct {
	Due       int64 // unix us
	Key       string
	Retries   int
	TTL       time.Duration // 0: none
	Since     int64         // unix us from which the TTL counts, if that is after due; 0: none
	Latest    int64         // unix us at which it is due at the latest, however often it is put off; 0: none
	Deadline  int64         // unix us; 0: none
	Timeout   time.Duration // 0: the queue's own; or NoTimeout
	KeyHold   time.Duration // for which its key stays taken once it is acked; 0: it does not
	Retention time.Duration // of what is done; 0: none
	Countdown int           // how many acks of others it waits for; 0: none
	Counts    string        // the key of the message for whose countdown its ack counts; "": none
	Lane      Lane          // none: the zero value
	Headers   map[string]string
	Payload   string
	Group     Group
}

// Version is the version that Encode writes.
func (e *Envelope) Version() byte {
	if e.Group.Count != 0 || e.Since != 0 || e.Latest != 0 || e.KeyHold != 0 || e.Deadline != 0 || e.Timeout != 0 ||
		e.Retention != 0 ||
		e.Countdown != 0 || e.Counts != "" || e.Lane.Width != 0 {
		return fieldsVersion
	}
	return FlagsVersion
}

// Encode makes an envelope that is due at w. After a delay, it leaves out version and due instant:
// the script that stores it writes them.
func (e *Envelope) Encode(w When) string {
	const fieldHead = 1 + binary.MaxVarintLen64 // a type and a length
	size := 2 + len(e.Key) + 1 + binary.MaxVarintLen64 + len(e.Payload)
	if e.TTL > 0 {
		size += binary.MaxVarintLen64
	}
	if len(e.Headers) > 0 {
		size += binary.MaxVarintLen64
		for k, v := range e.Headers {
			size += 2*binary.MaxVarintLen64 + len(k) + len(v)
		}
	}
	if w.Absolute {
		size += EnvelopeHead
	}
	version := e.Version()
	if version == fieldsVersion {
		size += 12*fieldHead + 5*dueDigits + countdownDigits + len(e.Counts) + widthDigits + len(e.Lane.Name)
	}
	var b envelopeWriter
	b.Grow(size)
	if w.Absolute {
		b.WriteByte(version)
		b.instant(w.Us)
	}
	b.WriteByte(byte(len(e.Key) >> 8))
	b.WriteByte(byte(len(e.Key)))
	b.WriteString(e.Key)
	if version == fieldsVersion {
		e.writeFields(&b)
	} else {
		e.writeFlagged(&b)
	}
	return b.String()
}

// writeFlagged writes what stands behind the key in version 1.
func (e *Envelope) writeFlagged(b *envelopeWriter) {
	var flags byte
	if e.TTL > 0 {
		flags |= flagTTL
	}
	if len(e.Headers) > 0 {
		flags |= flagHeaders
	}
	b.WriteByte(flags)
	b.uvarint(uint64(e.Retries))
	if e.TTL > 0 {
		b.uvarint(uint64(e.TTL / time.Microsecond))
	}
	if len(e.Headers) > 0 {
		b.headers(e.Headers)
	}
	b.WriteString(e.Payload)
}

// writeFields writes what stands behind the key in version 2.
func (e *Envelope) writeFields(b *envelopeWriter) {
	if e.Lane.Width != 0 {
		b.textField(fieldLane, e.Lane.Text())
	}
	if e.Counts != "" {
		b.textField(fieldCounts, e.Counts)
	}
	if e.Countdown != 0 {
		b.textField(fieldCountdown, fmt.Sprintf("%0*d", countdownDigits, e.Countdown))
	}
	b.durationField(fieldRetention, e.Retention)
	b.durationField(fieldKeyHold, e.KeyHold)
	if e.Timeout != 0 {
		b.numberField(fieldTimeout, uint64(max(e.Timeout, 0)/time.Microsecond))
	}
	b.instantField(fieldDeadline, e.Deadline)
	if e.Group.Count != 0 {
		b.textField(fieldParts, e.Group.text())
	}
	b.instantField(fieldSince, e.Since)
	b.instantField(fieldLatest, e.Latest)
	b.durationField(fieldTTL, e.TTL)
	if e.Retries > 0 {
		b.numberField(fieldRetries, uint64(e.Retries))
	}
	if len(e.Headers) > 0 {
		var text envelopeWriter
		text.headers(e.Headers)
		b.textField(fieldHeaders, text.String())
	}
	b.textField(fieldPayload, e.Payload)
}

// An envelopeWriter writes the parts of an envelope one after the other.
type envelopeWriter struct {
	strings.Builder
	scratch [max(binary.MaxVarintLen64, dueDigits)]byte
}

func (b *envelopeWriter) uvarint(n uint64) { b.Write(b.scratch[:binary.PutUvarint(b.scratch[:], n)]) }

// instant writes unix us in dueDigits.
func (b *envelopeWriter) instant(us int64) {
	digits := strconv.AppendInt(b.scratch[:0], us, 10)
	b.WriteString("0000000000000000"[:dueDigits-len(digits)])
	b.Write(digits)
}

func (b *envelopeWriter) text(s string) {
	b.uvarint(uint64(len(s)))
	b.WriteString(s)
}

func (b *envelopeWriter) headers(headers map[string]string) {
	b.uvarint(uint64(len(headers)))
	for _, k := range slices.Sorted(maps.Keys(headers)) {
		b.text(k)
		b.text(headers[k])
	}
}

// textField writes a field of version 2.
func (b *envelopeWriter) textField(kind byte, value string) {
	b.WriteByte(kind)
	b.text(value)
}

// instantField writes an instant as a field, if there is one.
func (b *envelopeWriter) instantField(kind byte, us int64) {
	if us != 0 {
		b.WriteByte(kind)
		b.WriteByte(dueDigits)
		b.instant(us)
	}
}

// durationField writes a duration as a field, if there is one.
func (b *envelopeWriter) durationField(kind byte, d time.Duration) {
	if d > 0 {
		b.numberField(kind, uint64(d/time.Microsecond))
	}
}

// numberField writes a number as a field.
func (b *envelopeWriter) numberField(kind byte, n uint64) {
	value := binary.AppendUvarint(b.scratch[:0], n)
	b.WriteByte(kind)
	b.WriteByte(byte(len(value)))
	b.Write(value)
}

// ErrNewerVersion: the message was written by a newer version of the library.
var ErrNewerVersion = errors.New("message was written by a newer version")

var errBadEnvelope = errors.New("broken envelope")

// DecodeEnvelope reads an envelope of version 1 or 2. The payload is a part of s, not a copy. For an unknown version
// or critical field it returns ErrNewerVersion, and due and key. For bytes that no version wrote it returns
// errBadEnvelope.
func DecodeEnvelope(s string) (Envelope, error) { return decode(s, true) }

// DecodeHead reads the first bytes of a longer envelope: all fields that are whole, without headers and payload.
func DecodeHead(s string) (Envelope, error) {
	e, err := decode(s, false)
	e.Headers, e.Payload = nil, ""
	return e, err
}

// decode reads an envelope, or the first bytes of one.
func decode(s string, whole bool) (Envelope, error) {
	var e Envelope
	if len(s) < EnvelopeHead+2 || s[0] == 0 {
		return e, fmt.Errorf("%w: %d bytes", errBadEnvelope, len(s))
	}
	r := envelopeReader{s: s[1:]}
	if e.Due = r.instant(); r.bad { // in every version there are digits
		return Envelope{}, fmt.Errorf("%w: due %q", errBadEnvelope, s[1:EnvelopeHead])
	}
	hi, lo := r.byte(), r.byte()
	e.Key = r.take(uint64(hi)<<8 | uint64(lo))
	head := e
	var err error
	switch {
	case s[0] == FlagsVersion:
		e.readFlagged(&r, whole)
	case s[0] == fieldsVersion:
		err = e.readFields(&r, whole)
	default:
		err = fmt.Errorf("%w: %d", ErrNewerVersion, s[0])
	}
	if err != nil { // it keeps its key, which is freed with it
		return head, err
	}
	if r.bad {
		return Envelope{}, fmt.Errorf("%w: %d bytes of version %d", errBadEnvelope, len(s), s[0])
	}
	return e, nil
}

// readFlagged reads what stands behind the key in version 1.
func (e *Envelope) readFlagged(r *envelopeReader, whole bool) {
	flags := r.byte()
	e.Retries = r.retries()
	if flags&flagTTL != 0 {
		e.TTL = r.duration()
	}
	if flags&flagHeaders != 0 && whole {
		e.Headers = r.headers()
	}
	e.Payload = r.s
	r.bad = r.bad || flags&^(flagTTL|flagHeaders) != 0
}

// readFields reads what stands behind the key in version 2.
func (e *Envelope) readFields(r *envelopeReader, whole bool) error {
	for last := 256; last != fieldPayload && !r.bad; {
		kind := int(r.byte())
		field := envelopeReader{s: r.take(r.uvarint())}
		if r.bad && !whole { // here the first bytes end
			r.bad = false
			return nil
		}
		switch {
		case r.bad || kind >= last || kind == 0:
			r.bad = true
			return nil
		case kind == fieldTTL:
			e.TTL = field.duration()
		case kind == fieldRetries:
			e.Retries = field.retries()
		case kind == fieldHeaders:
			e.Headers = field.headers()
		case kind == fieldSince:
			e.Since = field.instant()
		case kind == fieldLatest:
			e.Latest = field.instant()
		case kind == fieldParts:
			e.Group = field.group()
		case kind == fieldDeadline:
			e.Deadline = field.instant()
		case kind == fieldTimeout:
			e.Timeout = cmp.Or(field.duration(), NoTimeout)
		case kind == fieldKeyHold:
			e.KeyHold = field.duration()
		case kind == fieldRetention:
			e.Retention = field.duration()
		case kind == fieldCountdown:
			e.Countdown = field.digits(countdownDigits)
			field.bad = field.bad || e.Countdown < 1 || e.Countdown > MaxCountdown
		case kind == fieldCounts:
			e.Counts, field.s = field.s, ""
			field.bad = e.Counts == "" || len(e.Counts) > MaxKey
		case kind == fieldLane:
			e.Lane = field.lane()
		case kind == fieldPayload:
			e.Payload, field.s = field.s, ""
		case kind >= fieldCritical:
			return fmt.Errorf("%w: field %d", ErrNewerVersion, kind)
		default:
			field.s = ""
		}
		r.bad, last = field.bad || field.s != "", kind
	}
	r.bad = r.bad || r.s != ""
	return nil
}

// envelopeReader takes an envelope apart; bad is set, and stays set, once it is too short.
type envelopeReader struct {
	s   string
	bad bool
}

func (r *envelopeReader) take(n uint64) string {
	if r.bad || n > uint64(len(r.s)) {
		r.bad = true
		return ""
	}
	head := r.s[:n]
	r.s = r.s[n:]
	return head
}

func (r *envelopeReader) byte() byte {
	b := r.take(1)
	if r.bad {
		return 0
	}
	return b[0]
}

func (r *envelopeReader) uvarint() uint64 {
	var n uint64
	for shift := 0; shift < 64; shift += 7 {
		b := r.byte()
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
	r.bad = true
	return 0
}

func (r *envelopeReader) retries() int { return int(min(r.uvarint(), math.MaxInt32)) }

func (r *envelopeReader) instant() int64 {
	us, err := strconv.ParseUint(r.take(dueDigits), 10, 63)
	r.bad = r.bad || err != nil
	return int64(us)
}

func (r *envelopeReader) duration() time.Duration {
	return time.Duration(min(r.uvarint(), math.MaxInt64/1000)) * time.Microsecond
}

func (r *envelopeReader) headers() (headers map[string]string) {
	n := r.uvarint()
	if n > MaxHeaders || n > uint64(len(r.s)) {
		r.bad = true
	}
	for ; n > 0 && !r.bad; n-- {
		if headers == nil {
			headers = make(map[string]string)
		}
		k := r.take(r.uvarint())
		headers[k] = r.take(r.uvarint())
	}
	return headers
}
