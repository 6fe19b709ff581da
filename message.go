package delayqueue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Message is one delivery of a message, as a handler sees it. It belongs to the
// handler: the queue does not look at it again.
type Message struct {
	ID      string            // UUIDv7, made by the sender, never used twice
	Key     string            // the sender's own name for it (WithKey); "" if it has none
	Payload string            // any bytes, unchanged
	Headers map[string]string // WithHeader; nil if there are none
	Due     time.Time         // never handed out before this instant of the server's clock; retries do not change it

	// Delivery is the number of this delivery, from 1. It counts every hand-out: after
	// failures, losses, snoozes, and those that no handler started.
	Delivery   int
	Failures   int // failures before this delivery
	MaxRetries int // how many failures are followed by another delivery (WithRetryCount)
}

// MessageInfo names a message that was sent.
type MessageInfo struct {
	ID  string
	Key string    // "" if it has none
	Due time.Time // by the Redis server's clock
}

// A State says where a message is.
type State int

// The states of a message.
const (
	StateGone    State = iota // nowhere: acked, intercepted, aged out, or never sent
	StatePending              // not yet due
	StateReady                // due, next to be handed out
	StateUnack                // handed out, being handled
	StateRetry                // failed, snoozed or lost, waiting for its next delivery
	StateGarbage              // given up on
)

var stateNames = [...]string{"gone", "pending", "ready", "unack", "retry", "garbage"}

func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "State(" + strconv.Itoa(int(s)) + ")"
	}
	return stateNames[s]
}

// InterceptResult says what Intercept or Cancel did.
type InterceptResult struct {
	// Intercepted: the message was taken out. False: there is none (StateGone), or it is being handled and
	// Intercept left it alone (StateUnack).
	Intercepted bool
	State       State  // where the message was
	ID          string // of the message; "" if there is none
}

// The envelope is what Redis keeps of a message, in the hash msg:
//
//	version    1 byte, 1
//	due        16 decimal digits, unix us
//	key length 2 bytes, big endian
//	key
//	flags      1 byte: 1 = a TTL follows, 2 = headers follow
//	retries    uvarint
//	ttl        uvarint, us, if flagged
//	headers    uvarint count, then for each a uvarint length and the bytes of its key and of its value, if flagged
//	payload    the rest
//
// Version, due and key stay at these offsets in every version, for the scripts read
// them; all else is read here alone.
const (
	envelopeVersion = 1
	dueDigits       = 16
	envelopeHead    = 1 + dueDigits

	flagTTL     = 1
	flagHeaders = 2

	// maxHeaders bounds what a few bytes of somebody else's making can cost a reader: a header without a name and
	// a value is two bytes in an envelope, and a hundred in a map.
	maxHeaders = 10_000
)

type envelope struct {
	due     int64 // unix us
	key     string
	retries int
	ttl     time.Duration // 0: none
	headers map[string]string
	payload string
}

// encode makes an envelope that is due at w. After a delay, it leaves out version and due instant:
// the script that stores it writes them.
func (e *envelope) encode(w when) string {
	var flags byte
	size := 2 + len(e.key) + 1 + binary.MaxVarintLen64 + len(e.payload)
	if e.ttl > 0 {
		flags |= flagTTL
		size += binary.MaxVarintLen64
	}
	if len(e.headers) > 0 {
		flags |= flagHeaders
		size += binary.MaxVarintLen64
		for k, v := range e.headers {
			size += 2*binary.MaxVarintLen64 + len(k) + len(v)
		}
	}
	if w.absolute {
		size += envelopeHead
	}
	var b strings.Builder
	b.Grow(size)
	var scratch [max(binary.MaxVarintLen64, dueDigits)]byte
	uvarint := func(n uint64) { b.Write(scratch[:binary.PutUvarint(scratch[:], n)]) }

	if w.absolute {
		b.WriteByte(envelopeVersion)
		digits := strconv.AppendInt(scratch[:0], w.us, 10)
		b.WriteString("0000000000000000"[:dueDigits-len(digits)])
		b.Write(digits)
	}
	b.WriteByte(byte(len(e.key) >> 8))
	b.WriteByte(byte(len(e.key)))
	b.WriteString(e.key)
	b.WriteByte(flags)
	uvarint(uint64(e.retries))
	if flags&flagTTL != 0 {
		uvarint(uint64(e.ttl / time.Microsecond))
	}
	if flags&flagHeaders != 0 {
		uvarint(uint64(len(e.headers)))
		for _, k := range slices.Sorted(maps.Keys(e.headers)) {
			uvarint(uint64(len(k)))
			b.WriteString(k)
			uvarint(uint64(len(e.headers[k])))
			b.WriteString(e.headers[k])
		}
	}
	b.WriteString(e.payload)
	return b.String()
}

