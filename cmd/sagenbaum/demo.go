package main

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

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

const (
	demoTenant  = "demo"
	demoTimeout = 2 * time.Minute // of all acts; they take a fraction of it
)

func newDemo(s *settings) *cobra.Command {
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
		Example: "  sagenbaum demo\n  sagenbaum demo --dir /tmp/sagenbaum-demo   # keeps the folder, to look around",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failed("play the demo", playDemo(cmd, s, dir, keep))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "play in this empty or new `DIR` and keep it")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the temporary folder")
	return cmd
}

// demo is a demo under way.
type demo struct {
	out    io.Writer
	errors io.Writer
	pen    pen
	self   string // this binary
	world  demoWorld
	server *process
	worker *process
	url    string
	client *client
	broken int // checks that did not hold
}

func playDemo(cmd *cobra.Command, s *settings, dir string, keep bool) error {
	started := time.Now()
	ctx, cancel := context.WithTimeout(cmd.Context(), demoTimeout)
	defer cancel()
	d := &demo{out: cmd.OutOrStdout(), errors: cmd.ErrOrStderr(), pen: s.pen(cmd)}
	dir, err := demoDir(dir)
	if err != nil {
		return err
	}
	if keep || cmd.Flags().Changed("dir") {
		defer fmt.Fprintln(d.errors, "kept:", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	defer d.stop()
	if err := d.start(ctx, dir, s.timeout); err != nil {
		return err
	}
	for _, act := range []func(context.Context) error{d.actOne, d.actTwo, d.actThree, d.proof} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	if d.broken > 0 {
		return fail(exitLook, "sagenbaum demo --keep, then read the logs in its folder", "%d checks failed", d.broken)
	}
	fmt.Fprintf(d.out, "\n%s in %s\n", d.pen.bold("all checks hold"), span(time.Since(started)))
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
		return "", fail(exitUsage, "--dir with an empty or new folder", "%s is not empty", dir)
	}
	return filepath.Abs(dir)
}

// start makes the repositories and starts server and worker.
func (d *demo) start(ctx context.Context, dir string, timeout time.Duration) error {
	var err error
	if d.self, err = os.Executable(); err != nil {
		return err
	}
	if d.world, err = makeWorld(ctx, dir); err != nil {
		return err
	}
	if err := d.startServer(ctx, "127.0.0.1:0"); err != nil {
		return err
	}
	if d.worker, err = startProcess(d.self, d.world.dir, "worker", "demo-worker", "--server", d.url, "--tenant", demoTenant); err != nil {
		return err
	}
	if _, err := d.worker.line(ctx); err != nil {
		return err
	}
	s := &settings{server: d.url, tenant: demoTenant, timeout: timeout, inbox: "_INBOX"}
	d.client, err = s.connect()
	fmt.Fprintf(d.out, "a repository with a bare remote in %s\nserver pid %d on %s, worker pid %d\n",
		d.world.dir, d.server.command.Process.Pid, d.url, d.worker.command.Process.Pid)
	return err
}

// startServer starts `serve` on an address and waits until it is ready.
func (d *demo) startServer(ctx context.Context, listen string) error {
	var err error
	d.server, err = startProcess(d.self, d.world.dir, "server", "serve", "--console", consoleOff, "--data", d.world.data(),
		"--listen", listen, "--tenant", demoTenant, "--stop-on-eof", "-o", "json")
	if err != nil {
		return err
	}
	line, err := d.server.line(ctx)
	if err != nil {
		return err
	}
	var r ready
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		return fmt.Errorf("cannot read what the server said: %w", err)
	}
	d.url = r.URL
	return nil
}

// stop ends every child.
func (d *demo) stop() {
	if d.client != nil {
		d.client.close()
	}
	for _, p := range []*process{d.worker, d.server} {
		if p != nil {
			p.stop()
		}
	}
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, format+"\n", args...)
}

func (d *demo) act(title string) {
	fmt.Fprintf(d.out, "\n%s\n", d.pen.bold(title))
}

// agent starts the agent process for one act.
func (d *demo) agent(act string) (*process, error) {
	return startProcess(d.self, d.world.dir, "agent", "demo-agent", "--server", d.url, "--tenant", demoTenant, "--dir", d.world.dir, "--act", act)
}

// awaitPlan waits until a plan has ended and shows its tree.
func (d *demo) awaitPlan(ctx context.Context, id string) (executor.PlanView, error) {
	if _, err := d.client.awaitEnd(ctx, id, 0, demoTimeout); err != nil {
		return executor.PlanView{}, err
	}
	return d.showPlan(ctx, id)
}

func (d *demo) showPlan(ctx context.Context, id string) (executor.PlanView, error) {
	plan, err := d.client.plan(ctx, id, 0)
	if err == nil {
		writeTree(d.out, d.pen, family{root: plan}, time.Now())
	}
	return plan, err
}

// again repeats a question while the server is coming back.
func (d *demo) again(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var f *failure
		if !errors.As(err, &f) || f.code != exitNoServer {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(againPause):
		}
	}
}

const againPause = 50 * time.Millisecond

// executed runs a command line of this binary, in this process, against the
// demo's server, and shows it.
func (d *demo) executed(ctx context.Context, args ...string) int {
	fmt.Fprintln(d.out, "$ sagenbaum", shellText(args))
	return execute(ctx, append(args, "--server", d.url, "--tenant", demoTenant), d.out, d.out)
}

func shellText(args []string) string {
	text := ""
	for _, arg := range args {
		text += " " + quoted(arg)
	}
	return text[1:]
}

// ended reports whether a plan's state is one that stays by itself.
func ended(state string) bool {
	return state != "" && state != ledger.StateOpen && state != ledger.StateCommitting && state != ledger.StateUnwinding
}
