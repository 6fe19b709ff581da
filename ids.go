package delayqueue

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/google/uuid"
)

// idSource makes UUIDv7s from buffered random bytes. Those of one process rise. Their last ten bits are reserved, and 0:
// one queue over several slots will have there in which of them a message is.
type idSource struct {
	mu     sync.Mutex
	random io.Reader
}

func newIDSource() idSource { return idSource{random: bufio.NewReader(rand.Reader)} }

func (s *idSource) next() string {
	s.mu.Lock()
	id, err := uuid.NewV7FromReader(s.random)
	s.mu.Unlock()
	if err != nil {
		panic(fmt.Sprintf("delayqueue: the system gives no random bytes: %v", err)) // crypto/rand never does this
	}
	id[14], id[15] = id[14]&^3, 0 // the 52 random bits that are left keep processes apart that send within the same 256 ns
	return id.String()
}

// sentAt is the time in an id, us by the clock of the sender: version 7, with a fraction of the ms in the 12 bits
// behind it, as idSource makes them. 0 if it is none.
func sentAt(id string) int64 {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return 0
	}
	head := binary.BigEndian.Uint64(u[:8])
	return int64(head>>16*1000 + head&0xfff<<8/1000)
}
