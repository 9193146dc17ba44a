package mcp

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
)

// entry is one server of the command line, or of a client's configuration.
type entry struct {
	name   string // as the configuration calls it
	config mcp.ServerConfig

	// gateway has the flags of the gateway that the configuration puts before the server, and
	// globals those that go for every command; nil: there is no gateway.
	gateway *options
	globals *pflag.FlagSet
	env     map[string]string // that its client gives the gateway

	sources []string // files that it is from
	url     string   // it is reached there, and not started
	problem error    // why there is no server in it
}

// servers are those of the command line, or of a client's configuration.
func (o *options) servers(
	cmd *cobra.Command,
	args []string,
	logger *slog.Logger,
) ([]*mcp.Server, error) {
	entries, err := o.read(args)
	if err != nil {
		return nil, err
	}
	var servers []*mcp.Server
	for _, e := range entries {
		if e.problem != nil {
			return nil, e.problem
		}
		if err := o.complete(&e); err != nil {
			return nil, err
		}
		e.config.Logger, e.config.Errors = logger, cmd.ErrOrStderr()
		server, err := mcp.NewServer(e.config)
		if err != nil {
			return nil, err
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// complete gives a server its packs and its folder: those of these flags, else those of its
// gateway in the configuration, where the images of its calls are.
func (o *options) complete(e *entry) (err error) {
	files, state := o.packs, o.state
	if e.gateway != nil {
		files = append(slices.Clone(e.gateway.packs), files...)
		if state == "" {
			state = e.gateway.state
		}
	}
	if e.config.Packs, err = readPacks(files); err != nil {
		return err
	}
	e.config.State, err = started.Dir(state)
	return err
}

// read finds out which servers there are.
func (o *options) read(args []string) ([]entry, error) {
	const usage = "sagenbaum mcp -- COMMAND, or sagenbaum mcp --config FILE"
	switch {
	case o.file == "" && len(args) == 0:
		return nil, cli.Fail(cli.ExitUsage, usage, "there is no server: give its command, or --config")
	case o.file == "":
		name := o.server
		if name == "" {
			name = nameOf(args)
		}
		return []entry{{name: name, config: mcp.ServerConfig{Name: name, Command: args[0],
			Args: args[1:], Instance: o.instance, Roots: o.roots}}}, nil
	case len(args) > 0 || o.server != "" || o.instance != "" || len(o.roots) > 0:
		return nil, cli.Fail(cli.ExitUsage, usage,
			"--config names the servers: no command, --server-name, --instance or --root beside it")
	}
	return readFile(o.file)
}

// configured is a server in a client's configuration.
type configured struct {
	Command  string            `json:"command"`
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	URL      string            `json:"url"`
	Instance string            `json:"instance"`
	Roots    []string          `json:"roots"`
}

// readFile reads the configuration of a client, by the names of its servers.
func readFile(name string) (entries []entry, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, cli.Fail(cli.ExitFailed, "--config FILE of one that is there", "%v", err)
	}
	var file struct {
		Servers map[string]configured `json:"mcpServers"`
	}
	const want = `{"mcpServers": {"NAME": {"command": "...", "args": ["..."]}}}`
	if err := json.Unmarshal(data, &file); err != nil || len(file.Servers) == 0 {
		return nil, cli.Fail(cli.ExitFailed, want, "cannot read servers from %s (%v)", name, err)
	}
	names := []string{}
	for server := range file.Servers {
		names = append(names, server)
	}
	slices.Sort(names)
	for _, server := range names {
		entries = append(entries, file.Servers[server].entries(name, server)...)
	}
	for i := range entries {
		entries[i].sources = append(entries[i].sources, name)
	}
	return entries, nil
}

// entries are the servers that one of a configuration comes to: what starts servers through
// this gateway counts as the servers that it starts.
func (c configured) entries(file, server string) []entry {
	c = c.expanded()
	e := entry{name: server, env: c.Env, url: c.URL, config: mcp.ServerConfig{Name: token(server),
		Command: c.Command, Args: c.Args, Env: c.Env, Instance: c.Instance, Roots: c.Roots}}
	if c.Command == "" {
		e.problem = cli.Fail(cli.ExitFailed,
			"a server with a command: those at a URL are not started here",
			"%s: mcpServers.%s has no command", file, server)
		return []entry{e}
	}
	if filepath.Base(c.Command) != "sagenbaum" || len(c.Args) == 0 || c.Args[0] != "mcp" {
		return []entry{e}
	}
	own, flags := new(options), pflag.NewFlagSet("mcp", pflag.ContinueOnError)
	own.gatewayFlags(flags)
	e.gateway, e.globals = own, globalFlags()
	flags.AddFlagSet(e.globals)
	flags.ParseErrorsAllowlist.UnknownFlags = true // of the output, which say nothing of a server
	if err := flags.Parse(c.Args[1:]); err != nil {
		e.problem = cli.Fail(cli.ExitFailed, "sagenbaum mcp [FLAGS] -- COMMAND",
			"%s: mcpServers.%s: %v", file, server, err)
		return []entry{e}
	}
	inner, err := own.read(flags.Args())
	if err != nil {
		e.problem = cli.Fail(cli.ExitFailed, "sagenbaum mcp [FLAGS] -- COMMAND",
			"%s: mcpServers.%s starts sagenbaum mcp without a command (%v)", file, server, err)
		return []entry{e}
	}
	for i := range inner {
		in := &inner[i]
		// The gateway does not know which of its environment its client has given to it.
		in.config.Inherited = c.Env
		in.gateway, in.globals, in.env = own, e.globals, c.Env
		if own.file == "" {
			in.name = server
		}
	}
	return inner
}

// globalFlags are those of every command, for a command line that is only read.
func globalFlags() *pflag.FlagSet {
	root := new(cobra.Command)
	new(cli.Settings).Flags(root)
	return root.PersistentFlags()
}

// variable is how Claude Code has a configuration read its environment.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`)

// expanded is a server with the environment in the place of ${NAME} and ${NAME:-DEFAULT}.
func (c configured) expanded() configured {
	expand := func(text string) string {
		return variable.ReplaceAllStringFunc(text, func(found string) string {
			parts := variable.FindStringSubmatch(found)
			if value, ok := os.LookupEnv(parts[1]); ok && (value != "" || parts[2] == "") {
				return value
			}
			if parts[2] == "" {
				return found // a client that has it refuses this, others pass it on as it is
			}
			return parts[3]
		})
	}
	c.Command = expand(c.Command)
	args, env := slices.Clone(c.Args), map[string]string{}
	for i := range args {
		args[i] = expand(args[i])
	}
	for name, value := range c.Env {
		env[name] = expand(value)
	}
	c.Args, c.Env = args, env
	return c
}

func readPacks(files []string) ([]mcp.Pack, error) {
	var packs []mcp.Pack
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, cli.Fail(cli.ExitFailed, "--pack FILE of one that is there", "%v", err)
		}
		pack, err := mcp.ParsePack(file, data)
		if err != nil {
			return nil, err
		}
		packs = append(packs, pack)
	}
	return packs, nil
}
