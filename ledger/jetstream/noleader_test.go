package jetstream_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// TestWhichErrorsAreThatNoServerLeads: JetStream itself, or the stream that was asked about.
func TestWhichErrorsAreThatNoServerLeads(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]bool{10008: true, 10118: true, 10059: false, 10005: false, 0: false} {
		if jetstream.NoLeader(code) != want {
			t.Errorf("%d: %v", code, !want)
		}
	}
}
