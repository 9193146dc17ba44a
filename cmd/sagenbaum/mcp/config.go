package mcp

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

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
	problem error    // why there is no server in it
}

// files are those that say what there is: where it is from, and the packs of its gateway.
func (e *entry) files() []string {
	if e.gateway == nil {
		return e.sources
	}
	return slices.Concat(e.sources, e.gateway.packs)
}

// words are what names the server in a command line of sagenbaum mcp.
func (e *entry) words() []string {
	if e.config.URL != "" {
		return []string{"--url", e.config.URL}
	}
	return append([]string{"--", e.config.Command}, e.config.Args...)
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
	files, state, variable := o.packs, o.state, o.variable
	if e.gateway != nil {
		variable = e.gateway.variable // its client gives it some
		files = append(slices.Clone(e.gateway.packs), files...)
		if state == "" {
			state = e.gateway.state
		}
	}
	if e.config.Packs, err = readPacks(files); err != nil {
		return err
	}
	e.config.State, err = started.DirOf(state, variable)
	return err
}

// read finds out which servers there are.
func (o *options) read(args []string) ([]entry, error) {
	const usage = "sagenbaum mcp -- COMMAND, or with --url URL or --config FILE instead"
	switch {
	case len(o.headers) > 0 && o.url == "":
		return nil, cli.Fail(cli.ExitUsage, "--url URL beside it", "--header without --url")
	case o.url != "" && (len(args) > 0 || o.file != ""):
		return nil, cli.Fail(cli.ExitUsage, usage,
			"--url names the server: no command or --config beside it")
	case o.url != "":
		headers, err := o.sent()
		name := cmp.Or(o.server, hostOf(o.url))
		return []entry{{name: name, config: mcp.ServerConfig{Name: name, URL: o.url,
			Headers: headers, Instance: o.instance, Roots: o.roots, Settle: o.settle}}}, err
	case o.file == "" && len(args) == 0:
		return nil, cli.Fail(cli.ExitUsage, usage,
			"there is no server: give its command, --url or --config")
	case o.file == "":
		name := o.server
		if name == "" {
			name = nameOf(args)
		}
		return []entry{{name: name, config: mcp.ServerConfig{Name: name, Command: args[0],
			Args: args[1:], Instance: o.instance, Roots: o.roots, Settle: o.settle}}}, nil
	case len(args) > 0 || o.server != "" || o.instance != "" || len(o.roots) > 0 || o.settle != 0:
		return nil, cli.Fail(cli.ExitUsage, usage, "--config names the servers: no command, "+
			"--server-name, --instance, --root or --settle beside it")
	}
	return o.readFile(o.file)
}

// sent are the headers of the flags, with their values. What is no name of a variable may be a
// secret that was put in its place: it is not said.
func (o *options) sent() (map[string]string, error) {
	headers := map[string]string{}
	for i, header := range o.headers {
		name, variable, ok := strings.Cut(header, "=")
		if !ok {
			return nil, cli.Fail(cli.ExitUsage, "--header NAME=VARIABLE", "--header %d of %d has no =",
				i+1, len(o.headers))
		}
		value, ok := o.variable(variable)
		if !ok {
			return nil, cli.Fail(cli.ExitUsage, "--header "+name+"=VARIABLE, and its value in VARIABLE",
				"--header %s names no variable of the environment", name)
		}
		headers[name] = value
	}
	return headers, nil
}

// configured is a server in a client's configuration.
type configured struct {
	Command  string            `json:"command"`
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	Type     string            `json:"type"`
	URL      string            `json:"url"`
	Headers  map[string]string `json:"headers"`
	Settle   string            `json:"settle"`
	Instance string            `json:"instance"`
	Roots    []string          `json:"roots"`
}

