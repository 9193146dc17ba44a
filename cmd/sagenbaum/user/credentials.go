package user

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// refused is what was refused, in words of the command line.
func refused(err error) error { return refusedAs(err, "", cli.ExitFailed) }

// refusedAs is refused for a user with a role, with an exit code.
func refusedAs(err error, role access.Role, code int) error {
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		return explained(access.Answer{Error: refused.Problem, Field: refused.Field,
			Want: refused.Want}, role, code)
	}
	return err
}

// rolesText lists the roles that a user may be added with.
func rolesText(elsewhere bool) string {
	var names []string
	for _, r := range access.RolesToAdd(elsewhere) {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// prepare refuses a file that could not be written, or that is not of the user before, before the
// server has changed anything: there may be no other copy of a key.
func (d *describing) prepare(u access.User) error {
	if d.out == "" {
		return nil
	}
	info, err := os.Stat(d.out)
	if err == nil && !info.Mode().IsRegular() {
		return cli.Fail(cli.ExitUsage, "--out with the name of a file", "%s is no file", d.out)
	}
	if err == nil && info.Size() > 0 {
		text, _ := os.ReadFile(d.out)
		c, err := access.ParseCredentials(text)
		if err != nil || c.Name != u.Name || c.Tenant != u.Tenant {
			of := "other things"
			if err == nil {
				of = fmt.Sprintf("the credentials of %s %s of tenant %s", c.Role, c.Name, tenantText(c.Tenant))
			}
			return cli.Fail(cli.ExitFailed, "--out with another file, or move this one away",
				"%s has %s, maybe their only copy", d.out, of)
		}
	}
	folder := filepath.Dir(d.out)
	file, err := os.CreateTemp(folder, ".new-")
	if err == nil {
		err = errors.Join(file.Close(), os.Remove(file.Name()))
	}
	if err != nil {
		return cli.Fail(cli.ExitFailed, "--out with a file in a folder that is there and that you may "+
			"write", "cannot write to %s: %v", folder, err)
	}
	return nil
}

// issue hands out the credentials of a user that was added, or has a new key: to a file, or
// printed. It is the only copy of the key.
func (d *describing) issue(cmd *cobra.Command, s *cli.Settings, p *place, c access.Credentials,
	u access.User, a access.Answer) error {
	err := p.issue(&c, u)
	if err != nil {
		return err
	}
	c.Servers, c.CA, c.Door = a.Servers, a.CA, a.Door
	if d.url != "" {
		c.Servers = d.url
	}
	text, err := c.Format()
	if err != nil {
		return err
	}
	if d.out == "" {
		return printCredentials(cmd, text)
	}
	if err := access.WriteSecret(d.out, text); err != nil {
		return cli.Fail(cli.ExitFailed, "sagenbaum user rotate "+u.Name+" --out FILE gives another key",
			"%s is a user now, and its credentials cannot be written: %v", u.Name, err)
	}
	return s.Print(cmd, map[string]string{"user": u.Name, "role": string(u.Role),
		"tenant": u.Tenant, "file": d.out}, func() {
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s of tenant %s · %s\n", u.Role, u.Name,
			tenantText(u.Tenant), d.out)
		fmt.Fprintf(cmd.ErrOrStderr(), "  next: SAGENBAUM_CREDS=%s\n", d.out)
	})
}

// printCredentials writes the text of a file of credentials to stdout.
func printCredentials(cmd *cobra.Command, text []byte) error {
	out := cmd.OutOrStdout()
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			_ = file.Chmod(0o600) // the shell has made it for everybody to read
		}
	}
	_, err := out.Write(text)
	return err
}
