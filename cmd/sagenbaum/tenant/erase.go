package tenant

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
)

// eraseWait is how long `tenant erase` waits when it is not told otherwise.
const eraseWait = 2 * time.Minute

func newTenantErase(s *cli.Settings) *cobra.Command {
	var q api.TenantErasureQuery
	var confirm string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "erase TENANT --reason WHY",
		Short: "Erase a tenant for good: its key, its ledger and all that hosts keep of it",
		Long: `Erase a tenant for good. The key of the tenant is destroyed at every host, then its
ledger, the keys of its plans, its second copy, its state and its signing keys. One record
stays, signed by the tenant's own key: who erased it, when and why, and the root of its
ledger. Its name is never used again.

After it nothing that was sealed can be read, also not from a copy of the data made before,
with the master key at hand. What was not sealed can be read in such a copy, and what was
sealed, too, with a copy of the folder of tenants' keys (docs/guide/keys.md).

The command asks for the name again; --confirm gives it. It is refused (exit code 75) while
plans are open, unwind or wait for their owner; with --force it is done nevertheless, and
what they owe is never undone. The server need not be restarted. A host that is killed goes
on when it starts, and one that is away erases its part then. Erasing twice is harmless.`,
		Example: `  sagenbaum tenant erase shops --reason "the contract has ended"
  sagenbaum tenant erase shops --reason "the contract has ended" --confirm shops`,
		Args: cli.Exactly("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Tenant = args[0]
			if err := checkErasure(q, limit); err != nil {
				return err
			}
			if err := confirmed(cmd, q.Tenant, confirm); err != nil {
				return err
			}
			s.Tenant = q.Tenant
			answer, err := cli.Administer(cmd, s, max(s.Timeout, limit), "erase the tenant",
				api.TenantErase, q)
			if err != nil {
				return err
			}
			if answer.Refused != "" {
				return cli.Fail(cli.ExitConflict,
					"let them end first (sagenbaum plan ls), or force it with --force",
					"tenant %s is not erased: %s", q.Tenant, answer.Refused)
			}
			return s.Print(cmd, answer.Erasure, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", render.TenantErasureText(cli.ForPeople(*answer.Erasure)))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Reason, "reason", "", "why, for the record; required")
	f.StringVar(&q.Actor, "actor", cli.DefaultActor(), "`NAME` of the person who erases")
	f.BoolVar(&q.Force, "force", false, "also while plans are not at their end")
	f.StringVar(&confirm, "confirm", "", "`TENANT` again, where no one can type it")
	f.DurationVar(&limit, "wait-timeout", eraseWait, "how long to wait at most until it is done")
	return cmd
}

func checkErasure(q api.TenantErasureQuery, limit time.Duration) error {
	switch {
	case !ledger.ValidToken(q.Tenant):
		return cli.Fail(cli.ExitUsage, "sagenbaum tenant ls", "%.80q is no tenant", q.Tenant)
	case ledger.IsBlank(q.Reason):
		return cli.Fail(cli.ExitUsage, `--reason "the contract has ended"`,
			"an erasure needs a reason: it is for good")
	}
	if err := cli.CheckWait(limit, "2m"); err != nil {
		return err
	}
	return cli.CheckActor(q.Actor)
}

// confirmed has the name of the tenant typed again.
func confirmed(cmd *cobra.Command, tenant, given string) error {
	if given == "" {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"Tenant %s is erased for good, with its ledger and its keys. Type its name to go on: ", tenant)
		line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return cli.Failed("read the name", err)
		}
		given = strings.TrimSpace(line)
	}
	if given != tenant {
		return cli.Fail(cli.ExitUsage, "type "+tenant+", or --confirm "+tenant,
			"%.80q is not the name of the tenant: nothing is erased", given)
	}
	return nil
}

// erasureOf is the erasure of a tenant that no host serves; nil: it was not erased, or may not
// be asked for.
func erasureOf(ctx context.Context, s *cli.Settings, tenant string) (erased *api.TenantErasure) {
	s.Everywhere(true)
	err := s.With(func(c *cli.Client) error {
		var answer api.ErasedAnswer
		subject := api.ServerSubject(api.TenantErased)
		if err := c.Call(ctx, subject, api.ErasedQuery{Tenant: tenant}, &answer); err != nil {
			return err
		}
		return json.Unmarshal(answer.Erasure, &erased)
	})
	if err != nil {
		return nil
	}
	return erased
}
