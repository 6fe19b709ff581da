package delayqueue

import (
	"fmt"
	"strconv"
	"sync/atomic"
)

// A writePermit permits one attempt at a call to be written to a connection, until it is revoked. Whoever revokes it
// before it was used knows that the attempt had no effect and will have none, however late it gets a connection.
// It is safe for concurrent use.
type writePermit struct {
	state atomic.Int32
	call  int64 // number of the call
}

const (
	permitUnused = iota
	permitUsed
	permitRevoked
)

var errRevoked = fmt.Errorf("%w, and nothing of it was written", errLeft)

// use returns errRevoked if the permit is revoked. It may be used again.
func (p *writePermit) use() error {
	if p.state.CompareAndSwap(permitUnused, permitUsed) || p.state.Load() == permitUsed {
		return nil
	}
	return errRevoked
}

// revoke revokes the permit unless it was used, and says whether it is revoked now.
func (p *writePermit) revoke() bool {
	return p.state.CompareAndSwap(permitUnused, permitRevoked) || p.state.Load() == permitRevoked
}

func (p *writePermit) String() string { return strconv.FormatInt(p.call, 10) }

// MarshalBinary makes the number of the call out of the permit, which is an argument of the command. go-redis calls it
// when it writes the command to a connection.
func (p *writePermit) MarshalBinary() ([]byte, error) {
	return strconv.AppendInt(nil, p.call, 10), p.use()
}
