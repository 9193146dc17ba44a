package key

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/host/inprocess"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/masterkey"
)

// rewrapping is what `key rewrap` was asked to do.
type rewrapping struct {
	data, tenantKeys string
	before, after    masterkey.Source
}

// rewrapped is what it answers.
type rewrapped struct {
	Folder string `json:"folder"`
	Keys   int    `json:"keys"`   // that were wrapped again
	Before string `json:"before"` // id of the old master key
	After  string `json:"after"`  // and of the new one

	// File has the new key, where the command has made it.
	File string `json:"file,omitempty"`
}

func newKeyRewrap(s *cli.Settings) *cobra.Command {
	var v rewrapping
	cmd := &cobra.Command{
		Use:   "rewrap",
		Short: "Wrap the keys of tenants under a new master key",
		Long: `Wrap the keys of tenants in this machine's folder of them under a new master key. The
keys of tenants and of plans stay the same, and nothing that is sealed is written again.

Stop the host first: the command is refused while one runs on --data. Start it with the new key
afterwards. Without flags the master key is
TENANT-KEYS/master.key, and a new one takes its place. A process that is killed leaves a
folder that the old or the new key opens whole: run the command again. On a cluster do the
same at every host. The old key opens nothing that this folder has from then on; destroy it,
and older copies of the folder open nothing either.`,
		Example: `  sagenbaum key rewrap --data /var/lib/sagenbaum
  sagenbaum key rewrap --master-key old.key --new-master-key new.key
  sagenbaum key rewrap --master-key old.key --new-master-key-command 'aws kms decrypt ...'`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := v.rewrap(cmd.Context())
			if err != nil {
				return explainFolder(err)
			}
			return s.Print(cmd, answer, func() {
				out := cmd.OutOrStdout()
				fmt.Fprintf(out, "%d keys in %s\nold master key  %s\nnew master key  %s\n", answer.Keys,
					cli.Printable(answer.Folder), answer.Before, answer.After)
				if answer.File != "" {
					fmt.Fprintf(out, "file            %s\n", cli.Printable(answer.File))
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&v.data, "data", "sagenbaum-data", "`DIR` of all data of the host")
	f.StringVar(&v.tenantKeys, "tenant-keys", "",
		"`DIR` of the keys of tenants (default DATA.keys, beside --data)")
	v.before.Flags(f, "master-key", masterkey.Variable,
		"`FILE` of the master key until now (default TENANT-KEYS/master.key)")
	v.after.Flags(f, "new-master-key", masterkey.NewVariable,
		"`FILE` of the new master key (default: one is made, in the place of the old one)")
	return cmd
}

func (v *rewrapping) rewrap(ctx context.Context) (answer rewrapped, err error) {
	if answer.Folder, err = masterkey.Folder(v.tenantKeys, v.data); err != nil {
		return answer, err
	}
	folder, err := vault.FindFolder(answer.Folder)
	if err != nil {
		return answer, err
	}
	release, err := v.alone()
	if err != nil {
		return answer, err
	}
	defer release()
	file := filepath.Join(answer.Folder, masterkey.DefaultName)
	var before, after []byte
	if v.before.Given() {
		before, err = v.before.Read(ctx, v.data)
	} else {
		before, err = masterkey.ReadFile(file)
	}
	if err != nil {
		return answer, err
	}
	var switched func() error
	switch {
	case v.after.Given():
		after, err = v.after.Read(ctx, v.data)
	case v.before.Given():
		return answer, cli.Fail(cli.ExitUsage, "--new-master-key FILE",
			"the new master key is missing: one is made only in the place of %s", file)
	default:
		answer.File = file
		if err = masterkey.Make(file + nextSuffix); err == nil {
			after, err = masterkey.ReadFile(file + nextSuffix)
		}
		switched = func() error { return vault.Supersede(file, file+nextSuffix) }
	}
	if err != nil {
		return answer, err
	}
	answer.Before, answer.After = vault.MasterKeyID(before), vault.MasterKeyID(after)
	answer.Keys, err = folder.Rewrap(before, after, switched)
	return answer, err
}

// alone keeps hosts off the data until release: one that runs would go on with the old master key.
func (v *rewrapping) alone() (release func(), err error) {
	var releases []func()
	release = func() {
		for _, end := range releases {
			end()
		}
	}
	for _, dir := range [...]string{v.data, inprocess.ServerDir(v.data)} { // of serve, of programs
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			continue // no host has it, and none is made here
		}
		end, err := embedded.LockFolder(dir)
		if err == nil {
			releases = append(releases, end)
			continue
		}
		release()
		if errors.Is(err, embedded.ErrInUse) {
			return nil, cli.Fail(cli.ExitConflict, "stop the host, then again",
				"cannot wrap the keys again: a host runs on --data %s", v.data)
		}
		return nil, cli.Failed("wrap the keys again", err)
	}
	return release, nil
}

// nextSuffix is of the file of a master key that is to take the place of another.
const nextSuffix = ".next"

// explainFolder turns what was found in the folder into words about the command line.
func explainFolder(err error) error {
	var refused *ledger.Refused
	switch {
	case errors.As(err, &refused):
		return cli.Fail(cli.ExitFailed, refused.Want, "cannot wrap the keys again: %s", refused.Problem)
	case errors.Is(err, fs.ErrNotExist):
		return cli.Fail(cli.ExitFailed, "--tenant-keys DIR, as of sagenbaum serve",
			"cannot wrap the keys again: %v", err)
	}
	return cli.Failed("wrap the keys again", err)
}
