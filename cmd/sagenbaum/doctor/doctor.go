// Package doctor is `sagenbaum doctor`: it looks for trouble and says what to do about it.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Finding is one thing the doctor looked at.
type Finding struct {
	Check string `json:"check"`
	State string `json:"state"` // ok, warn, FAIL, skip (not checked)
	Text  string `json:"text"`
	// Details are the plans that a finding is about, some of them when there are many.
	Details []string `json:"details,omitempty"`
	Next    string   `json:"next,omitempty"` // what to do about it
	passing bool     // mayPass
}

func ok(check, format string, args ...any) Finding {
	return Finding{Check: check, State: "ok", Text: fmt.Sprintf(format, args...)}
}

func warn(check, next, format string, args ...any) Finding {
	return Finding{Check: check, State: "warn", Text: fmt.Sprintf(format, args...), Next: next}
}

func broken(check, next, format string, args ...any) Finding {
	return Finding{Check: check, State: "FAIL", Text: fmt.Sprintf(format, args...), Next: next}
}

func skipped(check, next, format string, args ...any) Finding {
	return Finding{Check: check, State: "skip", Text: fmt.Sprintf(format, args...), Next: next}
}

// Command is `sagenbaum doctor` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	var plan, accounts, users string
	var old time.Duration
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the server, the ledger, the executor and what is waiting",
		Long: `Check the server, the ledger, the executor and what waits, and say what to do
about each finding. Exit code 1 when a check found something. A check that the
user has no permission for is skipped and says so.

With --plan it dumps one plan in full instead: everything that is known of it and of
the plans that are part of it, each quarantined action with what its owner can
answer, every attempt of an undo, and the records that were refused. Exit code 1
when something in it is quarantined.

With --accounts it reads the configuration of a NATS server instead, and asks no
server: whether its accounts and users are what the table of roles has, which
'sagenbaum user export' writes and people then edit. With --users FILE each user is
held against that file, and otherwise against the role that it is nearest to.

It only reads: a second look changes nothing and finds the same.`,
		Example: "  sagenbaum doctor\n  sagenbaum doctor --old 72h\n  sagenbaum doctor --tenant " +
			"default -o json\n  sagenbaum doctor >/tmp/doctor.txt || mail -s doctor ops < " +
			"/tmp/doctor.txt  # in cron\n  sagenbaum doctor --plan 01JD3BX7\n  sagenbaum doctor " +
			"--accounts nats.conf --users users",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch given := cmd.Flags().Changed; {
			case given("accounts") && given("plan"):
				return cli.Fail(cli.ExitUsage, "one of them", "--accounts and --plan do not go together")
			case given("users") && !given("accounts"):
				return cli.Fail(cli.ExitUsage, "--accounts FILE", "--users is held against a configuration")
			case given("accounts"):
				findings, err := examineAccounts(accounts, users, time.Now())
				if err != nil {
					return err
				}
				return tell(cmd, s, findings)
			}
			return s.With(func(c *cli.Client) error {
				if cmd.Flags().Changed("plan") {
					return cli.Failed("dump the plan", dumpPlan(cmd, s, c, plan))
				}
				return tell(cmd, s, examined(cmd.Context(), func() []Finding {
					findings := examine(cmd.Context(), c, time.Now(), old)
					return append(findings, examineAccess(cmd.Context(), c, s)...)
				}))
			})
		},
	}
	cmd.Flags().StringVar(&accounts, "accounts", "",
		"check this `FILE`, the nats.conf of a server, instead")
	cmd.Flags().StringVar(&users, "users", "", "with --accounts: the `FILE` of user export --file")
	cli.PlanFlag(cmd, &plan, "dump this `PLAN` in full instead")
	cmd.Flags().DurationVar(&old, "old", oldDefault,
		"warn of open plans without a deadline that are older than this `TIME`")
	return cmd
}

// tell prints findings; the error says whether one is to be looked at.
func tell(cmd *cobra.Command, s *cli.Settings, findings []Finding) error {
	err := s.Print(cmd, map[string][]Finding{"checks": findings},
		func() { writeFindings(cmd, s.Pen(cmd), findings) })
	for _, f := range findings {
		if err == nil && f.wrong() {
			return cli.ErrLook
		}
	}
	return err
}

