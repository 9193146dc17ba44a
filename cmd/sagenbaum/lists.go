package main

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

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// workers asks which capabilities undo what is held.
func (c *client) workers(ctx context.Context) (executor.WorkersAnswer, error) {
	answer := executor.WorkersAnswer{}
	err := c.ask(ctx, "worker.ls", struct{}{}, &answer)
	return answer, err
}

func newWorker(s *settings) *cobra.Command {
	return group(&cobra.Command{
		Use:     "worker",
		Short:   "See which capabilities undo what is held, and who serves them",
		Example: "  sagenbaum worker ls\n  sagenbaum worker show room.free",
	}, watchable(s, newWorkerLs(s)), watchable(s, newWorkerShow(s)))
}

func newWorkerLs(s *settings) *cobra.Command {
	var only listFilter
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the capabilities of undos that are held, and who serves them (exit code 1 when nobody serves one)",
		Long: `List the capabilities of undos that are held: how many actions each would undo,
whether a worker serves it now, and when one last answered this executor. Whether
one serves it is known where the NATS server runs in the executor's process.
Exit code 1 when it is known that nobody serves one of them.`,
		Example: "  sagenbaum worker ls\n  sagenbaum worker ls --filter 'worker.served != \"yes\"' -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := only.check(); err != nil {
				return err
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			answer, err := c.workers(cmd.Context())
			if err != nil {
				return failed("list workers", err)
			}
			answer.Workers = picked(&only, answer.Workers)
			if s.json() {
				err = printJSON(cmd.OutOrStdout(), answer)
			} else {
				writeWorkers(cmd, s.pen(cmd), answer)
			}
			if err == nil && slices.ContainsFunc(answer.Workers, missing) {
				return errLook
			}
			return err
		},
	}
	only.flag(cmd, "worker", `worker.served != "yes"`)
	return cmd
}

// missing reports whether nobody serves a capability, as far as is known.
func missing(w executor.WorkerView) bool { return w.Served == "no" }

func writeWorkers(cmd *cobra.Command, p pen, answer executor.WorkersAnswer) {
	if len(answer.Workers) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing is held that a worker would undo")
		return
	}
	now := time.Now()
	t := table{head: []string{"CAPABILITY", "SERVED", "HELD", "DUE", "LAST HEARD", "PLAN"}}
	t.paint = func(column int, cell string) string {
		if column == 1 {
			return p.in(map[string]string{"yes": "32", "no": "31;1"}[cell], cell)
		}
		return cell
	}
	for _, w := range answer.Workers {
		t.add(w.Capability, w.Served, fmt.Sprint(w.Held), fmt.Sprint(w.Due), relative(w.HeardNs, now), w.Plan)
	}
	t.write(cmd.OutOrStdout())
	if answer.Partial {
		fmt.Fprintln(cmd.ErrOrStderr(), "there are more plans than one look reads: these are the counts of the first")
	}
}

func newWorkerShow(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "show CAPABILITY",
		Short:   "Show who serves one capability of undos, and what is held that it undoes",
		Example: "  sagenbaum worker show room.free",
		Args:    exactly("CAPABILITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			answer, err := c.workers(cmd.Context())
			if err != nil {
				return failed("show the worker", err)
			}
			at := slices.IndexFunc(answer.Workers, func(w executor.WorkerView) bool { return w.Capability == args[0] })
			if at < 0 {
				return fail(exitFailed, "sagenbaum worker ls", "nothing is held that %s would undo", args[0])
			}
			w := answer.Workers[at]
			if s.json() {
				err = printJSON(cmd.OutOrStdout(), w)
			} else {
				for _, line := range [...][2]string{{"capability", w.Capability}, {"served", w.Served}, {"held", countOf(int(w.Held), "action")}, {"due", fmt.Sprint(w.Due)}, {"last heard", relative(w.HeardNs, time.Now())}, {"in plan", w.Plan}} {
					fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", line[0], printable(line[1]))
				}
			}
			if err == nil && missing(w) {
				return errLook
			}
			return err
		},
	}
}

func newHost(s *settings) *cobra.Command {
	return group(&cobra.Command{
		Use:     "host",
		Short:   "See the hosts that hold a tenant or stand by",
		Example: "  sagenbaum host ls\n  sagenbaum host show host-a",
	}, watchable(s, newHostLs(s)), watchable(s, newHostShow(s)))
}

