// Package context is `sagenbaum context`: saved servers and credentials.
package context

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/complete"
)

// Command is `sagenbaum context` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "context",
		Short: "Save servers and credentials under names, and choose one",
		Long: `Save servers and credentials under names, and choose one. Flags and the
environment take precedence over the context. Contexts of the NATS CLI are read
where they are, in ~/.config/nats/context, and are used by the same names.`,
		Example: `  sagenbaum context add work --server nats://nats.example.com:4222 --creds ops.creds --tenant shops
  sagenbaum context use work
  sagenbaum --context work status`,
	}, newContextLs(s), newContextShow(s), newContextAdd(s), newContextUse(), newContextRm())
}

// contextView is a context as it is listed, without its password.
type contextView struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	Kind    string `json:"kind"` // sagenbaum, nats
	cli.Saved
}

// contexts are all that are saved, ours first, by name.
func contexts() (views []contextView, err error) {
	own, err := cli.ContextFile("*")
	if err != nil {
		return nil, err
	}
	foreign, err := cli.NatsContextFile("*")
	if err != nil {
		return nil, err
	}
	current := cli.CurrentContext()
	seen := map[string]bool{}
	for _, place := range []struct{ kind, pattern string }{{"sagenbaum", own}, {"nats", foreign}} {
		files, err := filepath.Glob(place.pattern)
		if err != nil {
			return nil, cli.Fail(cli.ExitFailed, cli.ContextHint, "cannot list contexts: %v", err)
		}
		for _, file := range files {
			v := contextView{Name: strings.TrimSuffix(filepath.Base(file), ".json"),
				Kind: place.kind}
			if place.kind == "nats" {
				if seen[v.Name] {
					v.Name = cli.NatsPrefix + v.Name
				}
				v.Server = cli.NatsContextURL(file)
			} else if v.Saved, err = cli.ReadOwnContext(v.Name); err != nil {
				return nil, err
			}
			seen[v.Name] = true
			v.Server, v.Current = cli.Shown(v.Server), v.Name == current
			views = append(views, v)
		}
	}
	slices.SortStableFunc(views, func(a, b contextView) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return views, nil
}

func newContextLs(s *cli.Settings) *cobra.Command {
	return cli.List[contextView]{
		Command: &cobra.Command{
			Use:     "ls",
			Short:   "List the saved contexts, and those of the NATS CLI",
			Example: "  sagenbaum context ls\n  sagenbaum context ls -o json",
		},
		Offline: true, Name: "context", Filter: `context.kind == "nats"`,
		Ask: func(cli.Listing) ([]contextView, string, error) {
			all, err := contexts()
			return all, "", err
		},
		Data:  func(all []contextView, _ string) any { return map[string]any{"contexts": all} },
		Empty: "no contexts\n  next: sagenbaum context add NAME --server URL",
		Table: cli.Table{Head: []string{"", "CONTEXT", "KIND", "SERVER", "TENANT", "CREDENTIALS"},
			Elastic: []string{"SERVER", "CREDENTIALS"}},
		Row: func(t *cli.Table, v contextView) {
			t.Add(map[bool]string{true: "*"}[v.Current], v.Name, v.Kind, cli.Dash(v.Server),
				cli.Dash(v.Tenant), cli.Dash(v.Creds))
		},
	}.New(s)
}

func newContextShow(s *cli.Settings) *cobra.Command {
	return &cobra.Command{
		Use:               "show CONTEXT",
		Short:             "Show a context, without its password",
		Example:           "  sagenbaum context show work",
		Args:              cli.Exactly("CONTEXT"),
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cli.ReadContext(args[0])
			if err != nil {
				return err
			}
			if c.NATS != "" && c.Server == "" {
				if file, err := cli.NatsContextFile(c.NATS); err == nil {
					c.Server = cli.NatsContextURL(file)
				}
			}
			c.Server = cli.Shown(c.Server)
			if s.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(),
					contextView{Name: args[0], Current: args[0] == cli.CurrentContext(),
						Kind: kindOf(c), Saved: c})
			}
			cli.PrintLines(cmd.OutOrStdout(),
				[][2]string{{"context", args[0]}, {"kind", kindOf(c)}, {"server", c.Server},
					{"tenant", c.Tenant}, {"credentials", c.Creds}, {"tls ca", c.TLSCA},
					{"certificate", c.ClientCert},
					{"inbox", c.Inbox}, {"timeout", c.Timeout}, {"about", c.Description}})
			return nil
		},
	}
}

func kindOf(c cli.Saved) string {
	if c.NATS != "" {
		return "nats"
	}
	return "sagenbaum"
}

