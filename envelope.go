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
)

// The envelope is what Redis keeps of a message, in the hash msg:
//
//	version    1 byte, 1 or 2
//	due        16 decimal digits, unix us
//	key length 2 bytes, big endian
//	key
//
// then in version 1, which is what is written:
//
//	flags      1 byte: 1 = a TTL follows, 2 = headers follow
//	retries    uvarint
//	ttl        uvarint, us, if flagged
//	headers    uvarint count, then for each a uvarint length and the bytes of its key and of its value, if flagged
//	payload    the rest
//
// and in version 2, which is read and not yet written, fields to the end: a type byte, a uvarint length, and as many
// bytes. Each type comes once, the higher ones first, and the payload, which is always there, comes last. Whoever does
// not know a type of 128 or more leaves the message to others; it skips what it does not know of the lower ones. So
// what messages need later takes a type and no other version.
//
// Version, due and key stay at these offsets in every version, for the scripts read
// them; all else is read here alone.
const (
	envelopeVersion = 1 // that is written
	fieldsVersion   = 2
	dueDigits       = 16
	envelopeHead    = 1 + dueDigits

	flagTTL     = 1
	flagHeaders = 2

	fieldPayload  = 1
	fieldHeaders  = 2 // as in version 1; absent: none
	fieldRetries  = 3 // as in version 1; absent: 0
	fieldTTL      = 4 // as in version 1; absent: none
	fieldCritical = 128

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

// decodeEnvelope reads what a sender of a known version wrote. The payload is a part of
// s, not a copy. It returns errNewerVersion, beside due and key, for a version or a critical field that it does not know
// and errBadEnvelope for bytes that no version wrote.
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
	head := e
	switch {
	case s[0] == envelopeVersion:
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
		e.ttl = r.ttl()
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
			e.ttl = field.ttl()
		case kind == fieldRetries:
			e.retries = field.retries()
		case kind == fieldHeaders:
			e.headers = field.headers()
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

func (r *envelopeReader) ttl() time.Duration {
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
