package host

import (
	"os"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

func TestMain(m *testing.M) {
	testenv.Parallel(4) // each has a server and a state of its own, and waits for the disk
	os.Exit(m.Run())
}
