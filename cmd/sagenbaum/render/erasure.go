package render

import (
	"fmt"
	"strings"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TenantErasureText says that a tenant was erased, by whom and why, and what its ledger was.
func TenantErasureText(e api.TenantErasure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "tenant %s was erased by %s (%s): %s\n", e.Tenant, e.Actor, cli.Moment(e.AtNs),
		e.Reason)
	fmt.Fprintf(&b, "ledger       %d records, root %x\n", e.Records, e.Root)
	if e.CheckpointSize > 0 {
		fmt.Fprintf(&b, "checkpoint   %d records, root %x\n", e.CheckpointSize, e.CheckpointRoot)
	}
	fmt.Fprintf(&b, "signed by    %s\n", e.Key)
	if e.Kid != "" {
		fmt.Fprintf(&b, "its key      %s, destroyed\n", e.Kid)
	}
	if e.Done == nil {
		b.WriteString("done         not yet: a host that serves it goes on")
	} else {
		fmt.Fprintf(&b, "done         %s, by host %s", cli.Moment(e.Done.AtNs), e.Done.Host)
	}
	return b.String()
}
