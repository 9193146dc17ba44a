package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// What the doctor holds against limits of its own.
const (
	diskFreeMin   = 10               // percent of a disk, of which
	diskFreeLow   = uint64(10) << 30 // bytes are enough however large it is
	diskFreeFew   = uint64(1) << 30  // bytes, below which it is broken
	ledgerFullMin = 90               // percent of the stream's bound
	oldDefault    = 24 * time.Hour   // of an open plan without a deadline
	clocksApart   = 10 * time.Second // this machine's and the ledger's logical time ahead of it
	streamAPI     = "$JS.API.STREAM.INFO."
)

// streamInfo is the part of JetStream's answer about a ledger that is read here.
type streamInfo struct {
	Error *struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Config struct {
		Replicas int               `json:"num_replicas"`
		MaxBytes int64             `json:"max_bytes"`
		Metadata map[string]string `json:"metadata"`
	} `json:"config"`
	State struct {
		Bytes   uint64 `json:"bytes"`
		First   uint64 `json:"first_seq"`
		Last    uint64 `json:"last_seq"`
		Deleted int    `json:"num_deleted"`
	} `json:"state"`
	Cluster *struct {
		Name     string `json:"name"`
		Leader   string `json:"leader"`
		Replicas []struct {
			Name    string `json:"name"`
			Current bool   `json:"current"`
			Offline bool   `json:"offline"`
			Lag     uint64 `json:"lag"`
		} `json:"replicas"`
	} `json:"cluster"`
	notStrict string // what a host has found; empty: strict, or no host was asked
	asked     bool   // a host was asked whether the server is strict
}

// leaderless reports whether no server leads the stream, or JetStream: nothing can be stored.
func (i streamInfo) leaderless() bool {
	if i.Error != nil {
		return jetstream.NoLeader(i.Error.Code)
	}
	return i.Cluster != nil && i.Cluster.Name != "" && i.Cluster.Leader == ""
}

// streamOf is what JetStream says of the ledger's stream: a host passes it on, or else
// JetStream is asked, which few users may.
func streamOf(ctx context.Context, c *cli.Client) (info streamInfo, err error) {
	answer, unanswered := cli.Ask(ctx, c, api.LedgerStream, api.Nothing{})
	if unanswered == nil {
		info.notStrict, info.asked = answer.NotStrict, true
		return info, json.Unmarshal(answer.Stream, &info)
	}
	if _, err := c.Store(ctx); denied(err) && noAnswer(unanswered) {
		return info, errNoHost
	} else if err != nil {
		return info, err
	}
	ctx, cancel := c.Within(ctx)
	defer cancel()
	reply, err := c.Conn.RequestWithContext(ctx, streamAPI+jetstream.StreamName(c.Tenant), nil)
	if err != nil {
		return info, c.Explain("the stream of tenant "+c.Tenant, err)
	}
	return info, json.Unmarshal(reply.Data, &info)
}

// errNoHost is that no host answers for one who may not ask JetStream.
var errNoHost = errors.New("not checked: no host answers")

// examineStream looks at what the ledger's stream is kept on.
func examineStream(info streamInfo, tenant string, err error) []Finding {
	switch {
	case denied(err):
		return []Finding{skipped("replicas", "", "not checked (no permission)")}
	case err != nil:
		return []Finding{problem("replicas", err)}
	case info.leaderless():
		return []Finding{judgeLeader(info)}
	case info.Error != nil:
		return []Finding{skipped("replicas", "", "not checked: %s", info.Error.Description)}
	}
	return []Finding{judgeReplicas(info, tenant), judgeRoom(info, tenant)}
}

// judgeLeader is what to do where no server leads the ledger. Which of them are away no server
// knows for sure then.
func judgeLeader(info streamInfo) Finding {
	servers := "its servers"
	if info.Cluster != nil && len(info.Cluster.Replicas) > 0 {
		var names []string
		for _, r := range info.Cluster.Replicas {
			if !strings.Contains(r.Name, " ") { // else it says that the name is not known
				names = append(names, r.Name)
			}
		}
		slices.Sort(names)
		servers = fmt.Sprintf("its %d servers (%s)", len(info.Cluster.Replicas),
			cli.Dash(strings.Join(names, ", ")))
	}
	return broken("replicas", "start the NATS servers that are away, or mend their network; a leader "+
		"is there within seconds, and hosts, agents and workers go on by themselves "+
		"(docs/guide/cluster.md)", "no server leads the ledger, and nothing can be stored: more than "+
		"half of %s must be there", servers).mayPass(true)
}

