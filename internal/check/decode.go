package check

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
)

const (
	dueDigits   = 16
	maxKeyBytes = 512
	maxResult   = 1 << 20

	flagTTL     = 1 << 0
	flagHeaders = 1 << 1

	// Of version 2.
	fieldPayload = 1
	fieldHeaders = 2
	fieldRetries = 3
	fieldTTL     = 4
	mustBeKnown  = 128

	fieldSince    = 6
	fieldLatest   = 5
	fieldKeyHold  = 132
	fieldDeadline = 130
	fieldTimeout  = 131
	fieldParts    = 129
	partsDigits   = 4
	bytesDigits   = 7
	maxParts      = 1000

	fieldRetention = 133

	fieldCountdown = 134
	fieldCounts    = 135
	maxCountdown   = 1_000_000_000

	fieldLane = 136
)

// decodeTag takes `<id>` or `<n>:<id>` apart. From a malformed tag it still
// reads the id where there is one, so that one fault is one breach.
func decodeTag(tag string) Entry {
	e := Entry{Tag: tag, ID: tag, Delivery: 1}
	if i := strings.LastIndexByte(tag, ':'); i >= 0 {
		e.ID = tag[i+1:]
		n, err := decimal(tag[:i])
		switch {
		case err != nil:
			e.TagProblem = "its delivery number is " + err.Error()
		case n < 2:
			e.TagProblem = fmt.Sprintf("its delivery number is %d, and a number is written from 2 on", n)
		}
		e.Delivery = n
	}
	if err := checkID(e.ID); err != nil {
		e.TagProblem = cmp.Or(e.TagProblem, "its id is no UUIDv7: "+err.Error())
		e.ID = ""
	}
	if e.TagProblem != "" {
		e.Delivery = 0
	}
	return e
}

// checkID wants the 36 lower-case characters of a UUIDv7.
func checkID(id string) error {
	if len(id) != 36 {
		return fmt.Errorf("%d characters, want 36", len(id))
	}
	for i := range len(id) {
		c := id[i]
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return fmt.Errorf("character %q at %d", c, i)
		}
	}
	if id[14] != '7' {
		return fmt.Errorf("version %c, want 7", id[14])
	}
	if !strings.ContainsRune("89ab", rune(id[19])) {
		return fmt.Errorf("variant %c, want 8, 9, a or b", id[19])
	}
	return nil
}

// decimal reads a number as every part of the layout writes it: digits alone,
// no leading zero, below 2^53. (`1.7e+15` is what Lua's tostring would make.)
func decimal(text string) (int64, error) {
	if text == "" {
		return 0, errors.New("empty, want a decimal number")
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, fmt.Errorf("%q, want digits only", text)
		}
	}
	if text[0] == '0' && text != "0" {
		return 0, fmt.Errorf("%q, want no leading zero", text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n >= maxInstant {
		return 0, fmt.Errorf("%q, want less than 2^53", text)
	}
	return n, nil
}

// decodeScore reads a score, which Redis may write as 1.7e+15.
func decodeScore(text string) (us int64, problem string) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || f <= 0 || f >= float64(maxInstant) {
		return 0, text + ", want an integer in (0, 2^53)"
	}
	return int64(f), ""
}

// decodeEnvelope reads one value of msg up to the first fault.
func decodeEnvelope(raw string) Envelope {
	e := Envelope{Size: len(raw)}
	if err := e.decode(cursor(raw)); err != nil {
		e.Problem = err.Error()
	}
	return e
}

func (e *Envelope) decode(c cursor) error {
	if err := e.decodeFront(&c, true); err != nil || e.Version == 2 {
		return err
	}
	if e.Flags&flagHeaders != 0 {
		if err := e.decodeHeaders(&c); err != nil {
			return err
		}
	}
	e.Payload = string(c)
	return nil
}

