package status

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/executor/view"
)

// A plan of which only a child plan waits is stuck on something, too.
func TestAStuckParentNamesWhatItWaitsFor(t *testing.T) {
	var out strings.Builder
	v := TenantStatus{Status: view.Status{Quarantined: 1},
		Stuck: []view.Plan{{Plan: "p", Owner: "ana"}}}
	WriteStatus(&out, cli.Pen{}, v, time.Now())
	if !strings.Contains(out.String(), "stuck        p, owner ana: a plan that is part of it\n") {
		t.Errorf("the status is\n%s", out.String())
	}
}
