// Package tenant is `sagenbaum tenant`: the tenants of a server.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	ledgercmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Command is `sagenbaum tenant` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "tenant",
		Short:   "Add tenants to a server, say what each may use, and erase them",
		Example: "  sagenbaum tenant add shops\n  sagenbaum tenant ls\n  sagenbaum tenant show shops",
	}, newTenantAdd(s), cli.Watchable(s, newTenantLs(s)), cli.Watchable(s, newTenantShow(s)),
		newTenantLimits(s), newTenantSuspend(s), newTenantResume(s), newTenantExport(s),
		newTenantErase(s))
}

// tenantListed is a tenant as `tenant ls` tells it.
type tenantListed struct {
	Tenant  string      `json:"tenant"`
	Problem string      `json:"problem,omitempty"` // why its status cannot be told
	Status  *api.Status `json:"status,omitempty"`
}

func newTenantLs(s *cli.Settings) *cobra.Command {
	return cli.List[tenantListed]{
		Command: &cobra.Command{
			Use:   "ls",
			Short: "List the tenants that have a ledger at the server, with the status of each",
			Long: `List the tenants that have a ledger at the server, with the status of each.
Exit code 1 when one of them needs attention, as with 'status'.

MODE is the mode of its host, and "suspended" where the tenant is. HELD counts
registrations; OPEN, UNWINDING and QUARANTINED count plans. WAITING counts the commands
that no worker has taken, or that could not be sent: 'tenant show' says why.`,
			Example: `  sagenbaum tenant ls
  sagenbaum tenant ls --filter 'tenant.status.quarantined > 0'
  sagenbaum tenant ls --filter tenant.status.may.suspended`,
			Annotations: map[string]string{cli.Everyone: "true"},
		},
		Doing: "list tenants", Name: "tenant", Filter: "tenant.status.quarantined > 0",
		Ask: func(in cli.Listing) ([]tenantListed, string, error) {
			all, err := tenantsListed(in.Ctx, in.Client)
			return all, "", err
		},
		Data:  func(all []tenantListed, _ string) any { return map[string]any{"tenants": all} },
		Empty: "no tenant has a ledger here\n  next: sagenbaum tenant add NAME",
		Table: cli.Table{Head: []string{"TENANT", "MODE", "HELD", "OPEN", "UNWINDING", "QUARANTINED",
			"WAITING", "NEXT DUE", "HOLDER"}, Elastic: []string{"HOLDER"},
			Spare: []string{"HOLDER", "NEXT DUE"}},
		Paint: cli.Pen.State,
		Row:   addTenant,
		Look:  func(t tenantListed) bool { return t.Status == nil || status.WantsLook(*t.Status) },
	}.New(s)
}

func tenantsListed(ctx context.Context, c *cli.Client) (all []tenantListed, err error) {
	answer, err := c.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	mine := c.Tenant
	defer func() { c.Tenant = mine }()
	for _, name := range answer.Tenants {
		c.Tenant = name
		listed := tenantListed{Tenant: name}
		status, err := c.Status(ctx)
		var f *cli.Failure
		switch {
		case err == nil:
			listed.Status = &status
		case errors.As(err, &f):
			listed.Problem = f.Text
		default:
			listed.Problem = err.Error()
		}
		all = append(all, listed)
	}
	for _, name := range answer.Forgotten {
		all = append(all, tenantListed{Tenant: name,
			Problem: "its tiles are here, and the control stream does not name it: sagenbaum doctor"})
	}
	return all, nil
}

func addTenant(t *cli.Table, one tenantListed) {
	v := one.Status
	if v == nil {
		t.Add(one.Tenant, "unknown", "-", "-", "-", "-", "-", "-", "-")
		t.Note(1, one.Problem)
		return
	}
	mode, by := v.Mode, status.Suspended(*v)
	if by != "" {
		mode += ", suspended"
	}
	t.Add(one.Tenant, mode, fmt.Sprint(v.Held), fmt.Sprint(v.Open), fmt.Sprint(v.Unwinding),
		fmt.Sprint(v.Quarantined), fmt.Sprint(status.Waiting(*v)),
		render.DueText(v.NextDueNs, time.Now()), cli.Dash(v.Holder))
	if by != "" {
		t.Note(1, "suspended "+by)
	}
}

func newTenantShow(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use:   "show TENANT",
		Short: "Show the status of one tenant, and all that is set of it",
		Long: `Show the status of one tenant, as 'status --tenant TENANT' does, and what 'tenant add'
and 'tenant limits' have set of it: who has changed it last, and each limit, under the
name of its flag, or its default. A tenant that is in no control stream has none of these.
Of a tenant that was erased, show its erasure. Exit code 1 as with 'status'.`,
		Example: "  sagenbaum tenant show default\n  sagenbaum tenant show shops -o json",
		Args:    cli.Exactly("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !ledger.ValidToken(args[0]) {
				return cli.Fail(cli.ExitUsage, "sagenbaum tenant ls", "%.80q is no tenant", args[0])
			}
			s.Tenant = args[0]
			err := status.ShowStatus(cmd, s, writeTenant)
			var f *cli.Failure
			if !errors.As(err, &f) || f.Code != cli.ExitNoServer {
				return err
			}
			erased := erasureOf(cmd.Context(), s, args[0])
			if erased == nil {
				return err
			}
			return s.Print(cmd, api.Status{Tenant: args[0], Mode: api.ModeErased, Erased: erased},
				func() {
					fmt.Fprintln(cmd.OutOrStdout(), render.TenantErasureText(cli.ForPeople(*erased)))
				})
		},
	}
}

// writeTenant prints the status of a tenant for people, and what its entry sets.
func writeTenant(w io.Writer, p cli.Pen, v status.TenantStatus, now time.Time) {
	status.WriteStatus(w, p, v, now)
	if v.Entry == nil || v.Effective == nil {
		return
	}
	e := cli.ForPeople(*v.Entry)
	by := "by " + e.By
	if e.Reason != "" {
		by += ": " + e.Reason
	}
	fmt.Fprintf(w, "%-12s %s, %s\n", "changed", cli.Relative(e.AtNs, now), by)
	writeLimits(w, e, *v.Effective)
}

// newTenantExport is 'ledger export' for a tenant by its name.
func newTenantExport(s *cli.Settings) *cobra.Command {
	cmd := ledgercmd.Export(s, "TENANT")
	cmd.Use = "export TENANT -f FILE | --tiles DIR"
	cmd.Short = "Write a tenant's ledger into a bundle or a folder of tiles, as 'ledger export' does"
	cmd.Long = `Write the ledger of a tenant into a bundle, or into a folder of tlog-tiles: the same as
'ledger export --tenant TENANT', which has the details. That is all that a host can give
away. Keys stay where they are: a move takes the folder of tenants' keys and that of the
keys that sign checkpoints along (docs/guide/keys.md).`
	cmd.Example = `  sagenbaum tenant export shops -f shops.bundle
  sagenbaum tenant export shops --tiles shops.tiles`
	return cmd
}