// decodeFront reads what stands before headers and payload; of version 2 all fields, or those that are there if c is not
// the whole envelope.
func (e *Envelope) decodeFront(c *cursor, whole bool) error {
	version, err := c.take(1, "version")
	if err != nil {
		return err
	}
	e.Version = version[0]
	if e.Version != 1 && e.Version != 2 {
		return fmt.Errorf("version is %d, want 1 or 2", e.Version)
	}

	if e.Due, err = c.instant("due"); err != nil {
		return err
	}

	k, err := c.take(2, "length of key")
	if err != nil {
		return err
	}
	keyLen := int(k[0])<<8 | int(k[1])
	if keyLen > maxKeyBytes {
		return fmt.Errorf("length of key is %d, want at most %d", keyLen, maxKeyBytes)
	}
	e.Key, err = c.take(keyLen, "key")
	if err != nil {
		return err
	}

	if e.Version == 2 {
		return e.decodeFields(c, whole)
	}
	return e.decodeFlagged(c)
}

func (e *Envelope) decodeFlagged(c *cursor) error {
	flags, err := c.take(1, "flags")
	if err != nil {
		return err
	}
	e.Flags = flags[0]
	if unknown := e.Flags &^ (flagTTL | flagHeaders); unknown != 0 {
		return fmt.Errorf("unknown flags 0x%02x are set", unknown)
	}
	if e.Retries, err = c.number("retry count"); err != nil {
		return err
	}
	if e.Flags&flagTTL != 0 {
		if e.TTL, err = c.number("TTL"); err != nil {
			return err
		}
		if e.TTL == 0 {
			return errors.New("TTL is 0 though its flag is set")
		}
	}
	return nil
}

// decodeFields reads what version 2 has behind the key: fields of a type byte, a length and as many bytes, in falling
// order of their types, the payload last.
func (e *Envelope) decodeFields(c *cursor, whole bool) error {
	for last := 256; last != fieldPayload; {
		kind, value, err := c.field()
		if err != nil {
			if whole {
				return err
			}
			return nil
		}
		if kind >= last || kind == 0 {
			return fmt.Errorf("field %d stands behind field %d", kind, last)
		}
		last = kind
		if err := e.decodeField(kind, &value); err != nil {
			return err
		}
		if value != "" {
			return fmt.Errorf("field %d has %d bytes too many", kind, len(value))
		}
	}
	if *c != "" {
		return fmt.Errorf("%d bytes stand behind its payload", len(*c))
	}
	return nil
}

func (e *Envelope) decodeField(kind int, value *cursor) (err error) {
	switch {
	case kind == fieldTTL:
		e.TTL, err = value.above0("TTL")
	case kind == fieldRetries:
		e.Retries, err = value.above0("retry count")
	case kind == fieldHeaders:
		err = e.decodeHeaders(value)
	case kind == fieldPayload:
		e.Payload, *value = string(*value), ""
	case kind == fieldTimeout:
		if e.Timeout, err = value.number("timeout"); e.Timeout == 0 {
			e.Timeout = NoTimeout
		}
	case kind == fieldParts:
		err = e.decodeParts(value)
	case kind == fieldDeadline:
		e.Deadline, err = value.instant("deadline")
	case kind == fieldSince:
		e.Since, err = value.instant("start of its TTL")
	case kind == fieldLatest:
		e.Latest, err = value.instant("latest instant")
	case kind == fieldKeyHold:
		e.KeyHold, err = value.above0("key hold")
	case kind == fieldRetention:
		e.Retention, err = value.above0("retention")
	case kind == fieldCountdown:
		err = e.decodeCountdown(value)
	case kind == fieldCounts:
		if e.Counts, *value = string(*value), ""; e.Counts == "" || len(e.Counts) > maxKeyBytes {
			err = fmt.Errorf("the key for which it counts has %d bytes, want 1 to %d", len(e.Counts), maxKeyBytes)
		}
	case kind == fieldLane:
		err = e.decodeLane(value)
	case kind >= mustBeKnown:
		err = fmt.Errorf("field %d is not known, and must be", kind)
	default:
		*value = ""
	}
	return err
}

// decodeCountdown reads how many acks a message waits for.
func (e *Envelope) decodeCountdown(c *cursor) error {
	digits, err := c.take(10, "countdown")
	if err != nil {
		return err
	}
	n, err := decimal(strings.TrimLeft(digits, "0"))
	if e.Countdown = n; err != nil || n > maxCountdown {
		return fmt.Errorf("countdown is %q, want 10 digits from 1 to %d", digits, maxCountdown)
	}
	return nil
}