func writeFindings(cmd *cobra.Command, p cli.Pen, findings []Finding) {
	for _, f := range findings {
		fmt.Fprintf(cmd.OutOrStdout(), "%s%*s %-10s %s\n", p.State(f.State), 4-len(f.State), "",
			f.Check, cli.Printable(f.Text))
		for _, detail := range f.Details {
			fmt.Fprintf(cmd.OutOrStdout(), "     %-10s %s\n", "", cli.Printable(detail))
		}
		if f.Next != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "     %-10s next: %s\n", "", cli.Printable(f.Next))
		}
	}
}

// examine runs every check that still makes sense after the ones before it.
func examine(ctx context.Context, c *cli.Client, now time.Time, old time.Duration) []Finding {
	status, err := c.Status(ctx)
	// what it would say of the rest follows from that
	if err == nil && status.Mode == api.ModeDegraded {
		server, version := examineServer(ctx, c, streamInfo{}), c.Conn.ConnectedServerVersion()
		if server.wrong() && jetstream.Supported(version) {
			// what answers while the disk of the ledger cannot be written has no streams
			server = skipped("server", "", "nats-server %s at %s; not checked: the tenant is degraded",
				version, c.Server)
		}
		return []Finding{server, ExamineMode(status, now), examineDisks(status)}
	}
	if err == nil && status.Mode == api.ModeErased {
		return []Finding{examineServer(ctx, c, streamInfo{}), ExamineMode(status, now)}
	}
	info, streamErr := streamOf(ctx, c)
	findings := append([]Finding{examineServer(ctx, c, info),
		examineLedger(info, c.Tenant, streamErr)}, examineStream(info, c.Tenant, streamErr)...)
	if err != nil {
		f := problem("executor", c.WithoutHolder(ctx, err))
		if f.State == "skip" && c.May(api.TenantStatus.Name) { // the server does not let in its role
			f = broken("executor", "have the server let in what the role may: docs/security.md", "%v", err)
		}
		return append(findings, f)
	}
	hosts, err := c.Hosts(ctx) // who does not answer is not listed
	if info.leaderless() {
		findings = append(findings, examineLeaderless(hosts, status, now)...)
	} else {
		findings = append(findings, ExamineMode(status, now), examineHosts(hosts, err, status),
			ExamineFold(ctx, c, status))
	}
	findings = append(findings, examineCheckpoints(status, hosts, now)...)
	findings = append(findings, examineSealed(hosts, status.Tenant)...)
	findings = append(findings, examineLimits(status), examineDurable(status), examineDisks(status),
		examineClock(status, now))
	findings = append(findings, ExamineWorkers(status, now)...)
	findings = append(findings, examineReplies(status, now), examineFields(status, now))
	findings = append(findings, examineCapabilities(ctx, c, now),
		examineDeadlines(ctx, c, now, old), examineWriters(ctx, c, now))
	findings = append(findings, examineQuarantine(ctx, c, status), ExamineWindows(ctx, c, now),
		examineConditions(status), examineVerdicts(status, now), ExaminePages(status, now))
	return append(findings, ExamineRefused(ctx, c, status))
}

// ExamineFold holds what is folded against what the stream itself says that it has: an
// executor to which nothing is delivered any more does not know of it.
func ExamineFold(ctx context.Context, c *cli.Client, v api.Status) Finding {
	if v.Folding != nil {
		return warn("fold", "wait; how far it is, and the time left: sagenbaum status", "%s",
			render.FoldingText(*v.Folding))
	}
	if v.Mode == api.ModeHalted { // what it would say follows from that
		return skipped("fold", "", "not checked: a tenant that is halted folds nothing")
	}
	last := v.Last
	if info, err := streamOf(ctx, c); err == nil { // who may not ask has been told so
		last = max(last, info.State.Last)
	}
	first := v.Applied
	for end := time.Now().Add(patience); v.Applied < last && time.Now().Before(end) &&
		cli.Pause(ctx, patience/20); {
		if later, err := c.Status(ctx); err == nil {
			v.Applied = later.Applied
		}
	}
	switch {
	case v.Applied >= last:
	case v.Applied > first:
		return warn("fold", fmt.Sprintf("wait, its host has much to do: it has folded %s more "+
			"meanwhile; how far it is: sagenbaum status", cli.CountOf(int(v.Applied-first), "commit")),
			"%d of %d commits folded after %s", v.Applied, last, patience)
	default:
		return warn("fold", "run doctor again; if no more are folded then, start serve of the holder "+
			"again, which loses nothing (docs/runbook.md, SagenbaumFoldLag)",
			"%d of %d commits folded after %s", v.Applied, last, patience)
	}
	return ok("fold", "all %d commits folded", last)
}

