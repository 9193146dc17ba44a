package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The ports that FreePorts hands out: above the well-known ones, and below the range from which
// an operating system serves connections and listeners on port 0, so that nothing that runs
// beside the test is given one of them by chance.
const (
	firstPort = 12_000
	endOfPort = 32_000
)

// reserved keeps the ports that this process was given: it holds the UDP port of the same number
// until the process ends, which tells FreePorts of all other processes that the port is taken,
// also before its server listens and while that server is down.
var reserved struct {
	sync.Mutex
	by []net.PacketConn
}

// FreePorts returns n different TCP ports of this machine on which nothing listens on 127.0.0.1,
// for a test that has to know its server's port before the server starts, which [Listen] does. No
// other call, in any process, returns one of them while this process runs. It fails when it finds
// too few.
func FreePorts(n int) ([]int, error) {
	reserved.Lock()
	defer reserved.Unlock()
	ports := make([]int, 0, n)
	for range 100 * n {
		port := firstPort + rand.IntN(endOfPort-firstPort)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		mark, err := net.ListenPacket("udp", address)
		if err != nil {
			continue // another test has it
		}
		if conn, err := net.Dial("tcp", address); err == nil {
			_, _ = conn.Close(), mark.Close() // some program listens, which is no test
			continue
		}
		reserved.by = append(reserved.by, mark)
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("found %d free ports from %d to %d, want %d",
		len(ports), firstPort, endOfPort-1, n)
}

// Listen calls what starts a server on a port of FreePorts, again while the port is said to be in
// use. A process that another test is starting has, between fork and exec, all that is open in this
// one: so a listener may be there for a moment after it was closed.
func Listen(start func() error) error {
	for end := time.Now().Add(Patience); ; <-time.After(time.Millisecond) {
		err := start()
		inUse := err != nil && (errors.Is(err, syscall.EADDRINUSE) ||
			strings.Contains(err.Error(), syscall.EADDRINUSE.Error()))
		if !inUse || time.Now().After(end) {
			return err
		}
	}
}