func judgeReplicas(info streamInfo, tenant string) Finding {
	n := max(info.Config.Replicas, 1)
	if info.Cluster == nil || info.Cluster.Name == "" {
		return ok("replicas", "one server keeps the ledger; tiles are its second copy")
	}
	if n == 1 {
		return warn("replicas",
			fmt.Sprintf("nats stream edit %s --replicas 3, and serve --replicas 3 from then on "+
				"(docs/guide/cluster.md)", jetstream.StreamName(tenant)),
			"one server of cluster %s keeps the ledger: while it is down, nothing is stored",
			info.Cluster.Name)
	}
	var away []string
	for _, r := range info.Cluster.Replicas {
		switch {
		case r.Offline:
			away = append(away, r.Name+" is offline")
		case !r.Current:
			away = append(away, fmt.Sprintf("%s is not current, %d entries short", r.Name, r.Lag))
		}
	}
	if len(away) > 0 {
		f := warn("replicas", "start these servers again, or look at their disks and their network; "+
			"they catch up by themselves: run doctor again (docs/guide/cluster.md)",
			"%s, which leads the ledger, says that %s", info.Cluster.Leader,
			fewKeepUp(len(away), len(info.Cluster.Replicas), info.Cluster.Leader))
		f.Details = away
		return f.mayPass(true)
	}
	return ok("replicas", "%d servers of cluster %s keep the ledger, all current", n,
		info.Cluster.Name)
}

// fewKeepUp is what a leader says of the servers that it leads: it is the one that is asked, and
// what is damaged may be its own copy.
func fewKeepUp(away, others int, leader string) string {
	switch {
	case away == others:
		return fmt.Sprintf("none of its %d other servers keeps up: it may be %s that does not; "+
			"look at its log and its disk first", others, leader)
	case away == 1:
		return fmt.Sprintf("1 of its %d other servers does not keep up", others)
	}
	return fmt.Sprintf("%d of its %d other servers do not keep up", away, others)
}

func judgeRoom(info streamInfo, tenant string) Finding {
	used, bound := info.State.Bytes, info.Config.MaxBytes
	if bound <= 0 {
		return ok("room", "the ledger takes %s, and has no bound of its own",
			render.BytesText(used))
	}
	percent := used * 100 / uint64(bound)
	if percent >= ledgerFullMin {
		// The holder makes the bound of the tenant's limit, where it has one.
		limit, _ := strconv.ParseInt(info.Config.Metadata[jetstream.LimitMark], 10, 64)
		next := fmt.Sprintf(`sagenbaum tenant limits %s --bytes %d --reason "its ledger is full"`, tenant,
			2*limit)
		if limit <= 0 {
			next = fmt.Sprintf("nats stream edit %s --max-bytes %d", jetstream.StreamName(tenant),
				2*bound)
		}
		return warn("room", next, "the ledger takes %s of %s: a full one refuses what agents and "+
			"sources write, and never gets smaller", render.BytesText(used),
			render.BytesText(uint64(bound)))
	}
	return ok("room", "the ledger takes %s of %s", render.BytesText(used),
		render.BytesText(uint64(bound)))
}

// examineLimits looks at what a tenant uses of what it may; judgeRoom at the bytes of its ledger.
func examineLimits(v api.Status) Finding {
	if v.May == nil {
		return ok("limits", "nothing is limited")
	}
	for _, l := range v.May.Limits {
		if l.Limit == api.LimitBytes || !l.Near() {
			continue
		}
		name := strings.ReplaceAll(l.Limit, "_", " ")
		next := fmt.Sprintf(`sagenbaum tenant limits %s --%s %d --reason "it needs more"`, v.Tenant,
			strings.ReplaceAll(l.Limit, "_", "-"), 2*l.Most)
		if l.Limit == api.LimitBlobs {
			next = fmt.Sprintf("serve --blob-bytes %d, or erase plans whose blobs no one needs", 2*l.Most)
		}
		return warn("limits", next, "%d of %d %s are used: what would need more is refused", l.Used,
			l.Most, name)
	}
	return ok("limits", "every limit has room")
}

