package delayqueue

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

	internal "github.com/go-delayqueue/delayqueue/internal/envelope"
)

// The envelope is what Redis keeps of a message, in the hash msg:
//
//	version    1 byte, 1 or 2
//	due        16 decimal digits, unix us
//	key length 2 bytes, big endian
//	key
//
// then in version 1, which is written of a message that needs no more:
//
//	flags      1 byte: 1 = a TTL follows, 2 = headers follow
//	retries    uvarint
//	ttl        uvarint, us, if flagged
//	headers    uvarint count, then for each a uvarint length and the bytes of its key and of its value, if flagged
//	payload    the rest
//
// and in version 2 fields to the end: a type byte, a uvarint length, and as many bytes. Each type comes once, the higher
// ones first, and the payload, which is always there, comes last. Whoever does not know a type of 128 or more leaves the
// message to others; it skips what it does not know of the lower ones. So what messages need later takes a type and no
// other version.
//
// Version, due and key stay at these offsets in every version, for the scripts read
// them; all else is read here alone.
const (
	flagsVersion  = 1
	fieldsVersion = 2
	dueDigits     = 16
	envelopeHead  = 1 + dueDigits

	flagTTL     = 1
	flagHeaders = 2

	fieldPayload   = 1
	fieldHeaders   = 2 // as in version 1; absent: none
	fieldRetries   = 3 // as in version 1; absent: 0
	fieldTTL       = 4 // as in version 1; absent: none
	fieldLatest    = 5 // 16 decimal digits, unix us, which put fills in; absent: none
	fieldSince     = 6 // 16 decimal digits, unix us, from which the TTL counts if that is after due: put fills them in; absent: due
	fieldCritical  = 128
	fieldParts     = 129 // of a group: 4 digits, how many parts; 7, bytes of all but the first; the key that it had; absent: no group
	fieldDeadline  = 130 // 16 decimal digits, unix us; absent: none
	fieldTimeout   = 131 // uvarint, us, 0: none; absent: the queue's own
	fieldKeyHold   = 132 // uvarint, us; absent: none
	fieldRetention = 133 // uvarint, us; absent: none

	// maxHeaders bounds what a few bytes of somebody else's making can cost a reader: a header without a name and
	// a value is two bytes in an envelope, and a hundred in a map.
	maxHeaders = 10_000
)

// noTimeout is the timeout of a message whose handler may run for ever.
const noTimeout = -time.Microsecond

type envelope struct {
	due       int64 // unix us
	key       string
	retries   int
	ttl       time.Duration // 0: none
	since     int64         // unix us from which the TTL counts, if that is after due; 0: none
	latest    int64         // unix us at which it is due whoever puts it off; 0: none
	deadline  int64         // unix us; 0: none
	timeout   time.Duration // 0: the queue's own; or noTimeout
	keyHold   time.Duration // for which its key stays taken once it is acked; 0: it does not
	retention time.Duration // of what is done; 0: none
	headers   map[string]string
	payload   string
	group     group
}

// version is the one that encode writes.
func (e *envelope) version() byte {
	if e.group.count != 0 || e.since != 0 || e.latest != 0 || e.keyHold != 0 || e.deadline != 0 || e.timeout != 0 || e.retention != 0 {
		return fieldsVersion
	}
	return flagsVersion
}

// encode makes an envelope that is due at w. After a delay, it leaves out version and due instant:
// the script that stores it writes them.
func (e *envelope) encode(w when) string {
	const fieldHead = 1 + binary.MaxVarintLen64 // a type and a length
	size := 2 + len(e.key) + 1 + binary.MaxVarintLen64 + len(e.payload)
	if e.ttl > 0 {
		size += binary.MaxVarintLen64
	}
	if len(e.headers) > 0 {
		size += binary.MaxVarintLen64
		for k, v := range e.headers {
			size += 2*binary.MaxVarintLen64 + len(k) + len(v)
		}
	}
	if w.absolute {
		size += envelopeHead
	}
	version := e.version()
	if version == fieldsVersion {
		size += 10*fieldHead + 5*dueDigits
	}
	var b envelopeWriter
	b.Grow(size)
	if w.absolute {
		b.WriteByte(version)
		b.instant(w.us)
	}
	b.WriteByte(byte(len(e.key) >> 8))
	b.WriteByte(byte(len(e.key)))
	b.WriteString(e.key)
	if version == fieldsVersion {
		e.writeFields(&b)
	} else {
		e.writeFlagged(&b)
	}
	return b.String()
}

// writeFlagged writes what stands behind the key in version 1.
func (e *envelope) writeFlagged(b *envelopeWriter) {
	var flags byte
	if e.ttl > 0 {
		flags |= flagTTL
	}
	if len(e.headers) > 0 {
		flags |= flagHeaders
	}
	b.WriteByte(flags)
	b.uvarint(uint64(e.retries))
	if e.ttl > 0 {
		b.uvarint(uint64(e.ttl / time.Microsecond))
	}
	if len(e.headers) > 0 {
		b.headers(e.headers)
	}
	b.WriteString(e.payload)
}