// ExamineMode says who holds the tenant, and what to do where no host does.
func ExamineMode(v api.Status, now time.Time) Finding {
	if v.Folding != nil && v.Mode != api.ModeHolding && v.Mode != api.ModeHalted {
		return warn("executor",
			"wait: a host holds the tenant when it has folded its ledger; undos and deadlines "+
				"wait with it. How far it is: sagenbaum status",
			"no host holds tenant %s yet; %s", v.Tenant, render.FoldingText(*v.Folding))
	}
	switch v.Mode {
	case api.ModeDegraded:
		return broken("executor",
			"make room on the disk, or make it writable; the host then goes on by itself "+
				"(docs/guide/failures.md)",
			"tenant %s is degraded, nothing is folded or dispatched: %s", v.Tenant, v.Problem)
	case api.ModeHolding:
		if v.Problem != "" { // the stream takes nothing, or a disk is full
			return broken("executor", "see room and disk below; if neither finds anything, all "+
				"ledgers together have filled serve --max-store: start serve with more. The host goes "+
				"on by itself",
				"tenant %s is held by %s, which cannot go on: %s", v.Tenant,
				render.HolderText(v, now), v.Problem).mayPass(true)
		}
		return ok("executor", "tenant %s is held by %s", v.Tenant, render.HolderText(v, now))
	case api.ModeStandby:
		return warn("executor",
			"run doctor again in a few seconds: a host that stands by takes over when the lease "+
				"of the last one has run out",
			"no host holds tenant %s now; the last was %s", v.Tenant,
			render.HolderText(v, now)).mayPass(true)
	case api.ModeErased:
		return ok("executor", "tenant %s was erased: drop it from serve --tenant", v.Tenant)
	case api.ModeHalted:
		return broken("executor", render.HaltedNext(v.Halted),
			"tenant %s is halted, nothing is dispatched: %s", v.Tenant, v.Problem)
	case api.ModeGuard:
		return broken("executor",
			"see clock below; all but deadlines goes on", "%s: %s", v.Mode, v.Problem)
	default:
		return broken("executor", "run doctor again in a few seconds; if it stays so, the log of serve "+
			"says what the host waits for (docs/runbook.md, SagenbaumNotHeld)", "%s: %s", v.Mode,
			cli.Dash(v.Problem)).mayPass(true)
	}
}

// repliesRecent is how long an answer that was refused is worth a look.
const repliesRecent = time.Hour

// examineReplies warns of workers whose answers count for nothing: their commands stay
// unanswered, and their attempts end in doubt.
func examineReplies(v api.Status, now time.Time) Finding {
	return notCounted{
		check: "replies", what: "answer", of: "of workers refused",
		then: "their commands stay unanswered",
		next: "bring that worker up to date: it repeats key and attempt of its command, which " +
			"it is sent again (docs/workers.md, The answer)",
	}.examine(v.RefusedReplies, now)
}

// examineFields warns of answers that have counted without a part of them.
func examineFields(v api.Status, now time.Time) Finding {
	return notCounted{
		check: "fields", what: "field", of: "of workers' answers cannot be read",
		then: "the rest of each answer counts, and that is lost",
		next: "bring that worker up to date: the types of the fields are in docs/workers.md " +
			"(Fields of the answer)",
	}.examine(v.UnreadFields, now)
}

// notCounted is what doctor says of answers, or of parts of them, that did not count.
type notCounted struct{ check, what, of, then, next string }