// examineDurable says whether what the server acknowledges is on disk.
func examineDurable(v api.Status) Finding {
	if v.Lossy {
		return warn("durability",
			`serve without --no-sync; with --nats: "sync_interval: always" and --system-nats, without --accept-lossy-broker`,
			"the server may lose acknowledged records when the power fails: it need not sync "+
				"each write, as serve was told")
	}
	return ok("durability", "every acknowledged record is synced to disk")
}

// examineDisks looks at the file systems of the host that answers.
func examineDisks(v api.Status) Finding {
	if len(v.Disks) == 0 {
		return skipped("disk", "", "not checked: the executor does not tell")
	}
	worst := ok("disk", "%s",
		render.DiskText(slices.MinFunc(v.Disks, func(a, b api.Disk) int {
			return render.FreePercent(a) - render.FreePercent(b)
		})))
	var details []string
	for _, d := range v.Disks {
		if d.FreeBytes >= diskFreeLow || render.FreePercent(d) >= diskFreeMin &&
			d.FreeBytes >= diskFreeFew {
			continue
		}
		details = append(details, render.DiskText(d))
		next := "make room on it, or stop serve, move --data or --tiles to a larger disk, and start " +
			"serve there; a full one stops the ledger or the state, and loses nothing"
		if d.FreeBytes < diskFreeFew {
			worst = broken("disk", next, "a disk is almost full")
		} else if worst.State == "ok" {
			worst = warn("disk", next, "a disk is getting full")
		}
	}
	worst.Details = details
	return worst
}

// examineClock says whether deadlines fire, and whether the ledger's time is ahead of
// this machine's.
func examineClock(v api.Status, now time.Time) Finding {
	ahead := time.Duration(v.TimeNs - now.UnixNano())
	switch {
	case v.Mode == api.ModeGuard:
		return broken("clock",
			"set the clock of host "+v.Holder+" right, if it is wrong: deadlines fire again by "+
				"themselves. Only if it is right as it is now: sagenbaum clock confirm --reason "+
				`"compared with ntp"`, "no deadline fires: %s", v.Problem)
	case ahead > clocksApart:
		return warn("clock",
			"compare the clocks of this machine, of host "+v.Holder+" and of the NATS servers, and set "+
				"the one right that is wrong; then wait, if the ledger's time is still ahead",
			"the ledger's time is %s ahead of this machine's clock: deadlines wait until it has "+
				"caught up", cli.Span(ahead))
	}
	return ok("clock", "the executor's clock is trusted")
}

// examineDeadlines warns of open plans that nothing but a person or their agent ends.
func examineDeadlines(ctx context.Context, c *cli.Client, now time.Time,
	old time.Duration) Finding {
	plans, next, err := c.Found(ctx,
		api.FindQuery{State: ledger.StateOpen, UntilNs: now.Add(-old).UnixNano()}, windowsLooked)
	if err != nil {
		return problem("deadlines", err)
	}
	more := ""
	if next != "" {
		more = fmt.Sprintf(", among the latest %d such plans", windowsLooked)
	}
	var endless []api.Plan
	for _, plan := range plans {
		if plan.DeadlineNs == 0 && plan.Parent == "" {
			endless = append(endless, plan)
		}
	}
	if len(endless) == 0 {
		return ok("deadlines", "no open plan without a deadline is older than %s%s", cli.Span(old),
			more)
	}
	slices.Reverse(endless) // the oldest first
	f := warn("deadlines",
		fmt.Sprintf("give plans a Deadline; this one: sagenbaum plan tree %s, then plan deadline, "+
			"adopt or cancel", endless[0].Plan),
		"%s without a deadline %s open for longer than %s%s", cli.CountOf(len(endless), "plan"),
		isOrAre(len(endless)), cli.Span(old), more)
	for _, plan := range endless[:min(len(endless), status.StuckShown)] {
		f.Details = append(f.Details,
			strings.TrimSpace(fmt.Sprintf("%s of agent %s, opened %s, %d held %s", plan.Plan,
				plan.Agent, cli.Relative(plan.OpenedNs, now), plan.Held, cli.Clip(plan.Label, 40))))
	}
	return f
}