// writeFields writes what stands behind the key in version 2.
func (e *envelope) writeFields(b *envelopeWriter) {
	if e.retention != 0 {
		b.numberField(fieldRetention, uint64(e.retention/time.Microsecond))
	}
	if e.keyHold != 0 {
		b.numberField(fieldKeyHold, uint64(e.keyHold/time.Microsecond))
	}
	if e.timeout != 0 {
		b.numberField(fieldTimeout, uint64(max(e.timeout, 0)/time.Microsecond))
	}
	if e.deadline != 0 {
		b.instantField(fieldDeadline, e.deadline)
	}
	if e.group.count != 0 {
		b.WriteByte(fieldParts)
		b.text(e.group.text())
	}
	if e.since != 0 {
		b.instantField(fieldSince, e.since)
	}
	if e.latest != 0 {
		b.instantField(fieldLatest, e.latest)
	}
	if e.ttl > 0 {
		b.numberField(fieldTTL, uint64(e.ttl/time.Microsecond))
	}
	if e.retries > 0 {
		b.numberField(fieldRetries, uint64(e.retries))
	}
	if len(e.headers) > 0 {
		var text envelopeWriter
		text.headers(e.headers)
		b.WriteByte(fieldHeaders)
		b.text(text.String())
	}
	b.WriteByte(fieldPayload)
	b.text(e.payload)
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

// instantField writes a field of version 2 that is an instant.
func (b *envelopeWriter) instantField(kind byte, us int64) {
	b.WriteByte(kind)
	b.WriteByte(dueDigits)
	b.instant(us)
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

// numberField writes a field of version 2 that is a number.
func (b *envelopeWriter) numberField(kind byte, n uint64) {
	value := binary.AppendUvarint(b.scratch[:0], n)
	b.WriteByte(kind)
	b.WriteByte(byte(len(value)))
	b.Write(value)
}

var errBadEnvelope = errors.New("broken envelope")

// decodeEnvelope reads what a sender of a known version wrote. The payload is a part of
// s, not a copy. It returns errNewerVersion, beside due and key, for a version or a critical field that it does not know
// and errBadEnvelope for bytes that no version wrote.
func decodeEnvelope(s string) (envelope, error) {
	var e envelope
	if len(s) < envelopeHead+2 || s[0] == 0 {
		return e, fmt.Errorf("%w: %d bytes", errBadEnvelope, len(s))
	}
	due, err := instantOf(s[1:envelopeHead])
	if err != nil { // in every version there are digits
		return e, fmt.Errorf("%w: due %q", errBadEnvelope, s[1:envelopeHead])
	}
	e.due = due
	r := envelopeReader{s: s[envelopeHead:]}
	hi, lo := r.byte(), r.byte()
	e.key = r.take(uint64(hi)<<8 | uint64(lo))
	head := e
	switch {
	case s[0] == flagsVersion:
		e.readFlagged(&r)
	case s[0] == fieldsVersion:
		err = e.readFields(&r)
	default:
		err = fmt.Errorf("%w: %d", errNewerVersion, s[0])
	}
	if err != nil { // it keeps its key, which is freed with it
		return head, err
	}
	if r.bad {
		return envelope{}, fmt.Errorf("%w: %d bytes of version %d", errBadEnvelope, len(s), s[0])
	}
	return e, nil
}

// readFlagged reads what stands behind the key in version 1.
func (e *envelope) readFlagged(r *envelopeReader) {
	flags := r.byte()
	e.retries = r.retries()
	if flags&flagTTL != 0 {
		e.ttl = r.duration()
	}
	if flags&flagHeaders != 0 {
		e.headers = r.headers()
	}
	e.payload = r.s
	r.bad = r.bad || flags&^(flagTTL|flagHeaders) != 0
}

// readFields reads what stands behind the key in version 2.
func (e *envelope) readFields(r *envelopeReader) error {
	for last := 256; last != fieldPayload && !r.bad; {
		kind := int(r.byte())
		field := envelopeReader{s: r.take(r.uvarint())}
		switch {
		case r.bad || kind >= last || kind == 0:
			r.bad = true
			return nil
		case kind == fieldTTL:
			e.ttl = field.duration()
		case kind == fieldRetries:
			e.retries = field.retries()
		case kind == fieldHeaders:
			e.headers = field.headers()
		case kind == fieldSince:
			e.since = field.instant()
		case kind == fieldLatest:
			e.latest = field.instant()
		case kind == fieldParts:
			e.group = field.group()
		case kind == fieldDeadline:
			e.deadline = field.instant()
		case kind == fieldTimeout:
			e.timeout = cmp.Or(field.duration(), noTimeout)
		case kind == fieldKeyHold:
			e.keyHold = field.duration()
		case kind == fieldRetention:
			e.retention = field.duration()
		case kind == fieldPayload:
			e.payload, field.s = field.s, ""
		case kind >= fieldCritical:
			return fmt.Errorf("%w: field %d", errNewerVersion, kind)
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
	us, err := instantOf(r.take(dueDigits))
	r.bad = r.bad || err != nil
	return us
}

// instantOf reads the digits of an instant.
func instantOf(digits string) (us int64, err error) {
	n, err := strconv.ParseUint(digits, 10, 63)
	return int64(n), err
}

func (r *envelopeReader) duration() time.Duration {
	return time.Duration(min(r.uvarint(), math.MaxInt64/1000)) * time.Microsecond
}

func (r *envelopeReader) headers() (headers map[string]string) {
	n := r.uvarint()
	if n > maxHeaders || n > uint64(len(r.s)) {
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

func init() {
	internal.Status = func(id, text string, parts []string) any {
		m := statusOf(id, StateGone, 0, text, "")
		m.setParts(parts)
		return m
	}
}
