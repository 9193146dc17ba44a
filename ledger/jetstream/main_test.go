package jetstream_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests gives the shared cluster a folder and stops it in the end.
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sagenbaum-cluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	clusterDir = dir
	testenv.Parallel(8) // they wait for disks and elections
	code := m.Run()
	if clusterStarted.Load() {
		if c, err := theCluster(); err == nil {
			c.close()
		}
	}
	return code
}
