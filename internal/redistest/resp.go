package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

const (
	readerSize  = 64 << 10 // bytes
	maxBulk     = 1 << 30  // bytes; the server's own limit is 512 MB
	maxElements = 1 << 24
	maxDepth    = 64
)

// errProtocol says that what came is not RESP.
var errProtocol = errors.New("redistest: not RESP")

// frameReader cuts a stream of RESP into whole commands or whole replies. It
// keeps their bytes as they came; each byte is copied once.
type frameReader struct {
	br *bufio.Reader
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{br: bufio.NewReaderSize(r, readerSize)}
}

// buffered tells whether more has arrived than was returned.
func (r *frameReader) buffered() bool { return r.br.Buffered() > 0 }

// span is where an argument lies in a frame.
type span struct{ from, to int }

// readCommand appends one command to dst, as it came, and returns its words,
// the command's name first. An empty command, to which no server replies, has
// no words. Words of an inline command end at white space; quotes mean nothing.
// At the stream's end, in the middle of a command too, the error is not
// errProtocol.
func (r *frameReader) readCommand(dst []byte) (frame []byte, words []string, err error) {
	dst, head, err := r.readHead(dst)
	if err != nil {
		return dst, nil, err
	}
	if len(head) == 0 || head[0] != '*' {
		for _, word := range bytes.Fields(head) {
			words = append(words, string(word))
		}
		return dst, words, nil
	}
	n, err := length(head, maxElements)
	if err != nil {
		return dst, nil, err
	}
	var spans []span
	for range n {
		dst, head, err = r.readHead(dst)
		if err != nil {
			return dst, nil, err
		}
		if len(head) == 0 || head[0] != '$' {
			return dst, nil, fmt.Errorf("%w: argument begins %.40q", errProtocol, head)
		}
		size, err := length(head, maxBulk)
		if err != nil {
			return dst, nil, err
		}
		if size < 0 {
			return dst, nil, fmt.Errorf("%w: argument is null", errProtocol)
		}
		from := len(dst)
		if dst, err = r.readBulk(dst, size); err != nil {
			return dst, nil, err
		}
		spans = append(spans, span{from, from + size})
	}
	for _, s := range spans { // only now, as dst may have moved
		words = append(words, string(dst[s.from:s.to]))
	}
	return dst, words, nil
}

// readReply appends one frame that a server sent to dst, as it came: a whole
// reply with the attributes before it, or a push, which answers no command.
// All types of RESP2 and RESP3 are known but the streamed ones, which no
// server sends. Errors are as readCommand's.
func (r *frameReader) readReply(dst []byte) (frame []byte, push bool, err error) {
	return r.readValue(dst, 0)
}

func (r *frameReader) readValue(dst []byte, depth int) (frame []byte, push bool, err error) {
	if depth > maxDepth {
		return dst, false, fmt.Errorf("%w: nested more than %d deep", errProtocol, maxDepth)
	}
	dst, head, err := r.readHead(dst)
	if err != nil {
		return dst, false, err
	}
	if len(head) == 0 {
		return dst, false, fmt.Errorf("%w: reply begins with an empty line", errProtocol)
	}
	kind := head[0]
	var n int
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return dst, false, nil
	case '$', '=', '!':
		if n, err = length(head, maxBulk); err == nil && n >= 0 {
			dst, err = r.readBulk(dst, n)
		}
		return dst, false, err
	case '*', '~', '>':
		n, err = length(head, maxElements)
	case '%', '|':
		n, err = length(head, maxElements/2)
		n *= 2
	default:
		err = fmt.Errorf("%w: reply begins %.40q", errProtocol, head)
	}
	if err != nil {
		return dst, false, err
	}
	for range n {
		if dst, _, err = r.readValue(dst, depth+1); err != nil {
			return dst, false, err
		}
	}
	if kind == '|' { // attributes belong to the value that follows them
		return r.readValue(dst, depth+1)
	}
	return dst, kind == '>', nil
}

// readHead appends one line to dst, its end included. head is the line without its end.
func (r *frameReader) readHead(dst []byte) (frame, head []byte, err error) {
	start := len(dst)
	for {
		part, err := r.br.ReadSlice('\n')
		dst = append(dst, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return dst, trimLine(dst[start:]), err
		}
	}
}

// readBulk appends n bytes and the line end behind them to dst. What has to
// grow grows by doubling, as append does, so the cost is linear.
func (r *frameReader) readBulk(dst []byte, n int) ([]byte, error) {
	start := len(dst)
	dst = slices.Grow(dst, n+2)[:start+n+2]
	if _, err := io.ReadFull(r.br, dst[start:]); err != nil {
		return dst[:start], err
	}
	if end := dst[start+n:]; !bytes.Equal(end, []byte("\r\n")) {
		return dst, fmt.Errorf("%w: bulk of %d bytes ends in %q", errProtocol, n, end)
	}
	return dst, nil
}

// length reads the number behind a frame's first byte; -1 means null.
func length(head []byte, limit int) (int, error) {
	n, err := strconv.Atoi(string(head[1:]))
	if err != nil || n < -1 || n > limit {
		return 0, fmt.Errorf("%w: length in %.40q", errProtocol, head)
	}
	return n, nil
}

// trimLine cuts the end off a line.
func trimLine(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
