package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
)

// Finding is one thing that the doctor looked at, of one server.
type Finding struct {
	Server string `json:"server"`
	doctor.Finding
}

// startTime is how long a server may take to start and list its tools.
const startTime = time.Minute

func newDoctor(s *cli.Settings) *cobra.Command {
	o := new(options)
	cmd := &cobra.Command{
		Use:   "doctor -- COMMAND [ARGUMENT...]",
		Short: "Check a client's configuration and its servers, and say what to do",
		Long: `Check a client's configuration, or one server by its command, and say what to do about
each finding: whether calls go through the gateway, whether each server starts, which
contracts match it and were tested with its version, which tools have none, whether the
ledger is reached as the gateway reaches it, whether something serves the undos, and
whether the folder of images can be written. Exit code 1 when a check found something.

It starts each server, asks for its tools, and ends it. It calls none of them and leaves
nothing.`,
		Example: `  sagenbaum mcp doctor --config .mcp.json
  sagenbaum mcp doctor -- npx -y @modelcontextprotocol/server-memory`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := fromDash(cmd, args); err != nil {
				return err
			}
			findings, err := o.examine(cmd, s, args)
			if err != nil {
				return cli.Failed("look at the servers", err)
			}
			err = s.Print(cmd, map[string][]Finding{"checks": findings},
				func() { writeFindings(cmd, s.Pen(cmd), findings) })
			return cli.Look(err, slices.ContainsFunc(findings, func(f Finding) bool {
				return f.State != "ok" && f.State != "skip"
			}))
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

func writeFindings(cmd *cobra.Command, p cli.Pen, findings []Finding) {
	out, server := cmd.OutOrStdout(), ""
	for _, f := range findings {
		if f.Server != server {
			server = f.Server
			fmt.Fprintln(out, p.Bold(cli.Printable(server)))
		}
		fmt.Fprintf(out, "%s%*s %-8s %s\n", p.State(f.State), 4-len(f.State), "", f.Check,
			cli.Printable(f.Text))
		for _, detail := range f.Details {
			fmt.Fprintf(out, "     %-8s %s\n", "", cli.Printable(detail))
		}
		if f.Next != "" {
			fmt.Fprintf(out, "     %-8s next: %s\n", "", cli.Printable(f.Next))
		}
	}
}

// patient looks at one server.
type patient struct {
	entry
	o        *options
	settings *cli.Settings // of the doctor
	findings []Finding
	staged   []string // capabilities under which calls are staged
	args     []string // of the doctor: the command of the server
	worker   string   // command line of what undoes
}

func (p *patient) say(state, check, next, format string, args ...any) *Finding {
	p.findings = append(p.findings, Finding{p.name, doctor.Finding{Check: check, State: state,
		Text: fmt.Sprintf(format, args...), Next: next}})
	return &p.findings[len(p.findings)-1]
}

// wrong says what an error is, and what to do about it.
func (p *patient) wrong(check string, err error) {
	var f *cli.Failure
	if errors.As(cli.Failed("go on", err), &f) {
		p.say("FAIL", check, f.Hint, "%s", strings.TrimPrefix(f.Text, "cannot go on: "))
	} else {
		p.say("FAIL", check, "", "%v", err)
	}
}

func (o *options) examine(cmd *cobra.Command, s *cli.Settings, args []string) ([]Finding, error) {
	entries, err := o.read(args)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	undos := map[string]string{}
	for _, e := range entries {
		p := &patient{entry: e, o: o, settings: s, args: args}
		p.examineGateway()
		if e.problem != nil {
			p.wrong("start", e.problem)
			findings = append(findings, p.findings...)
			continue
		}
		undo := p.examineServer(cmd.Context())
		if other := undos[undo]; undo != "" && other != "" {
			p.say("FAIL", "name", "--instance NAME, another one for each, at gateway and worker",
				"what undoes its effects is %s, as for %s: an undo could reach the wrong one", undo,
				other)
		}
		undos[undo] = e.name
		p.examineHost()
		p.examineConnection(cmd, undo)
		p.examineState()
		findings = append(findings, p.findings...)
	}
	return findings, nil
}

// examineGateway says whether the client's calls go through the gateway.
func (p *patient) examineGateway() {
	switch {
	case p.o.file == "":
		p.say("skip", "gateway", "sagenbaum mcp doctor --config FILE of the client",
			"not checked: no configuration of a client was given")
	case p.gateway != nil:
		p.say("ok", "gateway", "", "calls go through sagenbaum mcp")
	default:
		p.say("warn", "gateway", fmt.Sprintf(`"command": "sagenbaum", "args": ["mcp", %s]`,
			quoted(p.words())),
			"it is called past the gateway: nothing that it does can be undone")
	}
}

// quoted are texts as members of a list in JSON.
func quoted(list []string) string {
	raw, err := json.Marshal(list)
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.Trim(string(raw), "[]"), `","`, `", "`)
}

// examineServer starts the server and looks at its tools. It returns what undoes its effects.
func (p *patient) examineServer(ctx context.Context) (undo string) {
	if err := p.o.complete(&p.entry); err != nil {
		p.wrong("start", err)
		return ""
	}
	config := p.config
	scratch, err := os.MkdirTemp("", "sagenbaum-doctor-") // the doctor leaves nothing
	if err != nil {
		p.wrong("start", err)
		return ""
	}
	defer os.RemoveAll(scratch)
	if err := mcp.SamePlace(scratch, config.State); err != nil {
		p.wrong("state", err)
		return ""
	}
	var said bytes.Buffer
	config.State, config.Errors = scratch, &said
	config.Logger = slog.New(slog.DiscardHandler)
	server, err := mcp.NewServer(config)
	if err != nil {
		p.wrong("start", err)
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	began := time.Now()
	err = server.Start(ctx)
	names := map[string]bool{}
	if err == nil {
		tools, failed := server.Tools(ctx)
		for _, t := range tools {
			names[t.Name] = true
		}
		err = failed
	}
	took := time.Since(began)
	server.Close() // said is written no more
	p.remember(server)
	if err != nil {
		p.wrong("start", err)
		f := &p.findings[len(p.findings)-1]
		switch {
		case f.Next != "":
		case p.config.URL != "":
			f.Next = "see whether it is there, and which headers it wants: " +
				cli.CommandLine("curl", "-i", p.config.URL)
		default:
			f.Next = "run it by hand: " + cli.CommandLine(config.Command, config.Args...)
		}
		f.Details = lastLines(said.String())
		return server.Undo()
	}
	p.say("ok", "start", "", "%s %s, %s, in %s", server.Introduced(), server.Version(),
		cli.CountOf(len(names), "tool"), cli.Span(took))
	p.examinePack(server)
	p.examineTools(server, names)
	p.examineStaged(server, names)
	return server.Undo()
}

// remember notes which worker undoes what the server does.
func (p *patient) remember(server *mcp.Server) {
	g := p.o.started(server, p.args)
	g.Files = g.Files || p.o.file != "" // which has the environment
	p.worker = g.Line()
}

// lastLines are the end of what a server wrote to its log.
func lastLines(log string) []string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if lines[0] == "" {
		return nil
	}
	return lines[max(0, len(lines)-5):]
}

func (p *patient) examinePack(server *mcp.Server) {
	pack := server.Pack()
	if len(pack.Tools) == 0 {
		said := ""
		if unused := mcp.Unused([]*mcp.Server{server}); unused != "" {
			said = ": " + unused
		}
		p.say("warn", "pack", cli.CommandLine("sagenbaum",
			append([]string{"contract", "init", "--from-mcp"}, p.words()...)...)+", then --pack FILE",
			"no contracts are known for %s%s", server.Introduced(), said)
		return
	}
	version := packageVersion(p.config.Command, p.config.Args)
	if version == "" && slices.Contains(pack.Tested, server.Version()) {
		version = server.Version()
	}
	tested := strings.Join(pack.Tested, ", ")
	switch {
	case tested == "":
		p.say("ok", "pack", "", "contracts of %s; they name no version that they were tested with",
			pack.Server)
	case version == "":
		p.say("skip", "pack", "name a version: PACKAGE@"+pack.Tested[0],
			"contracts of %s, tested with %s; which version runs here is not known", pack.Server,
			tested)
	case !slices.Contains(pack.Tested, version):
		p.say("warn", "pack", "PACKAGE@"+pack.Tested[0]+
			", or compare what the tools do: sagenbaum mcp check",
			"contracts of %s, tested with %s; this is %s", pack.Server, tested, version)
	default:
		p.say("ok", "pack", "", "contracts of %s, tested with this version (%s)", pack.Server,
			version)
	}
}

// examineStaged says which calls are staged, and where a lost answer would go to the owner.
func (p *patient) examineStaged(server *mcp.Server, there map[string]bool) {
	var staged, gone, blind []string
	for name, t := range server.Pack().Tools {
		switch {
		case t.Stage != contract.StageCommit:
		case !there[name]:
			gone = append(gone, name)
		case t.Dedupe == 0 && t.Probe == nil:
			blind = append(blind, name)
			fallthrough
		default:
			staged = append(staged, name)
		}
	}
	for _, list := range [][]string{staged, gone, blind} {
		slices.Sort(list)
	}
	p.staged = server.Deliveries()
	if len(gone) > 0 {
		p.say("FAIL", "staged", "the version that the contracts were written for",
			"calls are staged of tools that the server does not have: %s", strings.Join(gone, ", "))
	}
	if len(staged) > 0 {
		p.say("ok", "staged", "", "calls of %s are staged: they are made once their plan is "+
			"committed, and an undo before drops them", strings.Join(staged, ", "))
	}
	if len(blind) > 0 {
		p.say("warn", "staged", "key with dedupe, or probe with done, in the file for --pack "+
			"(docs/guide/mcp.md, Calls that are staged)",
			"after a call of %s that has no answer nothing says whether it was made: each is its "+
				"owner's to look at", strings.Join(blind, ", "))
	}
}

func (p *patient) examineTools(server *mcp.Server, there map[string]bool) {
	pack, unknown, gone := server.Pack(), []string{}, []string{}
	for _, name := range pack.Calls() {
		if !there[name] {
			gone = append(gone, name)
		}
	}
	for name := range there {
		if _, _, known := server.Contract(name); !known {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	if len(gone) > 0 {
		p.say("FAIL", "tools", "the version that the contracts were tested with",
			"the contracts undo with tools that the server does not have: %s",
			strings.Join(gone, ", "))
	}
	if len(unknown) == 0 {
		p.say("ok", "tools", "", "all %d tools have a contract", len(there))
		return
	}
	become := "they are hidden and refused"
	switch {
	case p.gateway == nil:
	case p.gateway.unknown == string(mcp.AskUnknown):
		become = "each call asks the user, and nothing undoes it"
	case p.gateway.unknown == string(mcp.RecordUnknown):
		become = "they are called, and nothing undoes it"
	}
	f := p.say("warn", "tools", "a contract in a file for --pack (docs/guide/mcp.md, Contracts), "+
		"or --unknown ask", "%d of %d tools have no contract: %s", len(unknown), len(there), become)
	f.Details = []string{strings.Join(unknown, " ")}
}
