// Package user is `sagenbaum user`: who may connect, and in which role.
package user

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cluster"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
)

// Command is `sagenbaum user` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	f := new(place)
	group := cli.Group(&cobra.Command{
		Use:   "user",
		Short: "Say who may connect, and what each may do",
		Long: `Say who may connect, and what each may do: a role, in a tenant, under a name. The
embedded server takes changes at once, and closes the connections of users that are
removed. With --file the users are those in a file, for NATS servers that run
elsewhere: 'user export' writes their configuration.`,
		Example: `  sagenbaum user add coder --role agent --run --ask git.branch.show --expires 90d --out coder.creds
  sagenbaum user add git --role worker --serve 'git.>' --out git.creds
  sagenbaum user ls
  sagenbaum user rm coder`,
	}, newAdd(s, f), newLs(s, f), newShow(s, f), newRotate(s, f), newRm(s, f), newExport(s, f),
		newToken(s, f), newCallout(s))
	group.PersistentFlags().StringVar(&f.file, "file", "",
		"`FILE` of users for servers that run elsewhere, instead of those of the embedded server")
	group.PersistentFlags().StringVar(&f.operator, "operator", "",
		"`DIR` of the operator that 'user export --format jwt' has made, for servers in operator mode")
	return group
}

// place is where the users are.
type place struct {
	file     string
	operator string // folder of the operator that issues JWTs; empty: servers know the keys
}

// ask carries out one request on the users, in the file or at the server.
func (p *place) ask(ctx context.Context, s *cli.Settings, verb string,
	r access.Request) (a access.Answer, err error) {
	if p.file != "" {
		d, err := access.OpenDirectory(p.file)
		if err != nil {
			return a, explained(access.Answer{Error: err.Error()}, r.Role, cli.ExitFailed)
		}
		a = d.Serve(verb, encoded(r), nil)
		a.Servers = s.Server
		if urls, ca := cluster.Beside(p.file); urls != "" {
			a.Servers, a.CA = urls, ca
		}
		return a, explained(a, r.Role, cli.ExitFailed)
	}
	s.Everywhere(true)
	err = s.With(func(c *cli.Client) error {
		return unsure(verb, c.Call(ctx, api.ServerSubject(verb), r, &a))
	})
	if err == nil {
		err = explained(a, r.Role, cli.ExitFailed)
	}
	return a, err
}

// unsure says of a change without an answer that it may have been made.
func unsure(verb string, err error) error {
	var f *cli.Failure
	if verb == api.UserLs || verb == api.UserTokens || !errors.As(err, &f) ||
		f.Code != cli.ExitNoServer {
		return err
	}
	return cli.Fail(f.Code, "sagenbaum user ls shows whether it was done; whose new key is lost gets "+
		"another one: sagenbaum user rotate NAME --out NAME.creds", "%s: it may be done all the same",
		f.Text)
}

func encoded(r access.Request) []byte {
	body, err := json.Marshal(r)
	if err != nil {
		panic("user: cannot encode a request: " + err.Error())
	}
	return body
}

// flagOf are the flags of the fields of a user.
var flagOf = map[string]string{"name": "NAME", "role": "--role", "tenant": "--tenant",
	"capabilities": "--serve or --ask",
	"run":          "--run", "reveal": "--reveal", "expires": "--expires", "provision": "--provision"}

// capabilityFlags are the flags of the capabilities of a role.
var capabilityFlags = map[access.Role]string{access.Agent: "--ask", access.Worker: "--serve"}

// explained is what was refused of a user with a role, in words of the command line.
func explained(a access.Answer, role access.Role, code int) error {
	if a.Error == "" {
		return nil
	}
	field, _, _ := strings.Cut(a.Field, "[")
	hint := "sagenbaum user ls"
	if a.Want != "" {
		flag := flagOf[field]
		if own := capabilityFlags[role]; field == "capabilities" && own != "" {
			flag = own
		}
		hint = strings.TrimPrefix(flag+": ", ": ") + a.Want
	}
	return cli.Fail(code, hint, "%s", a.Error)
}

// describing are the flags of a user.
type describing struct {
	role       string
	run        bool
	reveal     bool
	provision  bool
	ask, serve []string
	expires    string
	url        string
	out        string // file for the credentials; empty: stdout
}

