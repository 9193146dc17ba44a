package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// Recall fills in from a context what neither a flag nor the environment has said. No
// context is no error, unless one was named.
func (s *Settings) Recall(cmd *cobra.Command) error {
	flags := cmd.Root().PersistentFlags()
	if flags.Lookup("server") == nil {
		return nil
	}
	s.everyone = cmd.Annotations[Everyone] != ""
	name := s.context
	if name == "" {
		name = CurrentContext()
	}
	s.told = name != "" || said(flags, "server") || said(flags, "creds")
	if talks(cmd) && name != "" {
		if err := s.recall(flags, name); err != nil {
			return err
		}
	}
	if err := s.introduce(flags, talks(cmd)); err != nil {
		return err
	}
	return s.sign(cmd)
}

// Told reports whether a flag, the environment or a context in use says which server is meant.
func (s *Settings) Told() bool { return s.told }

// sign has a command act under the name that the credentials are for: under another one the
// server would refuse it.
func (s *Settings) sign(cmd *cobra.Command) error {
	if s.Self == nil {
		return nil
	}
	flag := map[access.Role]string{access.Operator: "actor", access.Source: "source",
		access.Supervisor: "by"}[s.Self.Role]
	if f := cmd.Flags().Lookup(flag); f != nil && !f.Changed {
		return f.Value.Set(s.Self.Name)
	}
	return nil
}

// Offline annotates commands that need no connection, unless the flag that it names is given: what
// a context or credentials say means nothing to them.
const Offline = "offline"

// Everyone annotates commands that are about no tenant, but about the server.
const Everyone = "everyone"

// Everywhere makes the next connection one that is about no tenant.
func (s *Settings) Everywhere(everyone bool) { s.everyone = s.everyone || everyone }

// said reports whether a flag or the environment gives a setting.
func said(flags *pflag.FlagSet, name string) bool {
	variable := "SAGENBAUM_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	return flags.Changed(name) || os.Getenv(variable) != ""
}

// fill sets what nothing else has said.
func (s *Settings) fill(flags *pflag.FlagSet, c Saved) {
	for _, v := range []struct {
		flag, value string
		set         *string
	}{
		{"server", c.Server, &s.Server}, {"creds", c.Creds, &s.Creds}, {"tls-ca", c.TLSCA, &s.TlsCA},
		{"inbox", c.Inbox, &s.Inbox}, {"tenant", c.Tenant, &s.Tenant},
		{"client-cert", c.ClientCert, &s.ClientCert}, {"client-key", c.ClientKey, &s.ClientKey},
	} {
		if v.value != "" && !said(flags, v.flag) {
			*v.set = v.value
		}
	}
}

// introduce finds the credentials of this user, where a flag or a context names a file or
// `serve` has made one, and fills in what the file says.
func (s *Settings) introduce(flags *pflag.FlagSet, talks bool) error {
	if s.Creds == "" && s.natsFile == "" && talks {
		if c, ok := connect.Local(s.Server); ok {
			s.Creds = c.Creds
		}
	}
	if s.Creds == "" || !talks {
		return nil
	}
	c, err := access.ReadCredentials(s.Creds)
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		return Fail(ExitFailed, "--creds: "+refused.Want, "cannot use the credentials %s: %s",
			s.Creds, refused.Problem)
	}
	if err != nil {
		return err
	}
	from := Saved{Inbox: c.Inbox, Tenant: c.Tenant, Server: c.Servers}
	if c.Tenant == access.AllTenants {
		from.Tenant = ""
	}
	if s.Server != serverDefault { // a context has said so
		from.Server = ""
	}
	s.fill(flags, from)
	s.Self = &c
	return nil
}

// recall fills in what a context says.
func (s *Settings) recall(flags *pflag.FlagSet, name string) error {
	c, err := ReadContext(name)
	if err != nil {
		return err
	}
	s.fill(flags, c)
	if d, err := time.ParseDuration(c.Timeout); err == nil && d > 0 && !flags.Changed("timeout") {
		s.Timeout = d
	}
	if c.NATS != "" && !flags.Changed("server") && os.Getenv("SAGENBAUM_SERVER") == "" {
		if s.natsFile, err = NatsContextFile(c.NATS); err != nil {
			return err
		}
		s.Server = NatsContextURL(s.natsFile)
	}
	return nil
}

// talks is false for commands that a context means nothing to.
func talks(cmd *cobra.Command) bool {
	for c := cmd; c != nil; c = c.Parent() {
		if unless, offline := c.Annotations[Offline]; offline {
			flag := cmd.Flags().Lookup(unless)
			return flag != nil && flag.Changed
		}
		if slices.Contains([]string{"serve", "context", "demo", "completion", "man", "version",
			"help", "bench", "sim"}, c.Name()) && c.Parent() == cmd.Root() {
			return false
		}
	}
	return true
}

// Named fills in what --context says, for a command that finds none by itself, and reports
// whether it was given.
func (s *Settings) Named(cmd *cobra.Command) (bool, error) {
	flags := cmd.Root().PersistentFlags()
	if !flags.Changed("context") {
		return false, nil
	}
	if err := s.recall(flags, s.context); err != nil {
		return true, err
	}
	return true, s.introduce(flags, true)
}

