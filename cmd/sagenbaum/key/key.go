// Package key is `sagenbaum key`: the keys that sign checkpoints, and the master key.
package key

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Command is `sagenbaum key` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "key",
		Short: "Make, list and rotate the keys that sign checkpoints; change the master key",
		Long: `Make, list and rotate the keys that sign a tenant's checkpoints. A host makes the
first key of a tenant by itself; an auditor gets its verifier key, once, and finds the
later ones in the ledger (docs/guide/checkpoints.md).

The keys of sensitive fields are others (docs/guide/keys.md): rewrap puts them under a new
master key.`,
		Example: "  sagenbaum key ls\n  sagenbaum key rotate --reason \"a year is over\"",
	}, newKeyNew(s), newKeyLs(s), newKeyRotate(s), newKeyRewrap(s))
}

// keysDefault is the folder of keys of a host that was started without flags.
var keysDefault = filepath.Join("sagenbaum-data", "executor", "keys")

func keysFlag(cmd *cobra.Command, keys *string) {
	cmd.Flags().StringVar(keys, "keys", keysDefault, "`DIR` of the host's keys")
}

func newKeyNew(s *cli.Settings) *cobra.Command {
	var keys string
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a tenant's first key, for a host that has not started yet",
		Long: `Make a tenant's first key in a folder of keys, for a host that has not started yet,
and print its verifier key. A tenant that has a key there is left as it is: sagenbaum
key rotate replaces one.`,
		Example: "  sagenbaum key new --tenant default --keys /etc/sagenbaum/keys",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			have, err := proof.Keys(keys, s.Tenant)
			if err != nil {
				return cli.Failed("read the keys", err)
			}
			if len(have) > 0 {
				return cli.Fail(cli.ExitConflict, "sagenbaum key rotate --reason WHY",
					"tenant %s has a key in %s", s.Tenant, keys)
			}
			key, err := proof.NewKey(keys, s.Tenant)
			if err != nil {
				return cli.Failed("make a key", err)
			}
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), key)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key.Verifier)
			return err
		},
	}
	keysFlag(cmd, &keys)
	return cmd
}

func newKeyLs(s *cli.Settings) *cobra.Command {
	var keys string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List a tenant's keys in a folder of keys",
		Long: `List a tenant's keys in a folder of keys, the oldest first, each with its verifier
key. It reads this machine's files only; sagenbaum status says which key the holder
signs with. A folder that holds no keys at all is an error, exit code 2; one without a
key of this tenant is not.`,
		Example: "  sagenbaum key ls --keys /etc/sagenbaum/keys\n  sagenbaum key ls -o json | jq " +
			"-r .[-1].verifier",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := proof.CheckKeys(keys); err != nil {
				return cli.Failed("read the keys", err)
			}
			have, err := proof.Keys(keys, s.Tenant)
			if err != nil {
				return cli.Failed("read the keys", err)
			}
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), append([]proof.Key{}, have...))
			}
			if len(have) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "no keys of tenant %s in %s\n", s.Tenant, keys)
				return nil
			}
			t := cli.Table{Head: []string{"MADE", "SIGNS", "VERIFIER KEY"}}
			for _, k := range have {
				signs := "no, its key is not here"
				switch {
				case k.Signs:
					signs = "yes"
				case k.Problem != "":
					signs = "no, " + k.Problem
				}
				t.Add(cli.Moment(k.Made.UnixNano()), signs, k.Verifier)
			}
			t.Write(cmd.OutOrStdout())
			return nil
		},
	}
	keysFlag(cmd, &keys)
	return cmd
}

func newKeyRotate(s *cli.Settings) *cobra.Command {
	var q api.RotationQuery
	cmd := &cobra.Command{
		Use:   "rotate --reason WHY",
		Short: "Have the holder sign checkpoints by a new key",
		Long: `Have the tenant's holder make a new key and sign checkpoints by it from here on. The
rotation is a record that the old key has signed, so that an auditor who has the old
verifier key finds the new one. Other hosts of the tenant need the new key: copy the
holder's folder of keys to them.

A key that is lost cannot sign: --lost names its verifier key, and the record says
that nothing but the holder's word joins the new key to it. Give auditors the new one.`,
		Example: `  sagenbaum key rotate --reason "a year is over" --actor alice
  sagenbaum key rotate --reason "its disk is gone" --lost 'sagenbaum/default+6c2bd2a1+AR...'`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ledger.IsBlank(q.Reason) {
				return cli.Fail(cli.ExitUsage, `--reason "a year is over"`,
					"a rotation needs a reason: it is a record that every audit shows")
			}
			if err := cli.CheckActor(q.Actor); err != nil {
				return err
			}
			if q.Lost != "" {
				if _, err := ledger.OpenKey("lost", s.Tenant, q.Lost); err != nil {
					return cli.Usage("--lost", err)
				}
			}
			answer, err := cli.Administer(cmd, s, max(s.Timeout, rotationWait), "rotate the key",
				api.KeyRotate, q)
			if err != nil {
				return err
			}
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), answer)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "new key  %s\nold key  %s\nfile     %s\n", answer.NewKey,
				answer.OldKey, cli.Printable(answer.File))
			if !answer.Signed {
				fmt.Fprintln(cmd.OutOrStdout(),
					"the old key was lost and has signed nothing: give auditors the new one")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&q.Actor, "actor", cli.DefaultActor(), "`NAME` of the operator who asks")
	cmd.Flags().StringVar(&q.Lost, "lost", "", "`VERIFIER-KEY` in force that was lost")
	return cmd
}

// rotationWait is how long a rotation is waited for at least: it is folded first.
const rotationWait = 30 * time.Second