func (d *describing) user(s *cli.Settings, name string) (u access.User, err error) {
	u = access.User{Name: name, Role: access.Role(d.role), Tenant: s.Tenant, Run: d.run,
		Reveal: d.reveal, Provision: d.provision, Capabilities: append(d.ask, d.serve...)}
	switch {
	case d.role == "":
		return u, cli.Fail(cli.ExitUsage, "--role agent, worker, source, supervisor, auditor, "+
			"operator or pager", "a user needs a role")
	case len(d.ask) > 0 && u.Role != access.Agent:
		return u, cli.Fail(cli.ExitUsage, "--serve CAPABILITY, or --role agent",
			"--ask is for agents")
	case len(d.serve) > 0 && u.Role != access.Worker:
		return u, cli.Fail(cli.ExitUsage, "--ask CAPABILITY, or --role worker",
			"--serve is for workers")
	}
	u.Expires, err = expiry(d.expires, time.Now())
	return u, err
}

// check refuses what no user can be, here or on servers that run elsewhere.
func (d *describing) check(u access.User, elsewhere bool) error {
	roles := "--role: one of " + rolesText(elsewhere)
	switch {
	case !slices.Contains(access.Roles(), u.Role):
		return cli.Fail(cli.ExitUsage, roles, "%.80q is no role", d.role)
	case !slices.Contains(access.RolesToAdd(elsewhere), u.Role):
		return cli.Fail(cli.ExitUsage, roles, "no user can be added with role %s here", d.role)
	}
	return refusedAs(u.Check(), u.Role, cli.ExitUsage)
}

// expiry is the instant that --expires means: a time from now, in days, hours or less, or a
// date.
func expiry(text string, now time.Time) (time.Time, error) {
	wrong := cli.Fail(cli.ExitUsage, "--expires 90d, 12h or 2027-01-31",
		"--expires cannot be %.80q", text)
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		if _, err := ledger.InstantNs("expires", at); err != nil || !at.After(now) {
			return at, wrong
		}
		return at.UTC(), nil
	}
	var days int
	if number, ok := strings.CutSuffix(text, "d"); ok {
		if _, err := fmt.Sscanf(number, "%d", &days); err != nil || fmt.Sprint(days) != number ||
			days < 1 || days > 36500 {
			return time.Time{}, wrong
		}
		return now.AddDate(0, 0, days).UTC().Truncate(time.Second), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > ledger.DurationMax {
		return time.Time{}, wrong
	}
	return now.Add(d).UTC().Truncate(time.Second), nil
}

func newAdd(s *cli.Settings, p *place) *cobra.Command {
	d := new(describing)
	all := false
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a user, and print its credentials",
		Long: `Add a user, and print its credentials, or write them to a file with --out. They are
made here and shown once: the server keeps the public half of the key. The file has the server's address, its
authority and the tenant, too, and is all that a client needs: SAGENBAUM_CREDS=FILE.`,
		Example: `  sagenbaum user add coder --role agent --ask git.branch.show --expires 90d --out coder.creds
  sagenbaum user add git --role worker --serve git.branch.delete --serve git.tag.delete --out git.creds
  sagenbaum user add ana --role operator --all-tenants --out ana.creds`,
		Args: cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := d.user(s, args[0])
			if err != nil {
				return err
			}
			if all || u.Role == access.Host || u.Role == access.Provisioner ||
				u.Role == access.System || u.Role == access.Callout {
				u.Tenant = access.AllTenants
			}
			creds, err := access.NewCredentials(&u)
			if err != nil {
				return err
			}
			if err := d.check(u, p.file != ""); err != nil {
				return err
			}
			if err := d.prepare(u); err != nil {
				return err
			}
			a, err := p.ask(cmd.Context(), s, api.UserAdd, access.Request{User: u})
			if err != nil {
				return err
			}
			return d.issue(cmd, s, p, creds, u, a)
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.role, "role", "", "`ROLE`: agent, worker, source, supervisor, auditor, operator "+
		"or pager; with --file also host, provisioner, system or "+
		"callout")
	cli.FixedCompletion(cmd, "role", "agent", "worker", "source", "supervisor", "auditor", "operator",
		"pager")
	f.BoolVar(&d.run, "run", false, "an agent that runs functions again after a crash, and serves "+
		"handlers")
	f.StringArrayVar(&d.ask, "ask", nil, "`CAPABILITY` that an agent may ask workers about, or "+
		"git.> for all that begin so; may be given more than once")
	f.StringArrayVar(&d.serve, "serve", nil, "`CAPABILITY` that a worker serves, or git.> for all "+
		"that begin so; may be given more than once")
	f.BoolVar(&d.reveal, "reveal", false, "an operator who may see sealed values in the clear")
	f.BoolVar(&d.provision, "provision", false, "a host that may make, repair and delete ledgers")
	f.BoolVar(&all, "all-tenants", false, "an auditor or operator of all tenants")
	d.limits(cmd)
	return cmd
}

