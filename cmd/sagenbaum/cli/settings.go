package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// Recall fills in from a context what neither a flag nor the environment has said. No
// context is no error, unless one was named.
func (s *Settings) Recall(cmd *cobra.Command) error {
	name := s.context
	if name == "" {
		name = CurrentContext()
	}
	if name == "" || !talks(cmd) || cmd.Root().PersistentFlags().Lookup("server") == nil {
		return nil
	}
	c, err := ReadContext(name)
	if err != nil {
		return err
	}
	flags := cmd.Root().PersistentFlags()
	for _, v := range []struct {
		flag, variable, value string
		set                   *string
	}{
		{"server", "SAGENBAUM_SERVER", c.Server, &s.Server},
		{"creds", "SAGENBAUM_CREDS", c.Creds, &s.Creds},
		{"tls-ca", "SAGENBAUM_TLS_CA", c.TLSCA, &s.TlsCA},
		{"inbox", "SAGENBAUM_INBOX", c.Inbox, &s.Inbox},
		{"tenant", "SAGENBAUM_TENANT", c.Tenant, &s.Tenant},
	} {
		if v.value != "" && !flags.Changed(v.flag) && os.Getenv(v.variable) == "" {
			*v.set = v.value
		}
	}
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
		if slices.Contains([]string{"serve", "context", "demo", "completion", "man", "version",
			"help", "bench", "sim"}, c.Name()) && c.Parent() == cmd.Root() {
			return false
		}
	}
	return true
}

// dial connects as the settings say: by a context of the NATS CLI, or by URL.
func (s *Settings) dial(options ...nats.Option) (*nats.Conn, error) {
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
	Server  string
	Creds   string
	Inbox   string
	TlsCA   string
	Tenant  string
	output  string
	noColor bool
	Timeout time.Duration

	context  string  // NAME of --context
	natsFile string  // context of the NATS CLI that server and credentials come from; empty: none
	shared   *Client // of --watch, for all its looks
}

const serverDefault = "nats://127.0.0.1:4222"

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
	flags.StringVar(&s.Tenant, "tenant", Environment("SAGENBAUM_TENANT", "default"),
		"`TENANT` to work on (env SAGENBAUM_TENANT)")
	flags.StringVar(&s.context, "context", os.Getenv("SAGENBAUM_CONTEXT"),
		"saved `CONTEXT` to take server, credentials and tenant from (env SAGENBAUM_CONTEXT)")
	flags.DurationVar(&s.Timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	// The help shows what is built in: the environment may hold a password.
	for name, builtIn := range map[string]string{"server": serverDefault, "creds": "", "tls-ca": "",
		"inbox": nats.InboxPrefix, "tenant": "default", "context": ""} {
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
		return Fail(ExitUsage, "a tenant of 1 to 64 letters, digits, '-' or '_'", "%q is no tenant",
			s.Tenant)
	case !strings.HasPrefix(s.Inbox, "_"):
		return Fail(ExitUsage, "--inbox _INBOX_operator1", "%q is no inbox prefix", s.Inbox)
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
