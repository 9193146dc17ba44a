package demo

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/process"
)

// Script is what the agent does in one act. The acts of the demo read it to
// know what to expect, the agent process to know what to do.
type Script struct {
	Plan   string // id of the plan
	branch string
	Tag    string // opened last; empty: the agent fails the plan without it
	// deadline is how long after its opening the plan is undone by itself.
	Deadline time.Duration
	// vanish makes the agent stop for ever inside its push, after the effect and
	// before anybody could learn of it.
	vanish bool
}

// Scripts are the plans of each act, by the act's name.
var Scripts = map[string][]Script{
	"one": {{Plan: "act-one", branch: "feature/login", Tag: "v1.0.0", Deadline: time.Minute}},
	"two": {{Plan: "act-two", branch: "feature/search", Tag: "v1.1.0", Deadline: 8 * time.Second,
		vanish: true}},
	"three": {
		{Plan: "act-three", branch: "release/2.0", Deadline: time.Minute},
		{Plan: "sibling", branch: "feature/help", Deadline: time.Minute},
	},
}

// actOne: the last of five actions fails, the four before are undone.
func (d *Demo) actOne(ctx context.Context) error {
	act := Scripts["one"][0]
	d.act("Act one: the plan fails at its last action")
	// Someone else has opened the tag on the remote meanwhile.
	if err := d.OccupyTag(ctx, act.Tag); err != nil {
		return err
	}
	before, err := Snapshot(ctx, d.World)
	if err != nil {
		return err
	}
	agent, err := d.agent("one")
	if err != nil {
		return err
	}
	if err := d.narrate(ctx, agent); err != nil {
		return err
	}
	plan, err := d.awaitPlan(ctx, act.Plan)
	if err != nil {
		return err
	}
	d.checkState(plan, ledger.StateCompensated)
	if err := d.checkUnwound(ctx, plan, 4, 3, 2, 1); err != nil {
		return err
	}
	return d.checkWorld(ctx, "repository and remote are byte-identical to the start", before)
}

// OccupyTag creates a tag on the remote, so that the agent's push of it fails.
func (d *Demo) OccupyTag(ctx context.Context, tag string) error {
	g := Git{Dir: d.World.Clone()}
	base, err := g.Tip(ctx, "refs/heads/main")
	if err != nil {
		return err
	}
	_, err = Git{d.World.Remote()}.Run(ctx, "update-ref", "refs/tags/"+tag, base)
	return err
}

// narrate repeats what the agent prints until it ends.
func (d *Demo) narrate(ctx context.Context, agent *process.Process) error {
	for line := range agent.Lines {
		d.say("  agent: %s", line)
	}
	return agent.Wait(ctx)
}

// actTwo: the agent dies inside its fourth action, the server dies too and is
// started again; the deadline undoes the plan.
func (d *Demo) actTwo(ctx context.Context) error {
	act := Scripts["two"][0]
	d.act("Act two: the agent is killed and never returns")
	before, err := Snapshot(ctx, d.World)
	if err != nil {
		return err
	}
	agent, err := d.agent("two")
	if err != nil {
		return err
	}
	defer agent.Kill()
	for {
		line, err := agent.Line(ctx)
		if err != nil {
			return err
		}
		d.say("  agent: %s", line)
		if line == vanished {
			break
		}
	}
	agent.Kill()
	d.say("  kill -9 of the agent (pid %d), inside its push; no one has recorded whether it "+
		"happened", agent.Command.Process.Pid)
	tip, err := Git{d.World.Remote()}.Tip(ctx, "refs/heads/"+act.branch)
	if err != nil {
		return err
	}
	d.check(tip != "", "the push did happen: the remote has "+act.branch)
	d.server.Kill()
	d.say("  kill -9 of the server (pid %d) before the plan's deadline, then the server starts "+
		"again", d.server.Command.Process.Pid)
	address, err := url.Parse(d.url)
	if err != nil {
		return err
	}
	if err := d.startServer(ctx, address.Host); err != nil {
		return err
	}
	if err := d.again(ctx,
		func() error {
			_,
				err := plan.AwaitEnd(ctx, d.Client, act.Plan, 0, demoTimeout)
			return err
		}); err != nil {
		return err
	}
	plan, err := d.showPlan(ctx, act.Plan)
	if err != nil {
		return err
	}
	d.checkState(plan, ledger.StateCompensated)
	if err := d.checkUnwound(ctx, plan, 4, 3, 2, 1); err != nil {
		return err
	}
	h, err := d.ReadHistory(ctx, act.Plan)
	if err != nil {
		return err
	}
	d.check(slices.Equal(h.blind, []string{plan.Actions[3].Action}),
		"the push, of which no outcome is recorded, was undone blind; the others were not",
		fmt.Sprint(h.blind))
	return d.checkWorld(ctx, "repository and remote are byte-identical to the start", before)
}

