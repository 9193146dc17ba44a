package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/process"
)

// filesFromNPM starts the server that the demo of MCP plays with.
const filesFromNPM = "npx -y @modelcontextprotocol/server-filesystem@2026.8.31"

// fetchTime is how long npx may take to start it, which fetches it the first time.
const fetchTime = 45 * time.Second

// newMCP is `sagenbaum demo mcp`.
func newMCP(s *cli.Settings, run execution) *cobra.Command {
	var dir, with string
	var keep bool
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Play an agent that makes a mess of files through a real MCP server, and undo it",
		Long: `Play an agent that makes a mess of files through a real MCP server, and undo it. The
demo starts a Sagenbaum server and, as a client's configuration would, the gateway before the
filesystem server of npm. The agent writes, edits and moves files. Its last call is undone, then the
agent and its gateway are killed with -9, and a worker undoes the rest.

It compares every byte, mode and time with the start, and exits with 1 when one differs. Without
npx, or where npx cannot fetch that server, it says so and plays with a small one of its own.`,
		Example: "  sagenbaum demo mcp\n  sagenbaum demo mcp --dir /tmp/sagenbaum-demo   # keeps the " +
			"folder, to look around",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m := &mess{server: strings.Fields(with), given: cmd.Flags().Changed("with")}
			return cli.Failed("play the demo", m.stage(cmd, s, stage{run, dir, keep}))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "play in this empty or new `DIR` and keep it")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the temporary folder")
	cmd.Flags().StringVar(&with, "with", filesFromNPM,
		"`COMMAND` of the filesystem server, without its folder")
	return cmd
}

// mess is the demo of MCP under way.
type mess struct {
	*Demo
	dir    string // that the agent works in
	server []string
	given  bool // the server, by the user
	agent  *sdk.ClientSession
}

// stage plays the demo in its folder.
func (m *mess) stage(cmd *cobra.Command, s *cli.Settings, at stage) error {
	if len(m.server) == 0 {
		return cli.Fail(cli.ExitUsage, "--with '"+filesFromNPM+"'", "--with has no command")
	}
	if _, err := exec.LookPath(m.server[0]); err != nil && m.given {
		return cli.Fail(cli.ExitFailed, "--with a program that is there", "there is no %s", m.server[0])
	}
	return at.play(cmd, s, "--keep, then look into its folder",
		func(ctx context.Context, d *Demo, dir string) (err error) {
			d.World = World{dir}
			if d.self, err = os.Executable(); err != nil {
				return err
			}
			if err := os.MkdirAll(d.World.Data(), 0o755); err != nil {
				return err
			}
			m.Demo, m.dir = d, filepath.Join(dir, "files")
			if err := furnish(m.dir); err != nil {
				return err
			}
			if err := m.choose(ctx); err != nil {
				return err
			}
			if err := d.startServer(ctx, "127.0.0.1:0"); err != nil {
				return err
			}
			return m.play(ctx)
		})
}

// choose takes the built-in server where that of npm cannot be had.
func (m *mess) choose(ctx context.Context) error {
	if m.given {
		return nil
	}
	why, err := m.missing(ctx)
	if err == nil && why != "" {
		m.say("no filesystem server from npm here (%s): a small one of Sagenbaum's own plays it", why)
		m.server = []string{m.self, filesCommand}
	}
	return err
}

