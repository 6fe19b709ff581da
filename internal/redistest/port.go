package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports come from below the range that systems use for outgoing connections
// (32768 and up on Linux, 49152 and up elsewhere), those of the cluster bus
// included. A port that the kernel picks would lie inside it, and while its
// server is stopped any connection on the machine could take it away.
const (
	portLow   = 10000 // first port that is given out
	portHigh  = 20000 // first port that is not
	busOffset = 10000 // a cluster node's bus listens on its port plus this

	portAttempts = 500
)

// reserved holds the ports that this process uses, those of stopped servers
// and cut wires included.
var reserved = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// ReservePort returns a loopback port that is free now, with a free bus port
// above it, and that no other call in this process gets until ReleasePort.
// Another process may still take it before it is listened on.
func ReservePort() (int, error) {
	for range portAttempts {
		port := portLow + rand.IntN(portHigh-portLow)
		reserved.Lock()
		taken := reserved.ports[port]
		reserved.ports[port] = true
		reserved.Unlock()
		if taken {
			continue
		}
		if portFree(port) && portFree(port+busOffset) {
			return port, nil
		}
		ReleasePort(port)
	}
	return 0, fmt.Errorf("redistest: found no free port from %d to %d", portLow, portHigh-1)
}

// ReleasePort lets others have a port that ReservePort returned.
func ReleasePort(port int) {
	reserved.Lock()
	defer reserved.Unlock()
	delete(reserved.ports, port)
}

// portFree tells whether port can be listened on now.
func portFree(port int) bool {
	ln, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

// loopback returns the address of a port on this machine.
func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
