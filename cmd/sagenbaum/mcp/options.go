package mcp

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// options are the flags of the commands of mcp.
type options struct {
	file     string // configuration of a client
	flag     string // that has named it; empty: --config
	server   string // its name
	url      string
	headers  []string // NAME=VARIABLE
	instance string
	roots    []string
	packs    []string // files
	state    string
	settle   time.Duration
	verbose  bool

	agent      string
	unknown    string
	hints      bool
	deadline   time.Duration
	disconnect string
	noUndo     bool
	start      string
	listen     string
	stateless  bool
	token      string // of clients over HTTP; empty: they need none

	named bool // the server was

	env map[string]string // of the gateway, where its command line is only read
}

// variable is a variable of the environment of the gateway.
func (o *options) variable(name string) (string, bool) {
	if value, ok := o.env[name]; ok {
		return value, true
	}
	return os.LookupEnv(name)
}

// flags are those that say which servers there are.
func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.file, "config", "",
		"`FILE` with mcpServers, as clients have it, instead of a command")
	f.StringVar(&o.url, "url", "",
		"`URL` of a server of streamable HTTP, instead of a command: https, or http on this machine")
	f.StringArrayVar(&o.headers, "header", nil,
		"`NAME=VARIABLE` of a header for --url, whose value is that variable of the environment; may "+
			"be given more than once")
	f.StringVar(&o.server, "server-name", "",
		"`NAME` of the server in capabilities (default from its command or URL)")
	f.StringVar(&o.instance, "instance", "",
		"`NAME` of what undoes the server's effects, the same for its gateways and workers "+
			"(default from the machine and the command)")
	f.StringArrayVar(&o.roots, "root", nil,
		"`DIR` in which a server of files may work (default those among its arguments); may be "+
			"given more than once")
	f.StringArrayVar(&o.packs, "pack", nil,
		"`FILE` with the contracts of a server's tools; may be given more than once")
	f.StringVar(&o.state, "state", "",
		"`DIR` of images, trash and locks (default ~/.local/state/sagenbaum/mcp)")
	f.Var((*settling)(&o.settle), "settle", "`TIME` that a call which was given up, as after a "+
		"time-out, may take to land (default "+mcp.SettleDefault.String()+", with --url "+
		mcp.SettleRemote.String()+")")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log more")
}

// settling is the value of --settle. The default is said by leaving it out: no call lands in no
// time.
type settling time.Duration

// Set takes the time of the flag.
func (s *settling) Set(text string) error {
	d, err := settleOf(text)
	*s = settling(d)
	return err
}

// String is the time; empty: the default.
func (s *settling) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

// Type is what the flag takes.
func (s *settling) Type() string { return "duration" }

// settleOf is how long a call that was given up may take to land.
func settleOf(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < ledger.DurationMin || d > ledger.SettleMax {
		return 0, fmt.Errorf("want %v to %v, as 90s, or none of it for the default", ledger.DurationMin,
			ledger.SettleMax)
	}
	return d, nil
}

// gatewayFlags are those of the gateway beside.
func (o *options) gatewayFlags(f *pflag.FlagSet) {
	o.flags(f)
	f.StringVar(&o.agent, "agent", "", "`NAME` of the agent in the ledger (default that of the "+
		"credentials, else mcp)")
	f.StringVar(&o.unknown, "unknown", string(mcp.RefuseUnknown),
		"what becomes of tools without a contract: refuse hides them, ask has the client's user "+
			"agree to each call, record lets them through; both record calls that nothing undoes")
	f.BoolVar(&o.hints, "trust-hints", false,
		"believe tools without a contract that say readOnlyHint: they are called, and nothing is "+
			"recorded")
	f.DurationVar(&o.deadline, "deadline", mcp.DeadlineDefault,
		"after this `TIME` a plan that was not ended is undone")
	f.StringVar(&o.disconnect, "on-disconnect", string(mcp.LeavePlan),
		"what becomes of the plan of a client that goes: leave it to its deadline, commit or fail")
	f.StringVar(&o.listen, "listen", "",
		"`HOST:PORT` of this machine to serve streamable HTTP on, instead of standard input")
	f.BoolVar(&o.stateless, "stateless", false,
		"with --listen: serve clients of the protocol without sessions as well (2026-07-28); their "+
			"calls name their plan")
	f.StringVar(&o.start, "start", startDefault,
		"`HOST:PORT` of this machine on which a server is started where none was named and none runs; "+
			startOff+": none is started")
	f.BoolVar(&o.noUndo, "no-undo", false, "leave all undos to workers")
}

// config is what the flags say of the gateway.
func (o *options) config() (mcp.Config, error) {
	for _, flag := range []struct {
		name, value string
		allowed     []string
	}{
		{"unknown", o.unknown, []string{"refuse", "ask", "record"}},
		{"on-disconnect", o.disconnect, []string{"leave", "commit", "fail"}},
	} {
		if err := cli.OneOf(flag.name, flag.value, flag.allowed...); err != nil {
			return mcp.Config{}, err
		}
	}
	if o.stateless && o.listen == "" {
		return mcp.Config{}, cli.Fail(cli.ExitUsage, "--listen 127.0.0.1:4271 beside it",
			"--stateless is for clients over HTTP")
	}
	if o.listen != "" {
		if err := cmp.Or(checkListen(o.listen), o.readToken()); err != nil {
			return mcp.Config{}, err
		}
	}
	if err := o.checkStart(); err != nil {
		return mcp.Config{}, err
	}
	if o.deadline <= 0 {
		return mcp.Config{}, cli.Fail(
			cli.ExitUsage,
			"--deadline 24h",
			"--deadline cannot be %s",
			o.deadline,
		)
	}
	return mcp.Config{Unknown: mcp.Unknown(o.unknown), TrustHints: o.hints, Deadline: o.deadline,
		OnDisconnect: mcp.Disconnect(o.disconnect), ServeUndos: !o.noUndo, Stateless: o.stateless}, nil
}

// packaged finds the name of a server in that of its package.
var packaged = regexp.MustCompile(`(?:mcp-server-|server-|mcp-)([A-Za-z0-9_-]+)`)

// hostOf names a server by its URL.
func hostOf(address string) string {
	at, err := url.Parse(address)
	if err != nil || at.Hostname() == "" {
		return "remote"
	}
	return token(at.Hostname())
}

// nameOf names a server by its command line.
func nameOf(args []string) string {
	for _, arg := range args {
		if info, err := os.Stat(arg); err == nil && info.IsDir() {
			continue
		}
		if found := packaged.FindStringSubmatch(arg); found != nil {
			return token(found[1])
		}
	}
	return token(filepath.Base(args[0]))
}

// token makes a text a name of the ledger.
func token(text string) string {
	safe := strings.Map(func(r rune) rune {
		if r < 0x80 && ledger.ValidToken(string(r)) {
			return r
		}
		return '-'
	}, text)
	return safe[:min(len(safe), 32)]
}

// writer is standard output as the SDK wants it: closing it is not what ends the process.
type writer struct{ io.Writer }

// Close leaves the output as it is.
func (writer) Close() error { return nil }
