package console

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"github.com/sagenbaum/sagenbaum/executor/host/console/web"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

const undoQuarantined = "quarantined"

// treeMaker makes trees of a plan and its children, within bounds.
type treeMaker struct {
	v     *visit
	shown []string // plans
}

func (v *visit) plan() error {
	seen, err := v.askPlan(v.r.PathValue("plan"))
	if err != nil {
		return err
	}
	from, _ := strconv.Atoi(v.r.URL.Query().Get("from"))
	maker := &treeMaker{v: v}
	body := web.Plan{Tree: *maker.tree(seen, max(from, 0), 0)}
	body.Undos = v.undos(api.UndoQuery{Plan: seen.Plan, Limit: attemptsShown})
	why := look(v, api.PlanWhy, api.WhyQuery{Plan: seen.Plan})
	body.Why = why.Why
	for _, l := range seen.Leases {
		body.Leases = append(body.Leases, web.Lease{Lease: l})
	}
	for _, a := range seen.Actions {
		for _, l := range a.Leases {
			body.Leases = append(body.Leases, web.Lease{Action: a.Action, Number: a.Number, Lease: l})
		}
	}
	body.Sealed = slices.ContainsFunc(seen.Actions, func(a api.Action) bool {
		return a.Sealed || seal.Sealed(a.Input) || seal.Sealed(a.Output) || seal.Sealed(a.Before)
	})
	v.live(maker.shown...)
	return v.show(cmp.Or(seen.Label, seen.Plan), "plans", body)
}

// undos are attempts of undos of a plan.
func (v *visit) undos(query api.UndoQuery) []api.Undo {
	return look(v, api.UndoLs, query).Undos
}

// tree makes the picture of a plan from action number from on, with its child plans
// inside as far as childDepth.
func (m *treeMaker) tree(seen api.Plan, from, depth int) *web.Tree {
	m.shown = append(m.shown, seen.Plan)
	t := web.NewTree(seen, from)
	for i, a := range t.Rows {
		if a.Child != "" && depth < childDepth && len(m.shown) < childrenShown &&
			!slices.Contains(m.shown, a.Child) {
			if child, err := m.v.askPlan(a.Child); err == nil {
				t.Rows[i].Tree = m.tree(child, 0, depth+1)
			}
		}
	}
	return t
}

func (v *visit) preview() error {
	plan, err := v.askPlan(v.r.PathValue("plan"))
	if err != nil {
		return err
	}
	answer := look(
		v, api.PlanPreview, api.PreviewQuery{Plan: plan.Plan, To: v.r.URL.Query().Get("to"),
			Action: v.r.URL.Query().Get("action")},
	)
	v.live(plan.Plan)
	return v.show("Preview of "+plan.Plan, "plans", web.Preview{Preview: answer.Preview, Plan: plan})
}

func (v *visit) quarantine() error {
	after := v.r.URL.Query().Get("after")
	answer := look(
		v, api.QuarantineLs, api.ListQuery{After: after, Limit: pageRows},
	)
	body := web.Quarantine{}
	for _, p := range answer.Plans {
		for _, a := range p.Actions {
			if a.Undo == undoQuarantined && a.Child == "" {
				body.Items = append(body.Items, web.Quarantined{Plan: p, Action: a})
			}
		}
		for i := range p.Cuts {
			body.Items = append(body.Items, web.Quarantined{Plan: p, Cut: &p.Cuts[i]})
		}
		for _, id := range p.Orphans {
			body.Items = append(body.Items, web.Quarantined{Plan: p, Orphan: id, Action: orphan(id)})
		}
	}
	body.Next, body.First = v.paging(answer.Next)
	return v.show("Quarantine", "quarantine", body)
}

// whyOrphan is why an act whose record was refused is its owner's.
const whyOrphan = "its record was refused: it may have happened, and nothing undoes it"

func orphan(id string) api.Action {
	return api.Action{Action: id, Undo: undoQuarantined, Note: whyOrphan}
}

// findAction finds the action that the address of a page names.
func findAction(plan api.Plan, name string) (api.Action, error) {
	switch id, at, err := view.Find(plan, name); {
	case err != nil:
		return api.Action{}, refusal(err)
	case id == "":
		return api.Action{}, failed(http.StatusNotFound, "Look at the plan's actions.",
			"plan %s has no action %q", plan.Plan, name)
	case at < 0:
		return orphan(id), nil
	default:
		return plan.Actions[at], nil
	}
}

// obligation is one quarantined action in full, and the form that answers it.
func (v *visit) obligation() error {
	plan, a, err := v.askAction()
	if err != nil {
		return err
	}
	body := web.Obligation{Plan: plan, Action: a}
	body.Waiting, body.Drops = waitingFor(plan, a)
	if a.Number != 0 {
		body.Attempts = v.undos(
			api.UndoQuery{Plan: plan.Plan, Action: a.Action, Limit: attemptsShown},
		)
	}
	now := v.now()
	body.NoRetry = retryRefused(plan, a, false, now)
	body.Forced = body.NoRetry != "" && retryRefused(plan, a, true, now) == ""
	if plan.State == ledger.StateQuarantined || plan.State == ledger.StateCommitting ||
		plan.State == ledger.StateUnwinding {
		if answer, err := ask(
			v, api.PlanPreview, api.PreviewQuery{Plan: plan.Plan},
		); err == nil {
			body.Preview = answer.Preview
		}
	}
	v.live(plan.Plan)
	return v.show("Quarantined: "+a.Capability, "quarantine", body)
}

// reviews are the actions that wait for a verdict.
func (v *visit) reviews() error {
	query := v.r.URL.Query()
	q := api.ReviewQuery{Agent: query.Get("agent"), Capability: query.Get("capability"),
		Label: query.Get("label"), After: query.Get("after"), Limit: pageRows}
	answer := filtered(v, api.ReviewLs, q)
	body := web.Reviews{Query: q, Items: answer.Reviews, Paused: answer.Paused,
		Filtered: q.Agent+q.Capability+q.Label != ""}
	body.Next, body.First = v.paging(answer.Next)
	return v.show("Verdicts", "verdicts", body)
}

// review is one action that waits for a verdict, in full, and the form that gives it.
func (v *visit) review() error {
	plan, a, err := v.askAction()
	if err != nil {
		return err
	}
	body := web.Review{Plan: plan, Action: a}
	answer := look(v, api.ReviewLs, api.ReviewQuery{Plan: plan.Plan, Action: api.ByID(a.Action)})
	if len(answer.Reviews) > 0 && answer.Reviews[0].Block != nil {
		body.Waits, body.Review, body.Block = true, answer.Reviews[0], *answer.Reviews[0].Block
	}
	v.live(plan.Plan)
	return v.show("Verdict on "+a.Capability, "verdicts", body)
}

// waitingFor are the actions that an unwind has not come to because they came before
// this one, the latest first; drops: those that are not made any more.
func waitingFor(plan api.Plan, a api.Action) (waiting, drops []api.Action) {
	before := map[int]bool{}
	for _, n := range a.After {
		before[n] = true
	}
	for _, b := range slices.Backward(plan.Actions) {
		if !before[b.Number] {
			continue
		}
		for _, n := range b.After {
			before[n] = true
		}
		switch {
		case b.ToDrop:
			drops = append(drops, b)
		case b.Undo == "owed":
			waiting = append(waiting, b)
		}
	}
	return waiting, drops
}
