//go:build exercise

// Package torture runs the command under load and takes its processes, disks and servers away, as
// docs/reliability.md describes.
package torture

import (
	"os"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(asNATS) != "" {
		runAsNATS(os.Args[1:])
		return
	}
	if role := os.Getenv(asActor); role != "" {
		os.Exit(playActor(role))
	}
	testenv.Parallel(6) // they wait for processes, elections and leases
	os.Exit(m.Run())
}