// readFile reads the configuration of a client, by the names of its servers.
func (o *options) readFile(name string) (entries []entry, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		flag := cmp.Or(o.flag, "--config")
		return nil, cli.Fail(cli.ExitFailed, flag+" FILE of one that is there", "%v", err)
	}
	var file struct {
		Servers map[string]configured `json:"mcpServers"`
	}
	const want = `{"mcpServers": {"NAME": {"command": "...", "args": ["..."]}}}, or "url": "..."`
	switch err := json.Unmarshal(data, &file); {
	case err != nil:
		return nil, cli.Fail(cli.ExitFailed, want, "cannot read servers from %s (%v)", name, err)
	case len(file.Servers) == 0:
		return nil, cli.Fail(cli.ExitFailed, want,
			"cannot read servers from %s: it names none in mcpServers", name)
	}
	names := []string{}
	for server := range file.Servers {
		names = append(names, server)
	}
	slices.Sort(names)
	for _, server := range names {
		entries = append(entries, file.Servers[server].entries(o, name, server)...)
	}
	for i := range entries {
		entries[i].sources = append(entries[i].sources, name)
	}
	return entries, nil
}

// entries are the servers that one of a configuration comes to: what starts servers through
// this gateway counts as the servers that it starts.
func (c configured) entries(o *options, file, server string) []entry {
	given := c
	c = c.expanded(o.variable)
	e := entry{name: server, env: c.Env, config: mcp.ServerConfig{Name: token(server), URL: c.URL,
		Command: c.Command, Args: c.Args, Env: c.Env, Instance: c.Instance, Roots: c.Roots}}
	if e.config.Settle, e.problem = c.settle(file, server); e.problem != nil {
		return []entry{e}
	}
	if c.URL != "" {
		e.config.Headers, e.config.Env = c.Headers, nil // it is not started
		e.problem = given.reachable(o, file, server)
		return []entry{e}
	}
	if c.Command == "" {
		e.problem = cli.Fail(cli.ExitFailed, "a server with a command or a url",
			"%s: mcpServers.%s has no command", file, server)
		return []entry{e}
	}
	if filepath.Base(c.Command) != "sagenbaum" || len(c.Args) == 0 || c.Args[0] != "mcp" {
		return []entry{e}
	}
	own, flags := &options{env: c.Env}, pflag.NewFlagSet("mcp", pflag.ContinueOnError)
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
			"%s: mcpServers.%s starts sagenbaum mcp without a server (%v)", file, server, err)
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

// settle is how long a call that was given up may take to land at the server; 0: the default.
func (c configured) settle(file, server string) (time.Duration, error) {
	if c.Settle == "" {
		return 0, nil
	}
	settle, err := settleOf(c.Settle)
	if err != nil {
		return 0, cli.Fail(cli.ExitFailed, `a time, as "90s"`, "%s: mcpServers.%s.settle is %.80q: %v",
			file, server, c.Settle, err)
	}
	return settle, nil
}

// reachable says why a server at a URL is not called here: what else is wrong with the address the
// server says.
func (c configured) reachable(o *options, file, server string) error {
	if !slices.Contains([]string{"", "http", "streamable-http", "streamableHttp"}, c.Type) {
		return cli.Fail(cli.ExitFailed, `"type": "http", for streamable HTTP`,
			"%s: mcpServers.%s.type is %.80q", file, server, c.Type)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		for _, found := range variable.FindAllStringSubmatch(c.Headers[name], -1) {
			if _, ok := o.variable(found[1]); !ok && found[2] == "" {
				return cli.Fail(cli.ExitFailed, "its value in the environment variable "+found[1],
					"%s: mcpServers.%s.headers.%s: there is no variable %s", file, server, name, found[1])
			}
		}
	}
	return nil
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
func (c configured) expanded(lookup func(string) (string, bool)) configured {
	expand := func(text string) string {
		return variable.ReplaceAllStringFunc(text, func(found string) string {
			parts := variable.FindStringSubmatch(found)
			if value, ok := lookup(parts[1]); ok && (value != "" || parts[2] == "") {
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
	headers := map[string]string{}
	for name, value := range c.Headers {
		headers[name] = expand(value)
	}
	c.Args, c.Env, c.Headers, c.URL = args, env, headers, expand(c.URL)
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
