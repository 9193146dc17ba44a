package console

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/host/console/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// usersFile is where serve keeps users unless it is told otherwise.
const usersFile = "sagenbaum-data/console/users"

func users(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "users",
		Short: "Add, list and remove users of the console; a running server reads the file again",
		Example: "  sagenbaum console users ls\n" +
			"  sagenbaum console users add bo --role operator --on travel --expires 90d",
	}, newUsersAdd(s), newUsersLs(s), newUsersRotate(s), newUsersRm(s))
}

// fileFlag adds the flag of the file that a command is about.
func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "file", usersFile,
		"`FILE` of users, as serve --console-users has it")
}

// userView is a user as `console users` shows it.
type userView struct {
	Name    string   `json:"name"`
	Role    string   `json:"role"`
	Tenants []string `json:"tenants"`
	Expires string   `json:"expires,omitempty"`
	OldForm bool     `json:"old_form,omitempty"` // its line names no role
	Token   string   `json:"token,omitempty"`    // of a user that was made just now
}

func viewOf(u access.User) userView {
	v := userView{
		Name: u.Name, Role: u.Grants[0].Role.String(), Tenants: u.Grants[0].Tenants,
		OldForm: u.OldForm(),
	}
	if !u.Expires.IsZero() {
		v.Expires = u.Expires.Format(time.RFC3339)
	}
	return v
}

// made prints a user with its token, which is nowhere else.
func made(s *cli.Settings, cmd *cobra.Command, u access.User, token string) error {
	v := viewOf(u)
	v.Token = token
	return s.Print(cmd, v, func() {
		fmt.Fprintln(cmd.OutOrStdout(), token)
		fmt.Fprintf(cmd.ErrOrStderr(), "the token of %s, %s; it is shown once\n", u.Name,
			cli.Printable(u.Grants.String()))
	})
}

func newUsersAdd(s *cli.Settings) *cobra.Command {
	var file, role, expires string
	var tenants []string
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a user and print the token, once",
		Long: `Add a user and print the token, once: the file keeps its argon2id hash. A reader sees
everything of the tenants but sealed values, an operator also acts, and an admin also
sees and ends sessions. A running server reads the file again within a second.`,
		Example: `  sagenbaum console users add bo --role operator --on travel --on shops
  sagenbaum console users add audit --role reader --on '*' --expires 2027-06-30`,
		Args: cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			grant, end, err := granted(role, tenants, expires)
			if err != nil {
				return refused("add the user", err)
			}
			token := access.Secret()
			u, err := access.NewUser(args[0], token, grant, end)
			if err == nil {
				err = access.WriteUsers(file, func(lines []string) ([]string, error) {
					return append(lines, u.String()), nil
				})
			}
			if err != nil {
				return refused("add the user", err)
			}
			return made(s, cmd, u, token)
		},
	}
	fileFlag(cmd, &file)
	cmd.Flags().StringVar(&role, "role", "reader", "`ROLE`: reader, operator or admin")
	cmd.Flags().StringArrayVar(&tenants, "on", nil,
		"`TENANT` of the role, or * for all; may be given more than once; required")
	cmd.Flags().StringVar(&expires, "expires", "",
		"`WHEN` the user ends: 90d, 2027-06-30 or 2027-06-30T18:00:00Z; default never")
	return cmd
}

// granted reads what a user may do, and until when.
func granted(role string, on []string, expires string) (g access.Grant, end time.Time, err error) {
	if g.Role, err = access.ParseRole(role); err != nil {
		return g, end, err
	}
	if g.Tenants, err = access.ParseTenants(strings.Join(on, ",")); err != nil || expires == "" {
		return g, end, err
	}
	if text, inDays := strings.CutSuffix(expires, "d"); inDays {
		if days, err := strconv.Atoi(text); err == nil && days > 0 && days < 36_500 {
			return g, time.Now().AddDate(0, 0, days), nil
		}
	}
	end, err = access.ParseExpiry(expires)
	return g, end, err
}

func newUsersLs(s *cli.Settings) *cobra.Command {
	var file string
	cmd := cli.List[userView]{
		Command: &cobra.Command{
			Use: "ls", Short: "List the users of the console",
			Example: "  sagenbaum console users ls\n  sagenbaum console users ls --filter " +
				"'user.role == \"admin\"'",
		},
		Offline: true, Name: "user", Filter: `user.role == "admin"`,
		Ask: func(cli.Listing) (all []userView, _ string, err error) {
			list, err := access.ReadUsers(file)
			if err != nil {
				return nil, "", refused("list the users", err)
			}
			for _, u := range list {
				all = append(all, viewOf(u))
			}
			return all, "", nil
		},
		Data:  func(all []userView, _ string) any { return map[string]any{"users": all} },
		Empty: "no user is like that",
		Table: cli.Table{Head: []string{"NAME", "ROLE", "EXPIRES", "TENANTS"},
			Elastic: []string{"TENANTS"}},
		Row: func(t *cli.Table, v userView) {
			t.Add(v.Name, v.Role, cli.Dash(v.Expires), strings.Join(v.Tenants, ", "))
			if v.OldForm {
				t.Note(1, "its line names no role: remove the user and add it again")
			}
		},
	}.New(s)
	fileFlag(cmd, &file)
	return cmd
}

func newUsersRotate(s *cli.Settings) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "rotate NAME", Short: "Give a user another token and print it, once; its sessions end",
		Example: "  sagenbaum console users rotate bo",
		Args:    cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			token := access.Secret()
			var next access.User
			err := edit(file, args[0], func(u access.User) (lines []string, err error) {
				next, err = access.NewUser(u.Name, token, u.Grants[0], u.Expires)
				return []string{next.String()}, err
			})
			if err != nil {
				return refused("give the user another token", err)
			}
			return made(s, cmd, next, token)
		},
	}
	fileFlag(cmd, &file)
	return cmd
}

func newUsersRm(s *cli.Settings) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "rm NAME", Short: "Remove a user; its sessions end",
		Example: "  sagenbaum console users rm bo",
		Args:    cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var gone access.User
			err := edit(file, args[0], func(u access.User) ([]string, error) {
				gone = u
				return nil, nil
			})
			if err != nil {
				return refused("remove the user", err)
			}
			return s.Print(cmd, viewOf(gone), func() {
				writeRemoved(cmd.OutOrStdout(), gone)
			})
		},
	}
	fileFlag(cmd, &file)
	return cmd
}

func writeRemoved(out io.Writer, u access.User) {
	fmt.Fprintf(out, "%s is removed, who was %s\n", u.Name, cli.Printable(u.Grants.String()))
}

// edit replaces the line of one user.
func edit(file, name string, change func(u access.User) ([]string, error)) error {
	return access.WriteUsers(file, func(lines []string) ([]string, error) {
		for i, line := range lines {
			list, err := access.ParseUsers([]byte(line))
			if err != nil || list[0].Name != name {
				continue
			}
			next, err := change(list[0])
			return slices.Replace(slices.Clone(lines), i, i+1, next...), err
		}
		return nil, cli.Fail(cli.ExitFailed, "sagenbaum console users ls", "there is no user %q", name)
	})
}
