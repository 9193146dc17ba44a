// Package host is `sagenbaum host`: the hosts of a tenant.
package host

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/executor/view"
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
	var only cli.ListFilter
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the hosts that answer for a tenant",
		Example: "  sagenbaum host ls\n  sagenbaum host ls --watch",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			hosts, err := allHosts(s, cmd)
			if err != nil {
				return err
			}
			hosts = cli.Picked(&only, hosts)
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(),
					map[string]any{"hosts": append([]view.Host{}, hosts...)})
			}
			if len(hosts) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"no host answers\n  next: sagenbaum serve --tenant "+s.Tenant)
				return nil
			}
			p := s.Pen(cmd)
			t := cli.Table{Head: []string{"HOST", "MODE", "FOLDED", "LAST", "PROBLEM"},
				Elastic: []string{"PROBLEM"}}
			t.Paint = cli.PaintColumn(1, p.State)
			for _, h := range hosts {
				t.Add(h.Host, h.Mode, fmt.Sprint(h.Applied), fmt.Sprint(h.Last),
					cli.Dash(h.Problem))
			}
			t.Write(cmd.OutOrStdout())
			return nil
		},
	}
	only.Flag(cmd, "host", `host.mode == "standby"`)
	return cmd
}

func allHosts(s *cli.Settings, cmd *cobra.Command) ([]view.Host, error) {
	c, err := s.Connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	hosts, err := c.Hosts(cmd.Context())
	return hosts, cli.Failed("list hosts", err)
}

func newHostShow(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use:     "show HOST",
		Short:   "Show one host of a tenant",
		Example: "  sagenbaum host show host-a",
		Args:    cli.Exactly("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			hosts, err := allHosts(s, cmd)
			if err != nil {
				return err
			}
			for _, h := range hosts {
				if h.Host != args[0] {
					continue
				}
				if s.JSON() {
					return cli.PrintJSON(cmd.OutOrStdout(), h)
				}
				cli.PrintLines(cmd.OutOrStdout(),
					[][2]string{{"host", h.Host}, {"mode", h.Mode}, {"problem", h.Problem},
						{"folded", fmt.Sprintf("%d of %d", h.Applied, h.Last)}})
				return nil
			}
			return cli.Fail(cli.ExitFailed, "sagenbaum host ls", "no host %q answers for tenant %s",
				args[0], s.Tenant)
		},
	}
}
