package main

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
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// saved is a context: what else would be said with global flags each time. It may
// hold a password in its URL, so only its owner may read the file.
type saved struct {
	Description string `json:"description,omitempty"`
	Server      string `json:"server,omitempty"` // NATS URL
	Creds       string `json:"creds,omitempty"`  // file
	TLSCA       string `json:"tls_ca,omitempty"` // file
	Inbox       string `json:"inbox,omitempty"`
	Tenant      string `json:"tenant,omitempty"`
	Timeout     string `json:"timeout,omitempty"`
	// NATS names a context of the NATS CLI that server and credentials come from.
	NATS string `json:"nats,omitempty"`
}

// natsPrefix names a context of the NATS CLI where one of ours is meant otherwise.
const natsPrefix = "nats:"

// contextHint is what helps where contexts cannot be read or written.
const contextHint = "XDG_CONFIG_HOME=DIR, a folder of yours; by default ~/.config"

// configDir is where people's settings are.
func configDir() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fail(exitFailed, "XDG_CONFIG_HOME=DIR", "there is no folder for saved contexts: %v", err)
	}
	return filepath.Join(home, ".config"), nil
}

func contextFile(name string) (string, error) {
	dir, err := configDir()
	return filepath.Join(dir, "sagenbaum", "context", name+".json"), err
}

func natsContextFile(name string) (string, error) {
	dir, err := configDir()
	return filepath.Join(dir, "nats", "context", name+".json"), err
}

// currentFile holds the name of the context in use.
func currentFile() (string, error) {
	dir, err := configDir()
	return filepath.Join(dir, "sagenbaum", "context.txt"), err
}