func newHostLs(s *settings) *cobra.Command {
	var only listFilter
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the hosts that answer for a tenant",
		Example: "  sagenbaum host ls\n  sagenbaum host ls --watch",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := only.check(); err != nil {
				return err
			}
			hosts, err := s.allHosts(cmd)
			if err != nil {
				return err
			}
			hosts = picked(&only, hosts)
			if s.json() {
				return printJSON(cmd.OutOrStdout(), map[string]any{"hosts": append([]executor.HostView{}, hosts...)})
			}
			if len(hosts) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no host answers\n  next: sagenbaum serve --tenant "+s.tenant)
				return nil
			}
			p := s.pen(cmd)
			t := table{head: []string{"HOST", "MODE", "FOLDED", "LAST", "PROBLEM"}, elastic: []string{"PROBLEM"}}
			t.paint = func(column int, cell string) string {
				if column == 1 {
					return p.state(cell)
				}
				return cell
			}
			for _, h := range hosts {
				t.add(h.Host, h.Mode, fmt.Sprint(h.Applied), fmt.Sprint(h.Last), dash(h.Problem))
			}
			t.write(cmd.OutOrStdout())
			return nil
		},
	}
	only.flag(cmd, "host", `host.mode == "standby"`)
	return cmd
}

func (s *settings) allHosts(cmd *cobra.Command) ([]executor.HostView, error) {
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer c.close()
	hosts, err := c.hosts(cmd.Context())
	return hosts, failed("list hosts", err)
}

func newHostShow(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "show HOST",
		Short:   "Show one host of a tenant",
		Example: "  sagenbaum host show host-a",
		Args:    exactly("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			hosts, err := s.allHosts(cmd)
			if err != nil {
				return err
			}
			for _, h := range hosts {
				if h.Host != args[0] {
					continue
				}
				if s.json() {
					return printJSON(cmd.OutOrStdout(), h)
				}
				for _, line := range [...][2]string{{"host", h.Host}, {"mode", h.Mode}, {"problem", h.Problem}, {"folded", fmt.Sprintf("%d of %d", h.Applied, h.Last)}} {
					if line[1] != "" {
						fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", line[0], printable(line[1]))
					}
				}
				return nil
			}
			return fail(exitFailed, "sagenbaum host ls", "no host %q answers for tenant %s", args[0], s.tenant)
		},
	}
}

// tenants are those that have a ledger at the server, by name. It asks JetStream for
// the names of streams, which a user may not be allowed to.
func (c *client) tenants(ctx context.Context) (names []string, err error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	for {
		question := fmt.Sprintf(`{"offset":%d,"subject":"saga.*.executor"}`, len(names))
		reply, err := c.conn.RequestWithContext(ctx, "$JS.API.STREAM.NAMES", []byte(question))
		if err != nil {
			return nil, c.explain("the ledgers", err)
		}
		var page struct {
			Total   int      `json:"total"`
			Streams []string `json:"streams"`
		}
		if err := json.Unmarshal(reply.Data, &page); err != nil {
			return nil, fmt.Errorf("cannot read the names of ledgers: %w", err)
		}
		for _, stream := range page.Streams {
			if name, ours := strings.CutPrefix(stream, jetstream.StreamName("")); ours && ledger.ValidToken(name) {
				names = append(names, name)
			}
		}
		if len(page.Streams) == 0 || len(names) >= page.Total {
			slices.Sort(names)
			return names, nil
		}
	}
}

func newTenant(s *settings) *cobra.Command {
	return group(&cobra.Command{
		Use:     "tenant",
		Short:   "See all tenants of a server",
		Example: "  sagenbaum tenant ls\n  sagenbaum tenant show shops",
	}, watchable(s, newTenantLs(s)), watchable(s, newTenantShow(s)))
}

// tenantListed is a tenant as `tenant ls` tells it.
type tenantListed struct {
	Tenant  string               `json:"tenant"`
	Problem string               `json:"problem,omitempty"` // why its status cannot be told
	Status  *executor.StatusView `json:"status,omitempty"`
}