// writersSpan is how far back plans count that name no writer and are not open any more.
const writersSpan = 24 * time.Hour

// examineWriters warns of agents whose records name no writer.
func examineWriters(ctx context.Context, c *cli.Client, now time.Time) Finding {
	seen, more := map[string]bool{}, ""
	var nameless []api.Plan
	for _, q := range []api.FindQuery{
		{State: ledger.StateOpen}, {FromNs: now.Add(-writersSpan).UnixNano()},
	} {
		plans, next, err := c.Found(ctx, q, windowsLooked)
		if err != nil {
			return problem("writers", err)
		}
		if next != "" {
			more = fmt.Sprintf(", among the latest %d", windowsLooked)
		}
		for _, plan := range plans {
			if plan.NoWriter && !seen[plan.Plan] {
				nameless = append(nameless, plan)
			}
			seen[plan.Plan] = true
		}
	}
	if len(nameless) == 0 {
		return ok("writers", "every plan that is open or of the last day has a writer%s", more)
	}
	f := warn("writers", "name the process in the field writer of each record: docs/records.md; "+
		"the door and the library for Go do it; --require-names of a tenant refuses the others",
		"%s of tenant %s without a writer%s: a second process under its id would not be noticed",
		cli.CountOf(len(nameless), "plan"), c.Tenant, more)
	for _, plan := range nameless[:min(len(nameless), status.StuckShown)] {
		f.Details = append(f.Details, fmt.Sprintf("plan %s of agent %s, opened %s", plan.Plan,
			plan.Agent, cli.Relative(plan.OpenedNs, now)))
	}
	return f
}

// capabilities counts them.
func capabilities(n int) string {
	if n == 1 {
		return "1 capability"
	}
	return fmt.Sprintf("%d capabilities", n)
}

func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// examineCapabilities warns of undos that are held and that no worker would carry out now.
func examineCapabilities(ctx context.Context, c *cli.Client, now time.Time) Finding {
	answer, err := c.Workers(ctx)
	if err != nil {
		return problem("capability", err)
	}
	var gone, unknown []api.Worker
	listened := ""
	for _, w := range answer.Workers {
		switch {
		case w.Served == api.ServedListener:
			listened = ", and listeners outside any queue group are none"
			gone = append(gone, w)
		case w.Served == api.ServedNo:
			gone = append(gone, w)
		case w.Served == "unknown" && w.HeardNs == 0:
			unknown = append(unknown, w)
		}
	}
	f := ok("capability", "%s that would undo or deliver what is held: served, or heard",
		capabilities(len(answer.Workers)))
	switch {
	case len(answer.Workers) == 0:
		f = ok("capability", "nothing is held that a worker would undo")
	case len(gone) > 0:
		f = warn("capability", cmp.Or(started.Next(gone[0].Capability),
			"start a worker for "+gone[0].Capability+" (docs/workers.md)"),
			"no worker serves %s that would undo or deliver what is held%s", capabilities(len(gone)),
			listened)
	case len(unknown) > 0:
		f = ok("capability",
			"%s that would undo or deliver what is held; whether anybody serves them the server does not "+
				"tell, and %d were not asked for since this executor started",
			capabilities(len(answer.Workers)), len(unknown))
	}
	for _, w := range gone[:min(len(gone), status.StuckShown)] {
		detail := fmt.Sprintf("%s: %s held, %d due, as in plan %s; last heard %s", w.Capability,
			cli.CountOf(int(w.Held), "action"), w.Due, w.Plan, cli.Relative(w.HeardNs, now))
		if w.Served == api.ServedListener {
			detail += "; someone subscribes it who is no worker: a terminal that listens, or a stream"
		}
		f.Details = append(f.Details, detail)
	}
	return f.mayPass(slices.ContainsFunc(gone, func(w api.Worker) bool { // it may be starting again
		return now.Sub(time.Unix(0, w.HeardNs)) < time.Minute
	}))
}
