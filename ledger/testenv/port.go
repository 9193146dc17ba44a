package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports that FreePorts hands out: above the well-known ones, and below the range from which
// an operating system serves connections and listeners on port 0, so that nothing that runs
// beside the test is given one of them by chance.
const (
	firstPort = 12_000
	endOfPort = 32_000
)

// FreePorts returns n different TCP ports of this machine on which nothing listens on 127.0.0.1,
// for a test that has to know its server's port before the server starts. It fails when it finds
// too few.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range 100 * n {
		port := firstPort + rand.IntN(endOfPort-firstPort)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		// Open until the others are found, so that no port is found twice.
		defer listener.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("found %d free ports from %d to %d, want %d",
		len(ports), firstPort, endOfPort-1, n)
}