func (d *describing) limits(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.expires, "expires", "", "`TIME` after which the user is refused: 90d, "+
		"12h, or a date; default never")
	cmd.Flags().StringVar(&d.url, "url", "", "`URL` of the server in the credentials; default the "+
		"one that it gives")
	cmd.Flags().StringVar(&d.out, "out", "", "`FILE` for the credentials, which only you may read; "+
		"it is written when all is done, and is left as it is otherwise (default: they are printed)")
}

// listed is a user as it is told.
type listed struct {
	access.User
	Expired bool `json:"expired"`
	// LastUsed is when the server has last seen it use its key, to the minute; zero: not yet, or
	// its server is another one.
	LastUsed time.Time `json:"last_used,omitzero"`

	Account string   `json:"account"`
	Inbox   string   `json:"inbox"`
	Publish []string `json:"publish,omitempty"`
	Listen  []string `json:"subscribe,omitempty"`
}

func listing(u access.User, used map[string]time.Time) listed {
	return listed{User: u, Expired: u.Expired(time.Now()), LastUsed: used[u.ID()],
		Account: u.Account(), Inbox: u.Inbox()}
}

func newLs(s *cli.Settings, p *place) *cobra.Command {
	stale, ofOne := "", func() bool { return false }
	cmd := cli.List[listed]{
		Command: &cobra.Command{
			Use:     "ls",
			Short:   "List the users of all tenants, or those of one (--tenant)",
			Example: "  sagenbaum user ls\n  sagenbaum user ls --filter 'user.role == \"agent\"'",
		},
		Offline: true, Name: "user", Filter: `user.role == "agent"`, Doing: "list users",
		Ask: func(in cli.Listing) (all []listed, next string, err error) {
			a, err := p.ask(in.Ctx, s, api.UserLs, access.Request{})
			stale = a.Stale
			for _, u := range a.Users {
				if !ofOne() || u.Tenant == s.Tenant {
					all = append(all, listing(u, a.Used))
				}
			}
			return all, "", err
		},
		Data:  func(all []listed, _ string) any { return map[string]any{"users": all} },
		Empty: "no users\n  next: sagenbaum user add NAME --role agent --out NAME.creds",
		Table: cli.Table{Head: []string{"USER", "TENANT", "ROLE", "MAY", "EXPIRES", "USED"},
			Elastic: []string{"MAY"}},
		Row: func(t *cli.Table, u listed) {
			t.Add(u.Name, tenantText(u.Tenant), string(u.Role), cli.Dash(rights(u.User)),
				expiresText(u), usedText(u))
		},
		More: func([]listed) string {
			if stale == "" {
				return ""
			}
			return "  these are the users of before: their file cannot be read: " + cli.Printable(stale)
		},
	}.New(s)
	ofOne = func() bool { return cmd.Flags().Changed("tenant") }
	return cmd
}

func tenantText(tenant string) string {
	if tenant == access.AllTenants {
		return "all"
	}
	return tenant
}

// rights are what a user has beyond its role.
func rights(u access.User) string {
	var all []string
	verb := map[access.Role]string{access.Agent: "ask ", access.Worker: "serve "}[u.Role]
	for _, c := range u.Capabilities {
		all = append(all, verb+c)
	}
	for _, right := range []struct {
		name string
		has  bool
	}{{"run", u.Run}, {"reveal", u.Reveal}, {"provision", u.Provision}} {
		if right.has {
			all = append(all, right.name)
		}
	}
	return strings.Join(all, ", ")
}

func expiresText(u listed) string {
	switch {
	case u.Expires.IsZero():
		return "never"
	case u.Expired:
		return "expired"
	}
	return render.DueText(u.Expires.UnixNano(), time.Now())
}

func usedText(u listed) string {
	if u.LastUsed.IsZero() {
		return "-"
	}
	return cli.Relative(u.LastUsed.UnixNano(), time.Now())
}

// find asks for one user.
func (p *place) find(ctx context.Context, s *cli.Settings, name string) (access.User, error) {
	u, _, err := p.look(ctx, s, name)
	return u, err
}

// look is find, with all that the server has answered.
func (p *place) look(ctx context.Context, s *cli.Settings, name string) (access.User,
	access.Answer, error) {
	if !ledger.ValidToken(name) {
		return access.User{}, access.Answer{}, cli.Fail(cli.ExitUsage, "sagenbaum user ls",
			"%.80q is no name of a user", name)
	}
	a, err := p.ask(ctx, s, api.UserLs, access.Request{})
	if err != nil {
		return access.User{}, a, err
	}
	u, err := choose(a.Users, s.Tenant, name)
	return u, a, err
}