// missing says why the server of npm does not start; empty: it does.
func (m *mess) missing(ctx context.Context) (why string, err error) {
	if _, err := exec.LookPath(m.server[0]); err != nil {
		return "there is no " + m.server[0], nil
	}
	log, err := os.Create(filepath.Join(m.World.dir, "npx.log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	child := exec.Command(m.server[0], append(m.server[1:len(m.server):len(m.server)], m.dir)...)
	child.Stderr = log
	session, failed := sdk.NewClient(&sdk.Implementation{Name: "demo", Version: "1"}, nil).Connect(ctx,
		&sdk.CommandTransport{Command: child, TerminateDuration: time.Second}, nil)
	if failed == nil {
		_ = session.Close() // how it ends says nothing of how it serves
		return "", nil
	}
	said, err := os.ReadFile(log.Name())
	if line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n"); line != "" {
		return cli.Clip(line, 80), err
	}
	return cli.Clip(failed.Error(), 80), err
}

// command is that of `sagenbaum mcp` with these arguments before the server's command.
func (m *mess) command(args ...string) *exec.Cmd {
	args = append(args, "--server", m.url, "--creds", m.creds, "--tenant", Tenant, "--state",
		filepath.Join(m.World.dir, "state"), "--server-name", "filesystem", "--")
	return exec.Command(m.self, append(append(args, m.server...), m.dir)...)
}

func (m *mess) play(ctx context.Context) error {
	before, err := everything(m.dir)
	if err != nil {
		return err
	}
	gateway := m.command("mcp")
	log, err := os.Create(filepath.Join(m.World.dir, "gateway.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	gateway.Stderr = log
	m.act("An agent makes a mess through an MCP server")
	shown := append([]string{filepath.Base(m.server[0])}, m.server[1:]...)
	m.say("  sagenbaum mcp -- %s DIR", strings.Join(shown, " "))
	m.agent, err = sdk.NewClient(&sdk.Implementation{Name: "demo", Version: "1"}, nil).Connect(ctx,
		&sdk.CommandTransport{Command: gateway}, nil)
	if err != nil {
		return fmt.Errorf("cannot start the gateway: %w; its log is %s", err, log.Name())
	}
	defer m.agent.Close()
	plan, err := m.work(ctx)
	if err != nil {
		return err
	}
	m.act("kill -9 of the agent's gateway; a worker undoes the rest")
	if err := gateway.Process.Kill(); err != nil {
		return err
	}
	arguments := m.command("mcp", "worker").Args[1:]
	if m.worker, err = process.Start(m.self, m.World.dir, "worker", arguments...); err != nil {
		return err
	}
	// It does not end with its input, as the other children of a demo do.
	defer func() { _ = m.worker.Command.Process.Signal(os.Interrupt) }()
	code := m.executed(ctx, "plan", "cancel", plan, "--reason", "what a mess", "--wait")
	if code != 0 {
		m.check(false, "the plan is undone")
	}
	after, err := everything(m.dir)
	if err != nil {
		return err
	}
	m.check(slices.Equal(before, after),
		fmt.Sprintf("byte-identical, with modes and times (%d files and folders compared)", len(before)),
		Difference(before, after)...)
	return nil
}

// outside is a path that a server on a folder refuses.
const outside = "/etc/hosts"

// work makes the mess, and undoes its last call. It returns the plan.
func (m *mess) work(ctx context.Context) (plan string, err error) {
	in := func(name string) string { return filepath.Join(m.dir, name) }
	var last []string // before the last call that is done
	refused := []string{}
	for _, c := range []struct {
		tool string
		with map[string]any
	}{
		{"write_file", map[string]any{"path": in("notes.txt"), "content": "all gone\n"}},
		{"edit_file", map[string]any{"path": in("src/main.go"), "edits": []map[string]any{
			{"oldText": "return nil", "newText": "panic(\"oops\")"}}}},
		{"create_directory", map[string]any{"path": in("new/deep/folder")}},
		{"move_file", map[string]any{"source": in("src"), "destination": in("new/src")}},
		{"write_file", map[string]any{"path": in("new/junk.txt"), "content": "junk\n"}},
		{"write_file", map[string]any{"path": outside, "content": "refused"}},
	} {
		before, err := everything(m.dir)
		if err != nil {
			return "", err
		}
		result, err := m.agent.CallTool(ctx, &sdk.CallToolParams{Name: c.tool, Arguments: c.with})
		if err != nil {
			return "", err
		}
		said := "done"
		if result.IsError {
			said = "refused"
			refused = append(refused, shown(c.with, m.dir))
		} else {
			plan, _ = result.Meta["sagenbaum/plan"].(string)
			last = before
		}
		m.say("  %-17s %-28s %s", c.tool, shown(c.with, m.dir), said)
	}
	if !slices.Equal(refused, []string{outside}) {
		m.check(false, "only the call outside of the folder is refused", refused...)
	}
	result, err := m.agent.CallTool(ctx, &sdk.CallToolParams{Name: "undo_last"})
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(result.StructuredContent)
	if err != nil {
		return "", err
	}
	var report struct{ Undone []struct{ Tool string } }
	if err := json.Unmarshal(raw, &report); err != nil {
		return "", err
	}
	for _, call := range report.Undone {
		m.say("  %-17s %-28s %s", "undo_last", call.Tool, "undone")
	}
	now, err := everything(m.dir)
	if err != nil {
		return "", err
	}
	m.check(!result.IsError && slices.Equal(last, now), "the last call is undone, and only that",
		Difference(last, now)...)
	return plan, nil
}

// shown is what a call is about.
func shown(with map[string]any, dir string) string {
	path, _ := with["path"].(string)
	if path == "" {
		path, _ = with["source"].(string)
	}
	return strings.TrimPrefix(path, dir+string(filepath.Separator))
}

// furnish makes the files that the agent finds, with times long past.
func furnish(dir string) error {
	long := time.Date(2020, 1, 2, 3, 4, 5, 678, time.UTC)
	paths := []string{}
	for name, content := range map[string]string{
		"notes.txt":   "remember the milk\n",
		"src/main.go": "package main\n\nfunc run() error {\n\treturn nil\n}\n",
		"src/run.sh":  "#!/bin/sh\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
			return err
		}
		paths = append(paths, path)
	}
	for _, path := range append(paths, filepath.Join(dir, "src"), dir) {
		if err := os.Chtimes(path, long, long); err != nil {
			return err
		}
	}
	return nil
}

// everything is every file and folder below a folder: bytes, mode and time.
func everything(dir string) ([]string, error) {
	lines, err := listFiles(dir, dir)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("time %s %s %s", name, info.Mode(),
			info.ModTime().UTC().Format(time.RFC3339Nano)))
		return nil
	})
	return lines, err
}
