package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/process"
)

// The demo's agent: an ordinary program that acts through a coordinator. It
// contains no line that undoes anything.

const (
	// AgentName is the name of the demo's agent at its server.
	AgentName   = "coder"
	Attempts    = 3                      // of each compensation
	demoBackoff = 100 * time.Millisecond // before the second attempt
	// for an agent that is about to say what came of a call
	demoGrace        = 500 * time.Millisecond
	demoSettle       = time.Second // how much longer a git may work than its caller waits
	vanished         = "pushed, and about to say so"
	demoAgentTimeout = time.Minute
)

// Contracts declares what undoes each of the agent's capabilities.
func Contracts() []contract.Contract {
	input := func(names ...string) map[string]any {
		with := map[string]any{}
		for _, name := range names {
			with[name] = "=input." + name
		}
		return with
	}
	reset := input("repository", "branch", "path", "previous")
	reset["sha"] = "=output.sha" // null when the forward left no output
	contracts := []contract.Contract{
		{Capability: "git.branch.create",
			Inverse: &contract.Inverse{Call: "git.branch.delete",
				With: input("repository", "branch", "base")}},
		{Capability: "git.worktree.add",
			Inverse: &contract.Inverse{Call: "git.worktree.remove",
				With: input("repository", "path")}},
		{Capability: "git.commit",
			Inverse: &contract.Inverse{Call: "git.commit.reset", With: reset}},
		{Capability: "git.push",
			Inverse: &contract.Inverse{Call: "git.push.delete",
				With: input("repository", "branch", "sha")}},
		{Capability: "git.tag.create",
			Inverse: &contract.Inverse{Call: "git.tag.delete",
				With: input("repository", "tag", "sha")}},
	}
	for i := range contracts {
		c := &contracts[i]
		c.Class, c.Fidelity = contract.Compensable, contract.Exact
		c.Grace, c.Settle = demoGrace, demoSettle // git may outlive the agent that called it
		c.Inverse.Attempts, c.Inverse.Backoff, c.Inverse.Timeout = Attempts, demoBackoff, 10*time.Second
	}
	return contracts
}

// AgentCommand is the hidden command that plays the agent in a process of its own.
func AgentCommand(s *cli.Settings) *cobra.Command {
	var dir, act string
	cmd := &cobra.Command{
		Use: "demo-agent", Hidden: true, Short: "The demo's agent", Example: "  sagenbaum demo",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			scripts, known := Scripts[act]
			if !known {
				return cli.Fail(cli.ExitUsage, "sagenbaum demo", "the demo has no act %q", act)
			}
			ctx, cancel := process.UntilInputEnds(cmd.Context(), cmd.InOrStdin())
			defer cancel()
			ctx, stop := context.WithTimeout(ctx, demoAgentTimeout)
			defer stop()
			return cli.Failed("play the agent",
				playAgent(ctx, s, World{dir}, scripts, cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the demo's folder")
	cmd.Flags().StringVar(&act, "act", "", "which act")
	return cmd
}

// playAgent plays the scripts of one act, one plan after the other.
func playAgent(ctx context.Context, s *cli.Settings, world World, scripts []Script,
	out io.Writer) error {
	return s.With(func(c *cli.Client) error {
		agent, err := coordinator.New(coordinator.Config{Conn: c.Conn, Tenant: s.Tenant,
			Agent: AgentName, Contracts: Contracts()})
		if err != nil {
			return err
		}
		for _, act := range scripts {
			if err := PlayScript(ctx, agent, world, act, out); err != nil {
				return err
			}
		}
		return agent.Close(ctx)
	})
}

// PlayScript creates a branch, adds a worktree, commits a file, pushes and opens
// a tag, then commits the plan. What goes wrong fails the plan, and that is all
// the agent does about it.
func PlayScript(ctx context.Context, agent *coordinator.Coordinator, world World, act Script,
	out io.Writer) error {
	plan, err := agent.Begin(ctx, coordinator.PlanSpec{
		ID: act.Plan, Label: "ship " + act.branch, Owner: "release-team", Deadline: act.Deadline,
	})
	if err != nil {
		return err
	}
	if err := work(ctx, plan, world, act, out); err != nil {
		fmt.Fprintf(out, "plan %s fails: %v\n", act.Plan, err)
		return plan.Fail(ctx, err.Error())
	}
	return plan.Commit(ctx)
}

// work does the actions of a script; it stops at the first one that fails.
func work(ctx context.Context, plan *coordinator.Plan, world World, act Script,
	out io.Writer) error {
	g, path := Git{Dir: world.Clone()}, worktreePath(world, act.branch)
	base, err := g.Tip(ctx, "refs/heads/main")
	if err != nil {
		return err
	}
	do := func(capability, what string, input any,
		forward func(context.Context) (any, error)) (json.RawMessage, error) {
		output, err := plan.Do(ctx, coordinator.Action{Capability: capability, Input: input},
			func(ctx context.Context, _ coordinator.Call) (coordinator.Outcome, error) {
				output, err := forward(ctx)
				return coordinator.Outcome{Output: output}, outcomeOfGit(err)
			})
		if err == nil {
			fmt.Fprintf(out, "%-17s %s\n", capability, what)
		}
		return output, err
	}
	if _, err := do("git.branch.create", act.branch, BranchInput{g.Dir, act.branch, base},
		func(ctx context.Context) (any, error) {
			return nil, g.CreateBranch(ctx, BranchInput{g.Dir, act.branch, base})
		}); err != nil {
		return err
	}
	if _, err := do("git.worktree.add", filepath.Base(path), WorktreeInput{g.Dir, path, act.branch},
		func(ctx context.Context) (any, error) {
			return nil, g.AddWorktree(ctx, WorktreeInput{g.Dir, path, act.branch})
		}); err != nil {
		return err
	}
	in := CommitInput{Repository: g.Dir, Path: path, Branch: act.branch, Previous: base,
		File: "feature.go", Text: "package main\n\n// " + act.branch + "\n",
		Message: "add " + act.branch}
	raw, err := do("git.commit", in.File, in,
		func(ctx context.Context) (any, error) { return g.CommitFile(ctx, in) })
	if err != nil {
		return err
	}
	var commit commitOutput
	if err := json.Unmarshal(raw, &commit); err != nil {
		return err
	}
	push := PushInput{g.Dir, act.branch, commit.SHA}
	if _, err := do("git.push", act.branch+" at "+shortSHA(commit.SHA), push,
		func(ctx context.Context) (any, error) {
			if err := g.Push(ctx, push); err != nil || !act.vanish {
				return nil, err
			}
			fmt.Fprintln(out, vanished)
			<-ctx.Done() // the demo kills this process here
			return nil, ctx.Err()
		}); err != nil {
		return err
	}
	if act.Tag == "" {
		return errors.New("the review found a bug")
	}
	tag := TagInput{g.Dir, act.Tag, commit.SHA}
	_, err = do("git.tag.create", act.Tag, tag,
		func(ctx context.Context) (any, error) { return nil, g.CreateTag(ctx, tag) })
	return err
}

// outcomeOfGit says what a failing git means: a remote that rejected has not
// done it; anything else may have happened.
func outcomeOfGit(err error) error {
	var refused *gitError
	if errors.As(err, &refused) && strings.Contains(refused.stderr, "[rejected]") {
		return coordinator.NotTaken(err)
	}
	return err
}

func worktreePath(world World, branch string) string {
	return filepath.Join(world.Worktrees(), strings.ReplaceAll(branch, "/", "-"))
}
