package executor_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects less often: half of the time of these tests would be the collector's,
// over worlds that are gone a moment later.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800)
	}
	os.Exit(m.Run())
}
