package undo

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/plan"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Past is a plan of which nothing can be undone now.
type Past struct {
	Plan  string `json:"plan"`
	State string `json:"state"`
	Why   string `json:"why"`
	// Undone: nothing is left of it, so that to ask for it again is harmless.
	Undone bool   `json:"undone,omitempty"`
	Next   string `json:"next,omitempty"` // what to do about it
	// Stays: its undo has failed, or what is left of it cannot be undone any more.
	Stays bool `json:"stays,omitempty"`
}

// consider takes a plan, where something of it can be undone. Child plans are undone with their
// parents, and a plan that undoes another one is not undone.
func (answer *Answer) consider(ctx context.Context, c *cli.Client, p api.Plan, named bool) error {
	past := func(r Past) error {
		r.Plan, r.State = p.Plan, p.State
		answer.Past = append(answer.Past, r)
		return nil
	}
	switch {
	case p.UndoneAs != "":
		by, err := c.Plan(ctx, p.UndoneAs, 0)
		if err != nil {
			return err
		}
		return past(undoneBy(by))
	case !ledger.MayUnwind(p.State):
		return past(ended(p))
	case !named && (p.Parent != "" || p.Origin != ""):
		return nil
	}
	v, err := cli.Ask(ctx, c, api.PlanPreview, api.PreviewQuery{Plan: p.Plan})
	switch {
	case err != nil:
		return err
	case v.Preview.Refused != "":
		return past(Past{Why: v.Preview.Refused, Stays: true,
			Next: cmp.Or(plan.PartNext(ctx, c, p), "sagenbaum plan preview "+p.Plan)})
	case !touches(v.Preview) && !named:
		return past(Past{Why: "nothing of it is to be undone", Undone: true})
	}
	answer.Plans = append(answer.Plans, Chosen{Plan: p.Plan, Agent: p.Agent, Label: p.Label,
		State: p.State, OpenedNs: p.OpenedNs, Preview: v.Preview})
	return nil
}

// ended is a plan that has ended in another way than by its commit, or is being undone.
func ended(p api.Plan) Past {
	r := Past{Why: "it is " + p.State, Undone: plan.Undone(p.State)}
	switch {
	case p.State == ledger.StateQuarantined:
		r.Next, r.Stays = "sagenbaum doctor --plan "+p.Plan, true
	case !r.Undone:
		r.Next = "sagenbaum plan show " + p.Plan
	}
	return r
}

// undoneBy is a committed plan, by what undoes it: all of it, or the part that was asked for.
func undoneBy(by api.Plan) Past {
	r := ended(by)
	r.Why = "it is undone as " + by.Plan
	if slices.ContainsFunc(by.Actions, leftOut) {
		r.Why = "a part of it is undone as " + by.Plan + ", the rest is not and cannot be any more"
		r.Undone, r.Stays = false, true
		r.Next = cmp.Or(r.Next, "sagenbaum plan tree "+by.Plan)
	}
	if !plan.Undone(by.State) {
		r.Why += fmt.Sprintf("; %s is %s", by.Plan, by.State)
	}
	return r
}

// leftOut reports whether an action, in what undoes a committed plan, keeps its effect, as only
// another part was to be undone.
func leftOut(a api.Action) bool {
	return a.Undo == "skipped" && a.Note == ledger.NoteNotAsked && a.Class != "effectless" &&
		a.Outcome != "failed"
}

// judge is how the command ends where it undoes nothing: well, where there is nothing left to undo.
func (q *request) judge(answer Answer) error {
	if len(answer.Plans) > 0 {
		return nil
	}
	if q.plan == "" {
		return cli.Look(nil, slices.ContainsFunc(answer.Past, func(p Past) bool { return p.Stays }))
	}
	for _, p := range answer.Past {
		if !p.Undone {
			return cli.Fail(cli.ExitConflict, p.Next, "nothing of %s is undone now", p.Plan)
		}
	}
	return nil
}