// currentContext is the context in use; empty: none.
func currentContext() string {
	file, err := currentFile()
	if err != nil {
		return ""
	}
	name, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// recall fills in from a context what neither a flag nor the environment has said. No
// context is no error, unless one was named.
func (s *settings) recall(cmd *cobra.Command) error {
	name := s.context
	if name == "" {
		name = currentContext()
	}
	if name == "" || !talks(cmd) {
		return nil
	}
	c, err := readContext(name)
	if err != nil {
		return err
	}
	flags := cmd.Root().PersistentFlags()
	for _, v := range []struct {
		flag, variable, value string
		set                   *string
	}{
		{"server", "SAGENBAUM_SERVER", c.Server, &s.server}, {"creds", "SAGENBAUM_CREDS", c.Creds, &s.creds}, {"tls-ca", "SAGENBAUM_TLS_CA", c.TLSCA, &s.tlsCA},
		{"inbox", "SAGENBAUM_INBOX", c.Inbox, &s.inbox}, {"tenant", "SAGENBAUM_TENANT", c.Tenant, &s.tenant},
	} {
		if v.value != "" && !flags.Changed(v.flag) && os.Getenv(v.variable) == "" {
			*v.set = v.value
		}
	}
	if d, err := time.ParseDuration(c.Timeout); err == nil && d > 0 && !flags.Changed("timeout") {
		s.timeout = d
	}
	if c.NATS != "" && !flags.Changed("server") && os.Getenv("SAGENBAUM_SERVER") == "" {
		if s.natsFile, err = natsContextFile(c.NATS); err != nil {
			return err
		}
		s.server = natsContextURL(s.natsFile)
	}
	return nil
}

// talks is false for commands that a context means nothing to.
func talks(cmd *cobra.Command) bool {
	for c := cmd; c != nil; c = c.Parent() {
		if slices.Contains([]string{"serve", "context", "demo", "completion", "man", "version", "help", "sim", "bench"}, c.Name()) && c.Parent() == cmd.Root() {
			return false
		}
	}
	return true
}

// readContext finds a context by name: one of ours, else one of the NATS CLI.
func readContext(name string) (saved, error) {
	nats, only := strings.CutPrefix(name, natsPrefix)
	if !validContext(nats) {
		return saved{}, fail(exitUsage, "sagenbaum context ls", "%q is no name of a context", name)
	}
	if !only {
		c, err := readOwnContext(name)
		if !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	file, err := natsContextFile(nats)
	if err != nil {
		return saved{}, err
	}
	if _, err := os.Stat(file); err != nil {
		return saved{}, fail(exitUsage, "sagenbaum context ls", "there is no context %q", name)
	}
	return saved{NATS: nats}, nil
}

func validContext(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.ContainsAny(name, `/\`) && len(name) <= 128
}

func readOwnContext(name string) (c saved, err error) {
	file, err := contextFile(name)
	if err != nil {
		return c, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return c, err
	}
	if info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		return c, fail(exitUsage, "chmod 600 "+file, "others may read context %s (%v)", name, info.Mode().Perm())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fail(exitFailed, "sagenbaum context rm "+name, "cannot read context %s: %v", name, err)
	}
	return c, nil
}

// natsContextURL is what a context of the NATS CLI connects to, for messages.
func natsContextURL(file string) string {
	var c struct {
		URL string `json:"url"`
	}
	if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &c) == nil && c.URL != "" {
		return c.URL
	}
	return nats.DefaultURL
}

// dial connects as the settings say: by a context of the NATS CLI, or by URL.
func (s *settings) dial(options ...nats.Option) (*nats.Conn, error) {
	if s.natsFile == "" {
		return nats.Connect(s.server, options...)
	}
	conn, _, err := natscontext.Connect(s.natsFile, options...)
	return conn, err
}

func newContext(s *settings) *cobra.Command {
	return group(&cobra.Command{
		Use:   "context",
		Short: "Save servers and credentials under names, and choose one",
		Long: `Save servers and credentials under names, and choose one. What a flag or the
environment says counts more than the context. Contexts of the NATS CLI are read
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
	saved
}

// contexts are all that are saved, ours first, by name.
func contexts() (views []contextView, err error) {
	own, err := contextFile("*")
	if err != nil {
		return nil, err
	}
	foreign, err := natsContextFile("*")
	if err != nil {
		return nil, err
	}
	current := currentContext()
	seen := map[string]bool{}
	for _, place := range []struct{ kind, pattern string }{{"sagenbaum", own}, {"nats", foreign}} {
		files, err := filepath.Glob(place.pattern)
		if err != nil {
			return nil, fail(exitFailed, contextHint, "cannot list contexts: %v", err)
		}
		for _, file := range files {
			v := contextView{Name: strings.TrimSuffix(filepath.Base(file), ".json"), Kind: place.kind}
			if place.kind == "nats" {
				if seen[v.Name] {
					v.Name = natsPrefix + v.Name
				}
				v.Server = natsContextURL(file)
			} else if v.saved, err = readOwnContext(v.Name); err != nil {
				return nil, err
			}
			seen[v.Name] = true
			v.Server, v.Current = shown(v.Server), v.Name == current
			views = append(views, v)
		}
	}
	slices.SortStableFunc(views, func(a, b contextView) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return views, nil
}

func newContextLs(s *settings) *cobra.Command {
	var only listFilter
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the saved contexts, and those of the NATS CLI",
		Example: "  sagenbaum context ls\n  sagenbaum context ls -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := only.check(); err != nil {
				return err
			}
			all, err := contexts()
			if err != nil {
				return err
			}
			all = picked(&only, all)
			if s.json() {
				return printJSON(cmd.OutOrStdout(), map[string]any{"contexts": append([]contextView{}, all...)})
			}
			if len(all) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no contexts\n  next: sagenbaum context add NAME --server URL")
				return nil
			}
			t := table{head: []string{"", "CONTEXT", "KIND", "SERVER", "TENANT", "CREDENTIALS"}, elastic: []string{"SERVER", "CREDENTIALS"}}
			for _, v := range all {
				t.add(map[bool]string{true: "*"}[v.Current], v.Name, v.Kind, dash(v.Server), dash(v.Tenant), dash(v.Creds))
			}
			t.write(cmd.OutOrStdout())
			return nil
		},
	}
	only.flag(cmd, "context", `context.kind == "nats"`)
	return cmd
}

func newContextShow(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:               "show CONTEXT",
		Short:             "Show a context, without its password",
		Example:           "  sagenbaum context show work",
		Args:              exactly("CONTEXT"),
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readContext(args[0])
			if err != nil {
				return err
			}
			if c.NATS != "" && c.Server == "" {
				if file, err := natsContextFile(c.NATS); err == nil {
					c.Server = natsContextURL(file)
				}
			}
			c.Server = shown(c.Server)
			if s.json() {
				return printJSON(cmd.OutOrStdout(), contextView{Name: args[0], Current: args[0] == currentContext(), Kind: kindOf(c), saved: c})
			}
			for _, line := range [...][2]string{{"context", args[0]}, {"kind", kindOf(c)}, {"server", c.Server}, {"tenant", c.Tenant}, {"credentials", c.Creds}, {"tls ca", c.TLSCA}, {"inbox", c.Inbox}, {"timeout", c.Timeout}, {"about", c.Description}} {
				if line[1] != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", line[0], printable(line[1]))
				}
			}
			return nil
		},
	}
}

