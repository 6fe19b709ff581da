package message

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// An IdSource makes UUIDv7s from buffered random bytes. The ids of one process rise. The last ten bits of an id are
// 0. They are for the shard of the message (WithShard).
type IdSource struct {
	mu     sync.Mutex
	random io.Reader
}

func NewIDSource() IdSource { return IdSource{random: bufio.NewReader(rand.Reader)} }

func (s *IdSource) Next() string {
	s.mu.Lock()
	id, err := uuid.NewV7FromReader(s.random)
	s.mu.Unlock()
	if err != nil {
		panic(fmt.Sprintf("delayqueue: the system gives no random bytes: %v", err)) // crypto/rand never does this
	}
	id[14], id[15] = id[14]&^3, 0 // the 52 random bits that are left keep processes apart that send within the same 256 ns
	return id.String()
}

// WithShard is an id whose last ten bits say where the shard of its message lies on the circle of slots, from 0 to
// 1023.
func WithShard(id string, at int) string {
	rest, _ := strconv.ParseUint(id[33:34], 16, 8)
	return fmt.Sprintf("%s%03x", id[:33], rest<<8&0xc00|uint64(at)&0x3ff)
}

// ShardIn is what the last ten bits of an id say; 0 of a text that is no id.
func ShardIn(id string) int {
	if len(id) != 36 {
		return 0
	}
	bits, _ := strconv.ParseUint(id[33:], 16, 16)
	return int(bits & 0x3ff)
}

// SentAt is the time in an id, in unix us by the sender's clock. The 12 bits behind the version hold a fraction of
// the ms, as an IdSource writes it. SentAt is 0 if the text is no UUIDv7.
func SentAt(id string) int64 {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return 0
	}
	head := binary.BigEndian.Uint64(u[:8])
	return int64(head>>16*1000 + head&0xfff<<8/1000)
}

// SplitTag reads a tag, the name of one delivery: the id itself for the first, <n>:<id> from
// the second on. The scripts make the later ones. Any other text is taken for the tag of a first delivery.
func SplitTag(tag string) (id string, n int) {
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
