// Package demo is `sagenbaum demo`: a coding agent's real git work, undone three ways.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/process"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const (
	// Tenant is the tenant that the demo works in.
	Tenant      = "demo"
	demoTimeout = 2 * time.Minute // of all acts; they take a fraction of it
)

// Command is `sagenbaum demo` with all below it.
func Command(s *cli.Settings, run execution) *cobra.Command {
	var dir string
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play a coding agent's plan on a real git repository and undo it three ways",
		Long: `Play a coding agent's plan on a real git repository and undo it three ways. The
demo makes a repository with a bare remote in a temporary folder and starts a
server, a worker and an agent, each in a process of its own:

  act one    the plan fails at its last action
  act two    the agent is killed with -9 and never returns; the server too, once
  act three  the remote protects the branch: one undo is impossible

After each act it compares references, worktrees and files with the start. Then it
exports its ledger and checks it as an auditor would, with a copy that was tampered
with. It exits with 1 when a check fails. It needs the git program.`,
		Example: "  sagenbaum demo\n  sagenbaum demo --dir /tmp/sagenbaum-demo   # keeps the " +
			"folder, to look around",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Failed("play the demo", playDemo(cmd, s, stage{run, dir, keep}))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "play in this empty or new `DIR` and keep it")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the temporary folder")
	cmd.AddCommand(newMCP(s, run))
	return cmd
}

// execution runs a command line of this binary in this process and returns its exit code.
type execution func(ctx context.Context, args []string, stdout, stderr io.Writer) int

// Demo is a demo under way.
type Demo struct {
	run    execution
	out    io.Writer
	errors io.Writer
	pen    cli.Pen
	self   string // this binary
	World  World
	server *process.Process
	worker *process.Process
	url    string
	creds  string // file
	Client *cli.Client
	broken int // checks that did not hold
}

// stage is where a demo is played.
type stage struct {
	run  execution
	dir  string // empty: a temporary folder
	keep bool   // also a temporary one
}

func playDemo(cmd *cobra.Command, s *cli.Settings, at stage) error {
	return at.play(cmd, s, "--keep, then read the logs in its folder",
		func(ctx context.Context, d *Demo, dir string) error {
			if err := d.start(ctx, dir, s.Timeout); err != nil {
				return err
			}
			for _, act := range []func(context.Context) error{d.actOne, d.actTwo, d.actThree,
				d.proof} {
				if err := act(ctx); err != nil {
					return err
				}
			}
			return nil
		})
}

// play plays the acts of a demo in its folder, which is removed unless it was named or is to be
// kept. look says how to see why a check did not hold.
func (at stage) play(cmd *cobra.Command, s *cli.Settings, look string,
	acts func(ctx context.Context, d *Demo, dir string) error) error {
	started := time.Now()
	ctx, cancel := context.WithTimeout(cmd.Context(), demoTimeout)
	defer cancel()
	d := &Demo{run: at.run, out: cmd.OutOrStdout(), errors: cmd.ErrOrStderr(), pen: s.Pen(cmd)}
	dir, err := demoDir(at.dir)
	if err != nil {
		return err
	}
	if at.keep || cmd.Flags().Changed("dir") {
		defer fmt.Fprintln(d.errors, "kept:", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	defer d.stop()
	if err := acts(ctx, d, dir); err != nil {
		return err
	}
	if d.broken > 0 {
		return cli.Fail(cli.ExitLook, cmd.CommandPath()+" "+look, "%d checks failed", d.broken)
	}
	fmt.Fprintf(d.out, "\n%s in %s\n", d.pen.Bold("all checks hold"), cli.Span(time.Since(started)))
	return nil
}

// demoDir makes the folder to play in: a temporary one, or one that must be empty.
func demoDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "sagenbaum-demo-")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", cli.Fail(cli.ExitUsage, "--dir with an empty or new folder", "%s is not empty",
			dir)
	}
	return filepath.Abs(dir)
}