// decodeCounted reads how many acks have counted for a message, and for how many it waits.
func decodeCounted(text string) (counted, n int64, ok bool) {
	first, second, _ := strings.Cut(text, " ")
	counted, err1 := decimal(first)
	n, err2 := decimal(second)
	return counted, n, err1 == nil && err2 == nil
}

// decodeParts reads how many parts a group has, how many bytes all but the first have, and the key that it had.
func (e *Envelope) decodeParts(c *cursor) (err error) {
	for _, n := range []struct {
		digits int
		what   string
		into   *int64
	}{{partsDigits, "number of parts", &e.Parts}, {bytesDigits, "bytes of parts", &e.PartBytes}} {
		text, err := c.take(n.digits, n.what)
		if err != nil {
			return err
		}
		if *n.into, err = decimal(cmp.Or(strings.TrimLeft(text, "0"), "0")); err != nil {
			return fmt.Errorf("%s is %q, want %d digits", n.what, text, n.digits)
		}
	}
	e.GroupKey, *c = string(*c), ""
	if e.Parts < 1 || e.Parts > maxParts || e.Parts == 1 && e.PartBytes > 0 {
		return fmt.Errorf("it has %d parts, with %d bytes besides the first; want 1 to %d", e.Parts, e.PartBytes, maxParts)
	}
	if len(e.GroupKey) > maxKeyBytes {
		return fmt.Errorf("length of the key that it had is %d, want at most %d", len(e.GroupKey), maxKeyBytes)
	}
	return nil
}

func (e *Envelope) decodeHeaders(c *cursor) error {
	count, err := c.number("number of headers")
	if err != nil {
		return err
	}
	if count == 0 {
		return errors.New("number of headers is 0 though their flag is set")
	}
	e.Headers = map[string]string{}
	for range count {
		name, err := c.text("header name")
		if err != nil {
			return err
		}
		if _, twice := e.Headers[name]; twice {
			return fmt.Errorf("header %q stands twice", name)
		}
		if e.Headers[name], err = c.text("header value"); err != nil {
			return err
		}
	}
	return nil
}

// cursor is what is left to read of an envelope.
type cursor string

// take reads n bytes.
func (c *cursor) take(n int, what string) (string, error) {
	if len(*c) < n {
		return "", fmt.Errorf("ends within its %s: %d bytes, want %d", what, len(*c), n)
	}
	taken := string((*c)[:n])
	*c = (*c)[n:]
	return taken, nil
}

// instant reads 16 digits.
func (c *cursor) instant(what string) (int64, error) {
	digits, err := c.take(dueDigits, what)
	if err != nil {
		return 0, err
	}
	us, err := decimal(strings.TrimLeft(digits, "0"))
	if err != nil {
		return 0, fmt.Errorf("%s is %q, want 16 digits in (0, 2^53)", what, digits)
	}
	return us, nil
}

// field reads a type byte, a length and as many bytes.
func (c *cursor) field() (kind int, value cursor, err error) {
	b, err := c.take(1, "type of a field")
	if err != nil {
		return 0, "", err
	}
	text, err := c.text("field")
	return int(b[0]), cursor(text), err
}

// number reads a uvarint in its shortest form.
func (c *cursor) number(what string) (int64, error) {
	v, n := binary.Uvarint([]byte((*c)[:min(len(*c), binary.MaxVarintLen64)]))
	switch {
	case n == 0 && len(*c) < binary.MaxVarintLen64:
		return 0, fmt.Errorf("ends within its %s", what)
	case n <= 0 || v > math.MaxInt64:
		return 0, fmt.Errorf("%s overflows 63 bits", what)
	case n > 1 && (*c)[n-1] == 0:
		return 0, fmt.Errorf("%s is not in its shortest form", what)
	}
	*c = (*c)[n:]
	return int64(v), nil
}

// above0 reads a number that is left out if it is 0.
func (c *cursor) above0(what string) (int64, error) {
	v, err := c.number(what)
	if err == nil && v == 0 {
		err = fmt.Errorf("%s is 0 though it has a field", what)
	}
	return v, err
}

// text reads a uvarint and as many bytes.
func (c *cursor) text(what string) (string, error) {
	n, err := c.number("length of a " + what)
	if err != nil {
		return "", err
	}
	// As int64: a length beyond the address space must not wrap.
	return c.take(int(min(n, math.MaxInt32)), what)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