func (n notCounted) examine(r *api.RefusedReplies, now time.Time) Finding {
	if r == nil {
		return ok(n.check, "no %s %s", n.what, n.of)
	}
	count := cli.CountOf(int(r.Count), n.what)
	if now.Sub(time.Unix(0, r.Last.AtNs)) >= repliesRecent {
		return ok(n.check, "%s %s, the last %s", count, n.of, cli.Relative(r.Last.AtNs, now))
	}
	if r.Last.RightNs != 0 {
		return ok(n.check, "%s %s, the last %s; it answers as it should since %s", count, n.of,
			cli.Relative(r.Last.AtNs, now), cli.Relative(r.Last.RightNs, now))
	}
	f := warn(n.check, n.next, "%s %s, the last %s: %s", count, n.of,
		cli.Relative(r.Last.AtNs, now), n.then)
	of := "a worker"
	if r.Last.Worker != "" {
		of = "worker " + r.Last.Worker
	}
	f.Details = []string{fmt.Sprintf("%s of %s, plan %s action %s: %s",
		of, r.Last.Capability, r.Last.Plan, r.Last.Action, r.Last.Problem)}
	return f
}

// examineServer looks whether a ledger may be kept on this server, as a host does when it
// starts.
func examineServer(ctx context.Context, c *cli.Client, info streamInfo) Finding {
	version := c.Conn.ConnectedServerVersion()
	if !jetstream.Supported(version) {
		return broken("server", "install nats-server "+jetstream.ServerVersions+" on every server, "+
			"and start one after the other again; the ledger stays where it is",
			"nats-server %s at %s is too old: hosts refuse it", version, c.Server)
	}
	switch {
	case info.notStrict != "" && info.leaderless():
		return ok("server", "nats-server %s at %s; not checked whether it is strict: no server leads "+
			"the ledger", version, c.Server)
	case info.notStrict != "":
		return broken("server", `take "strict: false" out of the jetstream block of every server, `+
			"and start one after the other again",
			"nats-server %s at %s: %s", version, c.Server, info.notStrict)
	case info.asked:
		return ok("server", "nats-server %s at %s, strict", version, c.Server)
	}
	ctx, cancel := c.Within(ctx)
	defer cancel()
	err := jetstream.CheckStrict(ctx, c.Conn, c.Tenant)
	var refused *ledger.Refused
	switch {
	case err != nil && c.Denied.Load() != nil:
		const text = "nats-server %s at %s; not checked whether it is strict (no permission)"
		return ok("server", text, version, c.Server)
	case errors.As(err, &refused):
		return broken("server", refused.Want, "nats-server %s at %s: %s: hosts refuse it",
			version, c.Server, refused.Problem)
	case err != nil:
		return problem("server", err)
	}
	return ok("server", "nats-server %s at %s, strict", version, c.Server)
}

func examineLedger(info streamInfo, tenant string, err error) Finding {
	name, at := jetstream.StreamName(tenant), info.State
	switch {
	case err != nil:
		return problem("ledger", err)
	case info.leaderless():
		return skipped("ledger", "", "not checked: no server leads it")
	case info.Error != nil:
		return problem("ledger", errors.New(info.Error.Description))
	case at.Deleted > 0:
		return broken("ledger", render.KeepLedger, "%d records are missing from stream %s",
			at.Deleted, name)
	case at.First > 1: // after a repair, or the executor is halted and says so
		return ok("ledger",
			"stream %s holds commits %d to %d without a gap; those before are in the tiles of "+
				"its host", name, at.First, at.Last)
	}
	return ok("ledger", "stream %s holds %d commits without a gap", name, at.Last)
}

// denied reports whether an error is that the table of roles does not let this user ask.
func denied(err error) bool {
	var f *cli.Failure
	return errors.As(err, &f) && f.Code == cli.ExitNotAllowed && !f.Granted
}

// problem turns the error of a check into its finding. That the table of roles does not let this
// user ask, or that no host answers who would, is nothing that is wrong with what it asks about.
func problem(check string, err error) Finding {
	var f *cli.Failure
	switch {
	case errors.Is(err, errNoHost):
		return skipped(check, "", "%v", err)
	case !errors.As(err, &f):
		return broken(check, "", "%v", err)
	case denied(err):
		return skipped(check, "", "not checked (no permission): %s", f.Text)
	}
	return broken(check, f.Hint, "%s", f.Text).mayPass(noAnswer(err))
}