func newTenantLs(s *settings) *cobra.Command {
	var only listFilter
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the tenants that have a ledger at the server, with the status of each",
		Long: `List the tenants that have a ledger at the server, with the status of each.
Exit code 1 when something of one wants to be looked at, as with 'status'.`,
		Example: "  sagenbaum tenant ls\n  sagenbaum tenant ls --filter 'tenant.status.quarantined > 0'",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := only.check(); err != nil {
				return err
			}
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			all, err := c.tenantsListed(cmd.Context())
			if err != nil {
				return failed("list tenants", err)
			}
			all = picked(&only, all)
			if s.json() {
				err = printJSON(cmd.OutOrStdout(), map[string]any{"tenants": append([]tenantListed{}, all...)})
			} else {
				writeTenants(cmd, s.pen(cmd), all)
			}
			if err == nil && slices.ContainsFunc(all, func(t tenantListed) bool { return t.Status == nil || wantsLook(*t.Status) }) {
				return errLook
			}
			return err
		},
	}
	only.flag(cmd, "tenant", "tenant.status.quarantined > 0")
	return cmd
}

func (c *client) tenantsListed(ctx context.Context) (all []tenantListed, err error) {
	names, err := c.tenants(ctx)
	if err != nil {
		return nil, err
	}
	mine := c.tenant
	defer func() { c.tenant = mine }()
	for _, name := range names {
		c.tenant = name
		listed := tenantListed{Tenant: name}
		status, err := c.status(ctx)
		var f *failure
		switch {
		case err == nil:
			listed.Status = &status
		case errors.As(err, &f):
			listed.Problem = f.text
		default:
			listed.Problem = err.Error()
		}
		all = append(all, listed)
	}
	return all, nil
}

func writeTenants(cmd *cobra.Command, p pen, all []tenantListed) {
	if len(all) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no tenant has a ledger here\n  next: sagenbaum serve --tenant NAME")
		return
	}
	now := time.Now()
	t := table{head: []string{"TENANT", "MODE", "HELD", "OPEN", "UNWINDING", "QUARANTINED", "NO WORKER", "NEXT DUE", "HOLDER"}, elastic: []string{"HOLDER"}, spare: []string{"HOLDER", "NEXT DUE"}}
	t.paint = func(column int, cell string) string {
		if column == 1 {
			return p.state(cell)
		}
		return cell
	}
	for _, one := range all {
		if v := one.Status; v != nil {
			t.add(one.Tenant, v.Mode, fmt.Sprint(v.Held), fmt.Sprint(v.Open), fmt.Sprint(v.Unwinding), fmt.Sprint(v.Quarantined), fmt.Sprint(unserved(*v)), dueText(v.NextDueNs, now), dash(v.Holder))
		} else {
			t.add(one.Tenant, "unknown", "-", "-", "-", "-", "-", "-", "-")
			t.note(1, one.Problem)
		}
	}
	t.write(cmd.OutOrStdout())
}

func newTenantShow(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "show TENANT",
		Short:   "Show the status of one tenant, as 'status --tenant' does",
		Example: "  sagenbaum tenant show default",
		Args:    exactly("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !ledger.ValidToken(args[0]) {
				return fail(exitUsage, "sagenbaum tenant ls", "%q is no tenant", args[0])
			}
			s.tenant = args[0]
			return showStatus(cmd, s)
		},
	}
}

func newUndoShow(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "show PLAN ACTION",
		Short:   "Show every attempt to undo one action in full",
		Example: "  sagenbaum undo show 01JD3BX7 4",
		Args:    exactly("PLAN", "ACTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			plan, err := c.plan(cmd.Context(), args[0], 0)
			if err != nil {
				return failed("show the undo", err)
			}
			a, err := findAction(plan, args[1])
			if err != nil {
				return failed("show the undo", err)
			}
			answer, err := c.undos(cmd.Context(), executor.UndoQuery{Plan: plan.Plan, Action: a.Action}, dumpUndos)
			if err != nil {
				return failed("show the undo", err)
			}
			if s.json() {
				return printJSON(cmd.OutOrStdout(), answer)
			}
			if len(answer.Undos) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "nothing was dispatched")
			}
			for i, u := range forPeople(answer).Undos {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				writeAttempt(cmd, s.pen(cmd), u)
			}
			return nil
		},
	}
}