// choose is the user of a name in a tenant, or of all tenants where there is no other.
func choose(users []access.User, tenant, name string) (access.User, error) {
	var elsewhere []string
	for _, u := range users {
		switch {
		case u.Name == name && u.Tenant == tenant:
			return u, nil
		case u.Name == name:
			elsewhere = append(elsewhere, u.Tenant)
		}
	}
	if len(elsewhere) == 1 && elsewhere[0] == access.AllTenants {
		for _, u := range users {
			if u.Name == name {
				return u, nil
			}
		}
	}
	hint := "sagenbaum user ls"
	if len(elsewhere) > 0 {
		hint = "--tenant " + strings.Join(elsewhere, " or ")
	}
	return access.User{}, cli.Fail(cli.ExitFailed, hint, "there is no user %.80q of tenant %.80s",
		name, tenant)
}

func newShow(s *cli.Settings, p *place) *cobra.Command {
	return &cobra.Command{
		Use:     "show NAME",
		Short:   "Show a user, with the subjects that it may publish and subscribe",
		Example: "  sagenbaum user show coder",
		Args:    cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, a, err := p.look(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			v, may := listing(u, a.Used), u.Permissions()
			v.Publish, v.Listen = may.Publish, may.Subscribe
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), v)
			}
			lines := [][2]string{{"user", u.Name}, {"role", string(u.Role)},
				{"tenant", tenantText(u.Tenant)}, {"may", rights(u)}, {"expires", expiresText(v)},
				{"used", usedText(v)}, {"key", u.Key}, {"account", v.Account}, {"inbox", v.Inbox}}
			for _, subject := range may.Publish {
				lines = append(lines, [2]string{"publish", subject})
			}
			for _, subject := range may.Subscribe {
				lines = append(lines, [2]string{"subscribe", subject})
			}
			cli.PrintLines(cmd.OutOrStdout(), lines)
			return nil
		},
	}
}

func newRotate(s *cli.Settings, p *place) *cobra.Command {
	d := new(describing)
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give a user a new key, and print its new credentials",
		Long: `Give a user a new key, and print its new credentials. What had the old ones loses
its connection within a second, and the tokens that were made of them are refused.
With --file that is so once servers have what 'user export' writes then.`,
		Example: "  sagenbaum user rotate coder --out coder.creds",
		Args:    cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			until, err := expiry(d.expires, time.Now())
			if err != nil {
				return err
			}
			u, err := p.find(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			if u.Role == access.Local {
				return cli.Fail(cli.ExitFailed, "remove auth/local.creds of the data folder and start "+
					"sagenbaum serve again", "%s is the user that runs the server", u.Name)
			}
			creds, err := access.NewCredentials(&u)
			if err != nil {
				return err
			}
			u.Expires = until
			if err := d.prepare(u); err != nil {
				return err
			}
			a, err := p.ask(cmd.Context(), s, api.UserRotate, access.Request{User: u})
			if err != nil {
				return err
			}
			return d.issue(cmd, s, p, creds, a.Users[0], a)
		},
	}
	d.limits(cmd)
	return cmd
}

func newRm(s *cli.Settings, p *place) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a user; its connections are closed",
		Long: `Remove a user. The embedded server closes its connections within a second, and refuses
its key and all tokens that were made of it from then on, also those with an end of
their own; a user that is added under its name has another key. What the user has done
stays, and its open plans with their deadlines. On a full disk nothing is removed, and
the exit code is 2: make room, and repeat it.

With --file, servers that run elsewhere let the user in until they have what
'user export' writes then, and are reloaded, however long that is.`,
		Example: `  sagenbaum user rm coder
  sagenbaum user rm coder --file users && sagenbaum user export --file users > accounts.conf`,
		Args: cli.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := p.find(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			_, err = p.ask(cmd.Context(), s, api.UserRm, access.Request{User: u})
			if err != nil {
				return err
			}
			return s.Print(cmd, map[string]string{"removed": u.Name, "tenant": u.Tenant,
				"role": string(u.Role)}, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s of tenant %s is removed: %s\n", u.Role, u.Name, u.Tenant,
					p.stillGood())
			})
		},
	}
}

// stillGood says for how long the credentials of a user who was removed let it in.
func (p *place) stillGood() string {
	export := "sagenbaum user export --file " + p.file
	switch {
	case p.file == "":
		return "its connections are closed within a second, and its key and all of its tokens are refused"
	case p.operator != "":
		return "servers let its credentials in until they have the accounts of " + export +
			" --format jwt --operator " + p.operator
	}
	return "servers let its credentials in until they have the accounts of " + export +
		", and are reloaded"
}