func kindOf(c saved) string {
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
		out = append(out, choice(v.Name, "%s %s", v.Server, v.Tenant))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeContext completes the global flags --context and --tenant.
func completeContext(root *cobra.Command, s *settings) {
	live := func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return liveWord(s, cmd, nil, nil, "TENANT")
	}
	if err := root.RegisterFlagCompletionFunc("tenant", live); err != nil {
		panic("sagenbaum: completion: " + err.Error())
	}
	if err := root.RegisterFlagCompletionFunc("context", completeContexts); err != nil {
		panic("sagenbaum: completion: " + err.Error())
	}
}

func newContextAdd(s *settings) *cobra.Command {
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
		Args: exactly("CONTEXT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.toSave(cmd, description, from)
			if err != nil {
				return err
			}
			if !validContext(args[0]) || strings.HasPrefix(args[0], natsPrefix) {
				return fail(exitUsage, "sagenbaum context add work", "%q is no name of a context", args[0])
			}
			file, err := contextFile(args[0])
			if err != nil {
				return err
			}
			text, err := json.MarshalIndent(c, "", "  ")
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				return fail(exitFailed, contextHint, "cannot save the context: %v", err)
			}
			if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
				return fail(exitFailed, contextHint, "cannot save the context: %v", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "saved in %s\n  next: sagenbaum context use %s\n", file, args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	cmd.Flags().StringVar(&from, "nats", "", "`NAME` of a context of the NATS CLI that server and credentials come from")
	return cmd
}

// toSave is the context that the flags describe; files are kept by their whole path.
func (s *settings) toSave(cmd *cobra.Command, description, from string) (saved, error) {
	c := saved{Description: description, Server: s.server, Creds: s.creds, TLSCA: s.tlsCA, NATS: from}
	flags := cmd.Root().PersistentFlags()
	if from != "" {
		if flags.Changed("server") || s.creds != "" {
			return c, fail(exitUsage, "one of the two", "--nats has a server and credentials of its own")
		}
		if found, err := readContext(natsPrefix + from); err != nil {
			return found, err
		}
		c.Server = ""
	}
	for _, file := range []*string{&c.Creds, &c.TLSCA} {
		if *file == "" {
			continue
		}
		whole, err := filepath.Abs(*file)
		if err == nil {
			_, err = os.Stat(whole)
		}
		if err != nil {
			return c, fail(exitFailed, "a file that is there and can be read", "cannot read %s: %v", *file, err)
		}
		*file = whole
	}
	if s.inbox != nats.InboxPrefix {
		c.Inbox = s.inbox
	}
	if flags.Changed("tenant") || os.Getenv("SAGENBAUM_TENANT") != "" {
		c.Tenant = s.tenant
	}
	if flags.Changed("timeout") {
		c.Timeout = s.timeout.String()
	}
	if c.Tenant != "" && !ledger.ValidToken(c.Tenant) {
		return c, fail(exitUsage, "a tenant of 1 to 64 letters, digits, '-' or '_'", "%q is no tenant", c.Tenant)
	}
	return c, nil
}

func newContextUse() *cobra.Command {
	return &cobra.Command{
		Use:               "use CONTEXT",
		Short:             "Choose the context of commands that name none; - for none",
		Example:           "  sagenbaum context use work\n  sagenbaum context use -",
		Args:              exactly("CONTEXT"),
		ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := currentFile()
			if err != nil {
				return err
			}
			if args[0] == "-" {
				if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fail(exitFailed, contextHint, "cannot forget the context: %v", err)
				}
				return nil
			}
			if _, err := readContext(args[0]); err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				return fail(exitFailed, contextHint, "cannot choose the context: %v", err)
			}
			if err := os.WriteFile(file, []byte(args[0]+"\n"), 0o600); err != nil {
				return fail(exitFailed, contextHint, "cannot choose the context: %v", err)
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
		Args:              exactly("CONTEXT"),
		ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			if !validContext(args[0]) {
				return fail(exitUsage, "sagenbaum context ls", "%q is no name of a context", args[0])
			}
			file, err := contextFile(args[0])
			if err != nil {
				return err
			}
			if err := os.Remove(file); err != nil {
				return fail(exitFailed, "sagenbaum context ls", "there is no context %q of ours", args[0])
			}
			if currentContext() == args[0] {
				if file, err := currentFile(); err == nil {
					_ = os.Remove(file) // it names nothing any more
				}
			}
			return nil
		},
	}
}
