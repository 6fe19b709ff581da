package script

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file has the names of the shards of a queue over several slots, and how many there are. docs/redis.md,
// "Shards", is for both.

// MaxShards is how many shards a queue may have.
const MaxShards = 64

// slots are those of a Redis Cluster.
const slots = 16384

// crcTable is of CRC-16/XMODEM, as the Cluster specification has it
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			crc = crc<<1 ^ crc>>15*0x1021
		}
		table[i] = crc
	}
	return table
}()

func crc16[T string | []byte](crc uint16, text T) uint16 {
	for i := range len(text) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^text[i]]
	}
	return crc
}

// HashTag is the part of a name that decides on its slot: what stands between the first { and the first } behind it,
// if that is anything.
func HashTag(name string) string {
	if _, rest, found := strings.Cut(name, "{"); found {
		if tag, _, found := strings.Cut(rest, "}"); found && tag != "" {
			return tag
		}
	}
	return name
}

// Slot is the slot of a key or a name.
func Slot(name string) int { return int(crc16(0, HashTag(name)) % slots) }

// ShardOf is the shard of a name, one of so many.
func ShardOf(name string, of int) int { return Slot(name) * of / slots }

// shardName is the name under which shard i of so many lies, and the name of the queue for the first. The slots of
// the shards divide the circle of slots evenly. A name ends in the smallest number that leads to its slot.
func shardName(prefix, name string, i, of int) string {
	if i == 0 {
		return name
	}
	crc := crc16(0, prefix+":"+name)
	slot := (int(crc%slots) + i*slots/of) % slots
	crc = crc16(crc, "/")
	var room [8]byte
	for salt := int64(0); ; salt++ { // some 16,000 are tried
		digits := strconv.AppendInt(room[:0], salt, 10)
		if int(crc16(crc, digits)%slots) == slot {
			return name + "/" + string(digits)
		}
	}
}

// NewShard makes a store for shard i of so many.
func NewShard(cli redis.UniversalClient, prefix, name string, i, of int) *Store {
	s := NewStore(cli, prefix, shardName(prefix, name, i, of))
	s.Queue, s.Shard, s.shards = name, fmt.Sprintf("shard %d of %d", i+1, of), strconv.Itoa(of)
	return s
}

// Shards returns how many shards this one says that the queue has. If it does not say so, it says n from now on; 0: it
// goes on to say nothing, and 0 is returned. It does not say n if it was used: then the queue has one.
func (s *Store) Shards(ctx context.Context, n int) (int, error) { return s.askShards(ctx, n) }

// CopyShards notes in another shard that the queue has n shards, as the first one says.
func (s *Store) CopyShards(ctx context.Context, n int) error {
	_, err := s.askShards(ctx, n, "copy")
	return err
}

func (s *Store) askShards(ctx context.Context, args ...any) (has int, err error) {
	cmd, err := eval(ctx, s, ShardsScript, args, 0, redis.NewIntCmd)
	if err != nil {
		return 0, err
	}
	if has = int(cmd.Val()); has < 0 || has > MaxShards {
		return 0, fmt.Errorf("%w: %d shards", ErrBadReply, has)
	}
	return has, nil
}