// Dial connects as the settings say: by a context of the NATS CLI, or by URL.
func (s *Settings) Dial(options ...nats.Option) (*nats.Conn, error) {
	if s.natsFile == "" {
		return nats.Connect(s.Server, options...)
	}
	conn, _, err := natscontext.Connect(s.natsFile, options...)
	return conn, err
}

// FixedCompletion offers a closed set for a flag. It fails only for a flag that
// the command does not have.
func FixedCompletion(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic("sagenbaum: completion: " + err.Error())
	}
}

// Settings are the global flags.
type Settings struct {
	Server string
	Creds  string
	Inbox  string
	TlsCA  string
	Tenant string

	ClientCert, ClientKey string // files, for servers that ask for a certificate

	output  string
	noColor bool
	Timeout time.Duration

	context  string // NAME of --context
	told     bool   // of a server
	everyone bool   // the command is about no tenant
	// Self is the user of the credentials; nil: they do not say, or there are none.
	Self *access.Credentials

	natsFile string  // context of the NATS CLI that server and credentials come from; empty: none
	shared   *Client // of --watch, for all its looks
}

const serverDefault = connect.ServerDefault

// Flags gives a root command the global flags, with what the environment says.
func (s *Settings) Flags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&s.Server, "server", Environment("SAGENBAUM_SERVER", serverDefault),
		"NATS server `URL` (env SAGENBAUM_SERVER)")
	flags.StringVar(&s.Creds, "creds", os.Getenv("SAGENBAUM_CREDS"),
		"NATS credentials `FILE` (env SAGENBAUM_CREDS)")
	flags.StringVar(&s.Inbox, "inbox", Environment("SAGENBAUM_INBOX", nats.InboxPrefix),
		"`PREFIX` of the inboxes that this user may subscribe to (env SAGENBAUM_INBOX)")
	flags.StringVar(&s.TlsCA, "tls-ca", os.Getenv("SAGENBAUM_TLS_CA"),
		"CA certificates `FILE` that the server must be signed by (env SAGENBAUM_TLS_CA)")
	flags.StringVar(&s.ClientCert, "client-cert", os.Getenv("SAGENBAUM_CLIENT_CERT"),
		"PEM `FILE` of our certificate, for servers that ask for one (env SAGENBAUM_CLIENT_CERT)")
	flags.StringVar(&s.ClientKey, "client-key", os.Getenv("SAGENBAUM_CLIENT_KEY"),
		"PEM `FILE` of that certificate's key (env SAGENBAUM_CLIENT_KEY)")
	flags.StringVar(&s.Tenant, "tenant", Environment("SAGENBAUM_TENANT", "default"),
		"`TENANT` to work on (env SAGENBAUM_TENANT)")
	flags.StringVar(&s.context, "context", os.Getenv("SAGENBAUM_CONTEXT"),
		"saved `CONTEXT` to take server, credentials and tenant from (env SAGENBAUM_CONTEXT)")
	flags.DurationVar(&s.Timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	// The help shows what is built in: the environment may hold a password.
	for name, builtIn := range map[string]string{"server": serverDefault, "creds": "", "tls-ca": "",
		"client-cert": "", "client-key": "", "inbox": nats.InboxPrefix, "tenant": "default",
		"context": ""} {
		flags.Lookup(name).DefValue = builtIn
	}
}

// Environment is a variable's value, or otherwise where it is empty or not set.
func Environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// check refuses global flags that make no sense, before any command runs.
func (s *Settings) check() error {
	if err := s.checkOutput(); err != nil {
		return err
	}
	switch {
	case !ledger.ValidToken(s.Tenant):
		return Fail(ExitUsage, "--tenant: "+ledger.TokenWanted, "%.80q is no tenant",
			s.Tenant)
	case !strings.HasPrefix(s.Inbox, "_"):
		return Fail(ExitUsage, "--inbox _INBOX_operator1", "%q is no inbox prefix", s.Inbox)
	case (s.ClientCert == "") != (s.ClientKey == ""):
		return Fail(ExitUsage, "--client-cert FILE --client-key FILE",
			"--client-cert and --client-key go together")
	case s.Timeout <= 0:
		return Fail(ExitUsage, "--timeout 5s", "a timeout of %s lets nothing happen", s.Timeout)
	}
	return nil
}

// JSON is true where data is printed and no table: in JSON, or in YAML.
func (s *Settings) JSON() bool { return s.output != outputTable }

// Pen writes to a command's output, with colours where they are wanted.
func (s *Settings) Pen(cmd *cobra.Command) Pen {
	return Pen{Color: !s.noColor && WantsColor(cmd.OutOrStdout())}
}

// OneOf refuses a flag's value that is not in a closed set.
func OneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return Fail(ExitUsage, fmt.Sprintf("--%s %s", flag, strings.Join(allowed, "|")),
		"--%s cannot be %q", flag, value)
}
