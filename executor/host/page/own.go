package page

import (
	"fmt"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Pages about this host: a command that finds no end, a clock that jumped. No record
// asks for them and none says that they were taken. A process that is killed before
// they were forgets them, and the next one finds the reason again; the id of a
// command's page is the same then.

// Stuck calls operators to a command that has found no end since an instant; working, if
// its worker says that it is at it still.
func Stuck(c executor.Command, working bool, since time.Time) api.Page {
	reason := fmt.Sprintf("no worker serves %s", c.Capability)
	switch {
	case working:
		reason = fmt.Sprintf("a worker of %s says that it is still working", c.Capability)
	case c.Handler != "":
		reason = fmt.Sprintf("no process offers %s", c.Handler)
	}
	return api.Page{
		ID: fmt.Sprintf("stuck-%s-%s-%d", c.Address, c.Purpose, c.Attempt), Kind: api.PageStuckWorker,
		Hook: api.PageOperators, Tenant: c.Tenant,
		Plan: c.Plan, Action: c.Action, Capability: c.Capability, Reason: reason + ", since " +
			since.UTC().Format(time.RFC3339), AtNs: since.UnixNano(),
	}
}

// ClockGuard calls operators to the clock of a host, which is ahead of where it should be.
func ClockGuard(tenant, holder string, ahead time.Duration) api.Page {
	now := time.Now()
	return api.Page{
		ID:   fmt.Sprintf("clock-%s-%s-%d", tenant, holder, now.UnixNano()),
		Kind: api.PageClockGuard, Hook: api.PageOperators, Tenant: tenant,
		Reason: fmt.Sprintf("the wall clock of host %s is %s ahead of its monotonic clock",
			holder, ahead.Round(time.Millisecond)), AtNs: now.UnixNano(),
	}
}
