package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
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
// for a test that has to know its server's port before the server starts. No other call, in any
// process, returns one of them while this process runs. It fails when it finds too few.
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
		listener, err := net.Listen("tcp", address)
		if err != nil {
			_ = mark.Close() // some program listens, which is no test
			continue
		}
		_ = listener.Close() // the test listens there
		reserved.by = append(reserved.by, mark)
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("found %d free ports from %d to %d, want %d",
		len(ports), firstPort, endOfPort-1, n)
}