func completeContexts(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
	all, err := contexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, v := range all {
		out = append(out, complete.Choice(v.Name, "%s %s", v.Server, v.Tenant))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// Complete completes the global flags --context and --tenant.
func Complete(root *cobra.Command, s *cli.Settings) {
	live := func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return complete.LiveWord(s, cmd, nil, nil, "TENANT")
	}
	if err := root.RegisterFlagCompletionFunc("tenant", live); err != nil {
		panic("sagenbaum: completion: " + err.Error())
	}
	if err := root.RegisterFlagCompletionFunc("context", completeContexts); err != nil {
		panic("sagenbaum: completion: " + err.Error())
	}
}

func newContextAdd(s *cli.Settings) *cobra.Command {
	var description, from string
	cmd := &cobra.Command{
		Use:   "add CONTEXT",
		Short: "Save what --server, --creds, --tls-ca, --inbox, --tenant and --timeout say",
		Long: `Save what --server, --creds, --tls-ca, --inbox, --tenant and --timeout say under a
name; with --nats the server and its credentials stay those of a context of the
NATS CLI. A context of the same name is replaced. A password in the URL is kept in
the file, which only its owner may read.`,
		Example: `  sagenbaum context add work --server nats://nats.example.com:4222 --creds ops.creds --tenant shops
  sagenbaum context add edge --nats edge --tenant shops --description "the shops"`,
		Args: cli.Exactly("CONTEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := toSave(s, cmd, description, from)
			if err != nil {
				return err
			}
			if !cli.ValidContext(args[0]) || strings.HasPrefix(args[0], cli.NatsPrefix) {
				return cli.Fail(cli.ExitUsage, "sagenbaum context add work",
					"%q is no name of a context", args[0])
			}
			file, err := cli.ContextFile(args[0])
			if err != nil {
				return err
			}
			text, err := json.MarshalIndent(c, "", "  ")
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				return cli.Fail(cli.ExitFailed, cli.ContextHint, "cannot save the context: %v", err)
			}
			if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
				return cli.Fail(cli.ExitFailed, cli.ContextHint, "cannot save the context: %v", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "saved in %s\n  next: sagenbaum context use %s\n", file,
				args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	cmd.Flags().StringVar(&from, "nats", "",
		"`NAME` of a context of the NATS CLI that server and credentials come from")
	return cmd
}

// toSave is the context that the flags describe; files are kept by their whole path.
func toSave(s *cli.Settings, cmd *cobra.Command, description, from string) (cli.Saved, error) {
	c := cli.Saved{Description: description, Server: s.Server, Creds: s.Creds, TLSCA: s.TlsCA,
		ClientCert: s.ClientCert, ClientKey: s.ClientKey,
		NATS: from}
	flags := cmd.Root().PersistentFlags()
	if from != "" {
		if flags.Changed("server") || s.Creds != "" {
			return c, cli.Fail(cli.ExitUsage, "one of the two",
				"--nats has a server and credentials of its own")
		}
		if found, err := cli.ReadContext(cli.NatsPrefix + from); err != nil {
			return found, err
		}
		c.Server = ""
	}
	for _, file := range []*string{&c.Creds, &c.TLSCA, &c.ClientCert, &c.ClientKey} {
		if *file == "" {
			continue
		}
		whole, err := filepath.Abs(*file)
		if err == nil {
			_, err = os.Stat(whole)
		}
		if err != nil {
			return c, cli.Fail(cli.ExitFailed, "a file that is there and can be read",
				"cannot read %s: %v", *file, err)
		}
		*file = whole
	}
	if s.Inbox != nats.InboxPrefix {
		c.Inbox = s.Inbox
	}
	if flags.Changed("tenant") || os.Getenv("SAGENBAUM_TENANT") != "" {
		c.Tenant = s.Tenant
	}
	if flags.Changed("timeout") {
		c.Timeout = s.Timeout.String()
	}
	if c.Tenant != "" && !ledger.ValidToken(c.Tenant) {
		return c, cli.Fail(cli.ExitUsage, "a tenant of "+ledger.TokenWanted,
			"%.80q is no tenant", c.Tenant)
	}
	return c, nil
}

func newContextUse() *cobra.Command {
	return &cobra.Command{
		Use:               "use CONTEXT",
		Short:             "Choose the context for commands that name none; - clears the choice",
		Example:           "  sagenbaum context use work\n  sagenbaum context use -",
		Args:              cli.Exactly("CONTEXT"),
		ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := cli.CurrentFile()
			if err != nil {
				return err
			}
			if args[0] == "-" {
				if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return cli.Fail(cli.ExitFailed, cli.ContextHint,
						"cannot forget the context: %v", err)
				}
				return nil
			}
			if _, err := cli.ReadContext(args[0]); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				return cli.Fail(cli.ExitFailed, cli.ContextHint, "cannot choose the context: %v",
					err)
			}
			if err := os.WriteFile(file, []byte(args[0]+"\n"), 0o600); err != nil {
				return cli.Fail(cli.ExitFailed, cli.ContextHint, "cannot choose the context: %v",
					err)
			}
			return nil
		},
	}
}

func newContextRm() *cobra.Command {
	return &cobra.Command{
		Use:               "rm CONTEXT",
		Short:             "Remove a saved context; those of the NATS CLI stay",
		Example:           "  sagenbaum context rm work",
		Args:              cli.Exactly("CONTEXT"),
		ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			if !cli.ValidContext(args[0]) {
				return cli.Fail(cli.ExitUsage, "sagenbaum context ls", "%q is no name of a context",
					args[0])
			}
			file, err := cli.ContextFile(args[0])
			if err != nil {
				return err
			}
			if err := os.Remove(file); err != nil {
				return cli.Fail(cli.ExitFailed, "sagenbaum context ls",
					"there is no context %q of ours", args[0])
			}
			if cli.CurrentContext() == args[0] {
				if file, err := cli.CurrentFile(); err == nil {
					_ = os.Remove(file) // it names nothing any more
				}
			}
			return nil
		},
	}
}
