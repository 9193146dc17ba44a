package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
)

// finding is one thing the doctor looked at.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"` // ok, warn, FAIL
	Text  string `json:"text"`
	Next  string `json:"next,omitempty"` // what to do about it
}

func ok(check, format string, args ...any) finding {
	return finding{Check: check, State: "ok", Text: fmt.Sprintf(format, args...)}
}

func warn(check, next, format string, args ...any) finding {
	return finding{check, "warn", fmt.Sprintf(format, args...), next}
}

func broken(check, next, format string, args ...any) finding {
	return finding{check, "FAIL", fmt.Sprintf(format, args...), next}
}

func newDoctor(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the server, the ledger, the executor and what waits",
		Long: `Check the server, the ledger, the executor and what waits, and say what to do
about each finding. Exit code 1 when a check found something.`,
		Example: "  sagenbaum doctor\n  sagenbaum doctor --tenant default -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.connect()
			if err != nil {
				return err
			}
			defer c.close()
			findings := examine(cmd.Context(), c)
			if s.json() {
				err = printJSON(cmd.OutOrStdout(), map[string][]finding{"checks": findings})
			} else {
				writeFindings(cmd, s.pen(cmd), findings)
			}
			for _, f := range findings {
				if err == nil && f.State != "ok" {
					return errLook
				}
			}
			return err
		},
	}
}

func writeFindings(cmd *cobra.Command, p pen, findings []finding) {
	for _, f := range findings {
		fmt.Fprintf(cmd.OutOrStdout(), "%s%*s %-10s %s\n", p.state(f.State), 4-len(f.State), "", f.Check, f.Text)
		if f.Next != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "     %-10s next: %s\n", "", f.Next)
		}
	}
}

// examine runs every check that still makes sense after the ones before it.
func examine(ctx context.Context, c *client) []finding {
	findings := []finding{examineServer(c), examineLedger(ctx, c)}
	status, err := c.status(ctx)
	if err != nil {
		return append(findings, problem("executor", err))
	}
	switch status.Mode {
	case executor.ModeHolding:
		findings = append(findings, ok("executor", "%s holds tenant %s in term %d", status.Holder, status.Tenant, status.Term))
	case executor.ModeStandby:
		findings = append(findings, ok("executor", "this one stands by; %s holds tenant %s in term %d", dash(status.Holder), status.Tenant, status.Term))
	default:
		findings = append(findings, broken("executor", "read the problem; nothing is dispatched until it is gone", "%s: %s", status.Mode, status.Problem))
	}
	if status.Applied < status.Last {
		findings = append(findings, warn("fold", "run doctor again; if it does not move, look at the server's log", "%d of %d commits folded", status.Applied, status.Last))
	} else {
		findings = append(findings, ok("fold", "all %d commits folded", status.Last))
	}
	for _, w := range status.Waiting {
		findings = append(findings, warn("worker", "start a worker for "+w.Capability, "%s for plan %s waits, no worker in %d tries", w.Capability, w.Plan, w.Tries))
	}
	if len(status.Waiting) == 0 {
		findings = append(findings, ok("worker", "no command waits for a worker"))
	}
	if status.Quarantined > 0 {
		findings = append(findings, warn("quarantine", "sagenbaum quarantine ls", "%d plans wait for their owner", status.Quarantined))
	} else {
		findings = append(findings, ok("quarantine", "nothing waits for its owner"))
	}
	return append(findings, examineRefused(ctx, c, status.Refused))
}

func examineServer(c *client) finding {
	version := c.conn.ConnectedServerVersion()
	if !c.conn.HeadersSupported() {
		return broken("server", "a nats-server of "+jetstream.ServerVersionMin+" or later", "nats-server %s at %s has no headers", version, c.server)
	}
	return ok("server", "nats-server %s at %s", version, c.server)
}

func examineLedger(ctx context.Context, c *client) finding {
	store, err := c.store(ctx)
	if err != nil {
		return problem("ledger", err)
	}
	head, err := store.Head(ctx)
	switch {
	case err != nil:
		return problem("ledger", err)
	case head.Deleted > 0:
		return broken("ledger", "stop the server and keep a copy of its data", "%d records are missing from stream %s", head.Deleted, jetstream.StreamName(c.tenant))
	case head.Last >= head.First && head.First != 1:
		return broken("ledger", "stop the server and keep a copy of its data", "stream %s starts at %d", jetstream.StreamName(c.tenant), head.First)
	}
	return ok("ledger", "stream %s holds %d commits without a gap", jetstream.StreamName(c.tenant), head.Last)
}

// refusedShown is how many refused records the doctor names.
const refusedShown = 3

func examineRefused(ctx context.Context, c *client, count uint64) finding {
	if count == 0 {
		return ok("records", "none was refused")
	}
	var answer executor.RefusedAnswer
	if err := c.ask(ctx, "refused.ls", executor.ListQuery{Limit: refusedShown}, &answer); err != nil {
		return problem("records", err)
	}
	text := fmt.Sprintf("%d refused", count)
	next := "sagenbaum ledger tail --since 1"
	for i, r := range answer.Refused {
		if i == 0 {
			next = fmt.Sprintf("sagenbaum ledger tail --since %d", r.Sequence)
		}
		text += fmt.Sprintf("; %d.%d on %s: %s", r.Sequence, r.Index, r.Subject, clip(r.Reason, 100))
	}
	return warn("records", next, "%s", text)
}

// problem turns the error of a check into its finding.
func problem(check string, err error) finding {
	var f *failure
	if errors.As(err, &f) {
		return broken(check, f.hint, "%s", f.text)
	}
	return broken(check, "", "%v", err)
}