// actThree: the remote protects the branch, so one undo is impossible.
func (d *Demo) actThree(ctx context.Context) error {
	act, sibling := Scripts["three"][0], Scripts["three"][1]
	d.act("Act three: the remote protects a branch, one undo is impossible")
	if err := Protect(d.World, act.branch); err != nil {
		return err
	}
	d.say("  a pre-receive hook of the remote refuses to delete %s", act.branch)
	before, err := Snapshot(ctx, d.World)
	if err != nil {
		return err
	}
	agent, err := d.agent("three")
	if err != nil {
		return err
	}
	if err := d.narrate(ctx, agent); err != nil {
		return err
	}
	plan, err := d.awaitPlan(ctx, act.Plan)
	if err != nil {
		return err
	}
	healthy, err := d.awaitPlan(ctx, sibling.Plan)
	if err != nil {
		return err
	}
	d.checkState(plan, ledger.StateQuarantined)
	d.checkState(healthy, ledger.StateCompensated)
	h, err := d.ReadHistory(ctx, act.Plan)
	if err != nil {
		return err
	}
	d.check(len(h.Succeeded) == 0 && !slices.Contains(h.ends, pb.PlanEnd_PLAN_END_COMPENSATED),
		"no record claims that anything of "+act.Plan+" was compensated", fmt.Sprint(h))
	left, err := d.leftBehind(ctx, before)
	if err != nil {
		return err
	}
	d.check(len(left) > 0 &&
		onlyAbout(left, act.branch, filepath.Base(worktreePath(d.World, act.branch))),
		"what is left behind is that plan's alone, and all of it", left...)
	return d.resolveActThree(ctx, act, before)
}

// leftBehind lists what differs from a snapshot.
func (d *Demo) leftBehind(ctx context.Context, before []string) ([]string, error) {
	after, err := Snapshot(ctx, d.World)
	return Difference(before, after), err
}

// onlyAbout reports whether every line names one of the words.
func onlyAbout(lines []string, words ...string) bool {
	for _, line := range lines {
		// The porcelain list of worktrees says more than a name about each of them.
		about := strings.Contains(line, " worktree ") ||
			slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) })
		if !about {
			return false
		}
	}
	return true
}

// resolveActThree: the owner decides, through the same command line as anybody.
func (d *Demo) resolveActThree(ctx context.Context, act Script, before []string) error {
	d.check(d.executed(ctx, "quarantine", "ls") == cli.ExitLook,
		"quarantine ls ends with exit code 1")
	code := d.executed(ctx, "quarantine", "resolve", act.Plan, "4", "--as", "accepted", "--reason",
		"the release branch stays",
		"--evidence", "ticket:REL-20", "--actor", "release-manager")
	d.check(code == cli.ExitGood, "the owner accepts that the branch stays")
	plan, err := d.awaitPlan(ctx, act.Plan)
	if err != nil {
		return err
	}
	d.check(plan.State != ledger.StateQuarantined && plan.Quarantined == 0,
		"nothing waits for the owner any more", "it is "+plan.State)
	undone := len(plan.Actions) == 4 && plan.Actions[3].Undo == "resolved"
	for _, a := range plan.Actions[:min(3, len(plan.Actions))] {
		undone = undone && a.Undo == "compensated"
	}
	d.check(undone, "what it depended on is undone now: 3, 2, 1")
	tip, err := Git{d.World.Remote()}.Tip(ctx, "refs/heads/"+act.branch)
	if err != nil {
		return err
	}
	left, err := d.leftBehind(ctx, before)
	if err != nil {
		return err
	}
	kept := []string{
		"+ clone for-each-ref refs/remotes/origin/" + act.branch + " " + tip,
		"+ remote.git for-each-ref refs/heads/" + act.branch + " " + tip,
	}
	d.check(tip != "" && slices.Equal(left, kept),
		"exactly the accepted branch is left on the remote, with its tracking reference", left...)
	d.check(d.executed(ctx, "quarantine", "ls") == cli.ExitGood,
		"quarantine ls ends with exit code 0")
	return nil
}