func writeAttempt(cmd *cobra.Command, p pen, u executor.UndoView) {
	ended := "-"
	if u.Ended != "" {
		ended = u.Ended + " at " + moment(u.EndedNs)
	}
	for _, line := range [...][2]string{
		{"attempt", strconv.Itoa(u.Attempt) + " " + p.in(undoColors[u.State], u.State)}, {"action", fmt.Sprintf("%d %s, %s", u.Number, u.Action, u.Capability)},
		{"undo by", u.Compensation}, {"key", u.Key}, {"forward", u.About}, {"dispatched", u.Dispatched + " at " + moment(u.DispatchedNs)}, {"ended", ended},
		{"waited", lasted(u.WaitedNs)}, {"queued", lasted(u.QueuedNs)}, {"work", fmt.Sprintf("%s: setup %s, tools %s, model %s", lasted(u.WorkNs), lasted(u.SetupNs), lasted(u.ToolNs), lasted(u.LLMNs))},
		{"worker", u.Worker}, {"code", u.Code}, {"message", u.Message},
	} {
		if line[1] != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", line[0], line[1])
		}
	}
}

func newLease(s *settings) *cobra.Command {
	return group(&cobra.Command{
		Use:     "lease",
		Short:   "See the standing conditions of a plan",
		Example: "  sagenbaum lease ls 01JD3BX7\n  sagenbaum lease show 01JD3BX7 deadline",
	}, watchable(s, newLeaseLs(s)), watchable(s, newLeaseShow(s)))
}

func newLeaseLs(s *settings) *cobra.Command {
	var only listFilter
	cmd := &cobra.Command{
		Use:     "ls PLAN",
		Short:   "List the leases of a plan and its actions: what each answers now, and what it waits for",
		Example: "  sagenbaum lease ls 01JD3BX7\n  sagenbaum lease ls 01JD3BX7 --filter 'lease.truth == \"unknown\"'",
		Args:    exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := only.check(); err != nil {
				return err
			}
			var answer executor.ExplainAnswer
			if err := s.question(cmd, "list leases", "trigger.explain", executor.ExplainQuery{Plan: args[0]}, &answer); err != nil {
				return err
			}
			answer.Explain.Leases = picked(&only, answer.Explain.Leases)
			if s.json() {
				return printJSON(cmd.OutOrStdout(), answer.Explain)
			}
			now := time.Now()
			t := table{head: []string{"ACTION", "LEASE", "ANSWERS", "WAKES", "WAITS FOR", "CONDITION"}, elastic: []string{"WAITS FOR", "CONDITION", "ANSWERS"}}
			for _, l := range answer.Explain.Leases {
				t.add(dash(l.Action), l.Name, leaseWord(l.LeaseView), relative(l.WakeNs, now), dash(clip(strings.Join(l.Waits, ", "), 60)), clip(l.Condition, 80))
			}
			if len(t.rows) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no leases")
				return nil
			}
			t.write(cmd.OutOrStdout())
			if answer.Explain.Omitted {
				fmt.Fprintf(cmd.ErrOrStderr(), "there are more: sagenbaum trigger explain %s --action NUMBER\n", printable(args[0]))
			}
			return nil
		},
	}
	only.flag(cmd, "lease", `lease.truth == "unknown"`)
	return cmd
}

func newLeaseShow(s *settings) *cobra.Command {
	var q executor.ExplainQuery
	cmd := &cobra.Command{
		Use:     "show PLAN LEASE",
		Short:   "Show one lease of a plan: its truth, what it waits for and what it read",
		Example: "  sagenbaum lease show 01JD3BX7 deadline\n  sagenbaum lease show 01JD3BX7 late --action 3",
		Args:    exactly("PLAN", "LEASE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Plan, q.Lease = args[0], args[1]
			var answer executor.ExplainAnswer
			if err := s.question(cmd, "show the lease", "trigger.explain", q, &answer); err != nil {
				return err
			}
			if len(answer.Explain.Leases) == 0 {
				return fail(exitFailed, "sagenbaum lease ls "+args[0], "plan %s has no lease %q", args[0], args[1])
			}
			slices.SortStableFunc(answer.Explain.Leases, func(a, b executor.HeldLease) int { return cmp.Compare(len(a.Action), len(b.Action)) })
			if s.json() {
				return printJSON(cmd.OutOrStdout(), answer.Explain)
			}
			writeExplain(cmd.OutOrStdout(), s.pen(cmd), forPeople(answer.Explain), time.Now())
			return nil
		},
	}
	cmd.Flags().StringVar(&q.Action, "action", "", "the lease of this `ACTION`, by number or id")
	return cmd
}