var errBadEnvelope = errors.New("broken envelope")

// decodeEnvelope reads what a sender of this version wrote. The payload is a part of
// s, not a copy. It returns errNewerVersion, beside due and key, for a version that it does not know and
// errBadEnvelope for bytes that no version wrote.
func decodeEnvelope(s string) (envelope, error) {
	var e envelope
	if len(s) < envelopeHead+2 || s[0] == 0 {
		return e, fmt.Errorf("%w: %d bytes", errBadEnvelope, len(s))
	}
	due, err := strconv.ParseUint(s[1:envelopeHead], 10, 63)
	if err != nil { // in every version there are digits
		return e, fmt.Errorf("%w: due %q", errBadEnvelope, s[1:envelopeHead])
	}
	e.due = int64(due)
	r := envelopeReader{s: s[envelopeHead:]}
	hi, lo := r.byte(), r.byte()
	e.key = r.take(uint64(hi)<<8 | uint64(lo))
	if s[0] > envelopeVersion { // it keeps its key, which is freed with it
		return e, fmt.Errorf("%w: %d", errNewerVersion, s[0])
	}
	flags := r.byte()
	e.retries = int(min(r.uvarint(), math.MaxInt32))
	if flags&flagTTL != 0 {
		e.ttl = time.Duration(min(r.uvarint(), math.MaxInt64/1000)) * time.Microsecond
	}
	if flags&flagHeaders != 0 {
		n := r.uvarint()
		if n > maxHeaders || n > uint64(len(r.s)) {
			r.bad = true
		}
		for ; n > 0 && !r.bad; n-- {
			if e.headers == nil {
				e.headers = make(map[string]string)
			}
			k := r.take(r.uvarint())
			e.headers[k] = r.take(r.uvarint())
		}
	}
	if r.bad || flags&^(flagTTL|flagHeaders) != 0 {
		return envelope{}, fmt.Errorf("%w: %d bytes, flags %#x", errBadEnvelope, len(s), flags)
	}
	e.payload = r.s
	return e, nil
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

// splitTag reads a tag, the name of one delivery: the id itself for the first, <n>:<id> from
// the second on. The scripts make the later ones. What is neither names a first delivery.
func splitTag(tag string) (id string, n int) {
	num, id, found := strings.Cut(tag, ":")
	if !found || id == "" || len(num) > 9 {
		return tag, 1
	}
	n, err := strconv.Atoi(num)
	if err != nil || n < 2 || num != strconv.Itoa(n) {
		return tag, 1
	}
	return id, n
}

// A failRecord is the hash fail's entry for a message: `<delivery> <failures> <losses> <when> <error>`.
type failRecord struct {
	delivery, failures, losses int
	when                       int64 // unix us
	text                       string
}

// maxErrorText bounds the error text that is kept with a message.
const maxErrorText = 1 << 10

// errorText is what is kept of an error with the message: valid UTF-8, at most maxErrorText bytes.
func errorText(err error) string {
	text := strings.ToValidUTF8(fmt.Sprint(err), "\uFFFD")
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return text
}

func parseFail(s string) (failRecord, error) {
	var r failRecord
	fields := strings.SplitN(s, " ", 5)
	if len(fields) != 5 {
		return r, fmt.Errorf("broken fail record %q", s)
	}
	var numbers [4]int64
	for i := range numbers {
		n, err := strconv.ParseUint(fields[i], 10, 63) // no sign
		if err != nil || i < 3 && n > math.MaxInt32 {
			return r, fmt.Errorf("broken fail record %q", s)
		}
		numbers[i] = int64(n)
	}
	return failRecord{int(numbers[0]), int(numbers[1]), int(numbers[2]), numbers[3], fields[4]}, nil
}

// microseconds is a duration of so many, as long as one can be.
func microseconds(us int64) time.Duration {
	return time.Duration(min(max(us, math.MinInt64/1000), math.MaxInt64/1000)) * time.Microsecond
}

// A serverTime is an instant of Redis's clock, in us since 1970. 0 means none.
type serverTime int64

func (t serverTime) sub(u serverTime) time.Duration { return microseconds(int64(t) - int64(u)) }