// start makes the repositories and starts server and worker.
func (d *Demo) start(ctx context.Context, dir string, timeout time.Duration) error {
	var err error
	if d.self, err = os.Executable(); err != nil {
		return err
	}
	if d.World, err = MakeWorld(ctx, dir); err != nil {
		return err
	}
	if err := d.startServer(ctx, "127.0.0.1:0"); err != nil {
		return err
	}
	if d.worker, err = process.Start(d.self, d.World.dir, "worker", "demo-worker", "--server",
		d.url, "--creds", d.creds, "--tenant", Tenant); err != nil {
		return err
	}
	if _, err := d.worker.Line(ctx); err != nil {
		return err
	}
	s := &cli.Settings{Server: d.url, Creds: d.creds, Tenant: Tenant, Timeout: timeout,
		Inbox: "_INBOX"}
	d.Client, err = s.Connect()
	fmt.Fprintf(d.out,
		"a repository with a bare remote in %s\nserver pid %d on %s, worker pid %d\n",
		d.World.dir, d.server.Command.Process.Pid, d.url, d.worker.Command.Process.Pid)
	return err
}

// startServer starts `serve` on an address and waits until it is ready.
func (d *Demo) startServer(ctx context.Context, listen string) error {
	var err error
	d.server, err = process.Start(d.self, d.World.dir, "server", "serve", "--console",
		serve.ConsoleOff, "--data", d.World.Data(),
		"--listen", listen, "--tenant", Tenant, "--stop-on-eof", "-o", "json")
	if err != nil {
		return err
	}
	line, err := d.server.Line(ctx)
	if err != nil {
		return err
	}
	var r serve.Ready
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return fmt.Errorf("cannot read what the server said: %w", err)
	}
	d.url, d.creds = r.URL, r.Creds
	return nil
}

// stop ends every child.
func (d *Demo) stop() {
	if d.Client != nil {
		d.Client.Close()
	}
	for _, p := range []*process.Process{d.worker, d.server} {
		if p != nil {
			p.Stop()
		}
	}
}

func (d *Demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, format+"\n", args...)
}

func (d *Demo) act(title string) {
	fmt.Fprintf(d.out, "\n%s\n", d.pen.Bold(title))
}

// agent starts the agent process for one act.
func (d *Demo) agent(act string) (*process.Process, error) {
	return process.Start(d.self, d.World.dir, "agent", "demo-agent",
		"--server", d.url, "--creds", d.creds, "--tenant",
		Tenant, "--dir", d.World.dir, "--act", act)
}

// awaitPlan waits until a plan has ended and shows its tree.
func (d *Demo) awaitPlan(ctx context.Context, id string) (api.Plan, error) {
	if _, err := plan.AwaitEnd(ctx, d.Client, id, 0, demoTimeout); err != nil {
		return api.Plan{}, err
	}
	return d.showPlan(ctx, id)
}

func (d *Demo) showPlan(ctx context.Context, id string) (api.Plan, error) {
	plan, err := d.Client.Plan(ctx, id, 0)
	if err == nil {
		render.WriteTree(d.out, d.pen, cli.Family{Root: plan}, time.Now())
	}
	return plan, err
}

// again repeats a question while the server is coming back.
func (d *Demo) again(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var f *cli.Failure
		if !errors.As(err, &f) || f.Code != cli.ExitNoServer {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(AgainPause):
		}
	}
}

// AgainPause is how long the demo waits before it asks a server again.
const AgainPause = 50 * time.Millisecond

// executed runs a command line of this binary, in this process, against the
// demo's server, and shows it.
func (d *Demo) executed(ctx context.Context, args ...string) int {
	fmt.Fprintln(d.out, "$", cli.CommandLine("sagenbaum", args...))
	args = append(args, "--server", d.url, "--creds", d.creds, "--tenant", Tenant)
	return d.run(ctx, args, d.out, d.out)
}
