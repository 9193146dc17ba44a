// Package host is `sagenbaum host`: the hosts of a tenant.
package host

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Command is `sagenbaum host` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:     "host",
		Short:   "See the hosts that hold a tenant or stand by",
		Example: "  sagenbaum host ls\n  sagenbaum host show host-a",
	}, cli.Watchable(s, newHostLs(s)), cli.Watchable(s, newHostShow(s)))
}

func newHostLs(s *cli.Settings) *cobra.Command {
	return cli.List[api.Host]{
		Command: &cobra.Command{
			Use:     "ls",
			Short:   "List the hosts that answer for a tenant",
			Example: "  sagenbaum host ls\n  sagenbaum host ls --watch",
		},
		Doing: "list hosts", Name: "host", Filter: `host.mode == "standby"`,
		Ask: func(in cli.Listing) ([]api.Host, string, error) {
			hosts, err := in.Client.Hosts(in.Ctx)
			return hosts, "", err
		},
		Data:  func(hosts []api.Host, _ string) any { return map[string]any{"hosts": hosts} },
		Empty: "no host answers\n  next: sagenbaum serve --tenant TENANT",
		Table: cli.Table{Head: []string{"HOST", "MODE", "FOLDED", "LAST", "PROBLEM"},
			Elastic: []string{"PROBLEM"}},
		Paint: cli.Pen.State,
		More: func(hosts []api.Host) string {
			twins := cli.Twins(hosts)
			if len(twins) == 0 {
				return ""
			}
			return "several hosts have one name: " + strings.Join(twins, "; ") + "\n  next: " + cli.OwnNames
		},
		Row: func(t *cli.Table, h api.Host) {
			t.Add(h.Host, h.Mode, fmt.Sprint(h.Applied), fmt.Sprint(h.Last), cli.Dash(h.Problem))
		},
	}.New(s)
}

func newHostShow(s *cli.Settings) *cobra.Command {
	return cli.Show[api.Host]{
		Command: &cobra.Command{
			Use:     "show HOST",
			Short:   "Show one host of a tenant",
			Example: "  sagenbaum host show host-a",
			Args:    cli.Exactly("HOST"),
		},
		Doing: "list hosts",
		Ask: func(ctx context.Context, c *cli.Client, args []string) (api.Host, error) {
			hosts, err := c.Hosts(ctx)
			if err != nil {
				return api.Host{}, err
			}
			at := slices.IndexFunc(hosts, func(h api.Host) bool { return h.Host == args[0] })
			if at < 0 {
				return api.Host{}, cli.Fail(cli.ExitFailed, "sagenbaum host ls",
					"no host %q answers for tenant %s", args[0], s.Tenant)
			}
			return hosts[at], nil
		},
		Write: func(out io.Writer, _ cli.Pen, h api.Host) {
			cli.PrintLines(out, [][2]string{{"host", h.Host}, {"mode", h.Mode},
				{"problem", h.Problem}, {"at", h.At},
				{"folded", fmt.Sprintf("%d of %d", h.Applied, h.Last)}})
		},
	}.New(s)
}
