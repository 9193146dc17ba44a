// Package exercise has no code: below it are the exercises, which run the built command as real
// processes, against real disks, clusters, browsers and time. They take minutes and want the
// machine for themselves, so that `go test ./...` does not compile them: their files have the
// build tag exercise. `make exercises` runs them, one package after the other.
//
//   - torture: kills, power cuts, flipped bits, full disks, failing system calls, and clusters of
//     NATS servers and hosts that lose members; no promise may break
//   - deploy: what deploy/ ships, in a real Prometheus and systemd's terms, and small disks
//   - upgrade: two versions of the command that take turns on one folder
//   - mcp: the gateway between reference clients and servers of npm
//   - demo: the demo as it is run
//
// An exercise that needs a program which is not there, or root, says so and is skipped.
package exercise
