package console

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

const undoQuarantined = "quarantined"

// planTree is a plan and its actions, with their places in the picture.
type planTree struct {
	Plan  executor.PlanView
	Rows  []treeRow
	Lanes int
	Depth int
	More  string // URL of the actions after these; empty: none
	Less  string
}

// treeRow is one action.
type treeRow struct {
	executor.ActionView
	Graph     graph
	Savepoint []executor.SavepointView // set after it
	Tree      *planTree                // of the child plan; nil: none, or not shown
}

type planBody struct {
	planTree
	Timeline  *timeline
	Why       executor.WhyView
	Leases    []leaseRow
	Unsettled bool // something of it is still to be undone
}

// leaseRow is a lease and what it is held for.
type leaseRow struct {
	Plan   string
	Action string // empty: the plan
	Number int
	executor.LeaseView
}

// treeMaker makes trees of a plan and its children, within bounds.
type treeMaker struct {
	v     *view
	shown []string // plans
}

func (v *view) plan() error {
	view, err := v.askPlan(v.r.PathValue("plan"))
	if err != nil {
		return err
	}
	from, _ := strconv.Atoi(v.r.URL.Query().Get("from"))
	maker := &treeMaker{v: v}
	body := planBody{planTree: *maker.tree(view, max(from, 0), 0)}
	undos, err := ask[executor.UndosAnswer](
		v, "undo.ls", executor.UndoQuery{Plan: view.Plan, Limit: attemptsShown},
	)
	if err == nil {
		err = said(undos.Error)
	}
	if err != nil {
		return err
	}
	body.Timeline = newTimeline(view, undos.Undos, v.page.NowNs)
	why, err := ask[executor.WhyAnswer](v, "plan.why", executor.WhyQuery{Plan: view.Plan})
	if err == nil {
		err = said(why.Error)
	}
	if err != nil {
		return err
	}
	body.Why = why.Why
	for _, l := range view.Leases {
		body.Leases = append(body.Leases, leaseRow{Plan: view.Plan, LeaseView: l})
	}
	for _, a := range view.Actions {
		for _, l := range a.Leases {
			body.Leases = append(body.Leases, leaseRow{view.Plan, a.Action, a.Number, l})
		}
	}
	body.Unsettled = view.Held > 0
	v.live(maker.shown...)
	title := view.Label
	if title == "" {
		title = view.Plan
	}
	return v.show("plan", title, "plans", body)
}

// tree makes the picture of a plan from action number from on, with its child plans
// inside as far as childDepth.
func (m *treeMaker) tree(view executor.PlanView, from, depth int) *planTree {
	m.shown = append(m.shown, view.Plan)
	t := &planTree{Plan: view, Depth: depth}
	last := min(len(view.Actions), from+stepsShown)
	from = min(from, last)
	if last < len(view.Actions) {
		t.More = "?from=" + strconv.Itoa(last)
	}
	if from > 0 {
		t.Less = "?from=" + strconv.Itoa(max(0, from-stepsShown))
	}
	actions := view.Actions[from:last]
	graphs, lanes := draw(actions)
	t.Lanes = lanes
	for i, a := range actions {
		row := treeRow{ActionView: a, Graph: graphs[i]}
		for _, sp := range view.Savepoints {
			if sp.Actions == a.Number {
				row.Savepoint = append(row.Savepoint, sp)
			}
		}
		if a.Child != "" && depth < childDepth && len(m.shown) < childrenShown &&
			!slices.Contains(m.shown, a.Child) {
			if child, err := m.v.askPlan(a.Child); err == nil {
				row.Tree = m.tree(child, 0, depth+1)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

type previewBody struct {
	Preview executor.PreviewView
	Plan    executor.PlanView
}

func (v *view) preview() error {
	plan, err := v.askPlan(v.r.PathValue("plan"))
	if err != nil {
		return err
	}
	answer, err := ask[executor.PreviewAnswer](
		v, "plan.preview", executor.PreviewQuery{Plan: plan.Plan, To: v.r.URL.Query().Get("to")},
	)
	if err == nil {
		err = said(answer.Error)
	}
	if err != nil {
		return err
	}
	v.live(plan.Plan)
	return v.show("preview", "Preview of "+plan.Plan, "plans", previewBody{answer.Preview, plan})
}

type quarantineBody struct {
	Items []quarantined
	Next  string
	First string
}

// quarantined is one entry of the inbox.
type quarantined struct {
	Plan   executor.PlanView
	Action executor.ActionView
	Cut    *executor.CutView // it is a lease that a cascade limit holds
	Orphan string            // its record was refused
}

func (v *view) quarantine() error {
	after := v.r.URL.Query().Get("after")
	answer, err := ask[executor.PlansAnswer](
		v, "quarantine.ls", executor.ListQuery{After: after, Limit: pageRows},
	)
	if err != nil {
		return err
	}
	body := quarantineBody{}
	for _, p := range answer.Plans {
		for _, a := range p.Actions {
			if a.Undo == undoQuarantined && a.Child == "" {
				body.Items = append(body.Items, quarantined{Plan: p, Action: a})
			}
		}
		for i := range p.Cuts {
			body.Items = append(body.Items, quarantined{Plan: p, Cut: &p.Cuts[i]})
		}
		for _, id := range p.Orphans {
			body.Items = append(body.Items, quarantined{Plan: p, Orphan: id, Action: orphan(id)})
		}
	}
	if answer.Next != "" {
		body.Next = with(v.r.URL.Query(), "after", answer.Next)
	}
	if after != "" {
		body.First = "?"
	} else {
		v.live()
	}
	return v.show("quarantine", "Quarantine", "quarantine", body)
}

// whyOrphan is why an act whose record was refused is its owner's.
const whyOrphan = "its record was refused: it may have happened, and nothing undoes it"

func orphan(id string) executor.ActionView {
	return executor.ActionView{Action: id, Undo: undoQuarantined, Note: whyOrphan}
}

// findAction finds an action by its number or, where no number is meant, its id.
func findAction(plan executor.PlanView, name string) (executor.ActionView, error) {
	if slices.Contains(plan.Orphans, name) {
		return orphan(name), nil
	}
	for _, a := range plan.Actions {
		if strconv.Itoa(a.Number) == name || a.Action == name {
			return a, nil
		}
	}
	return executor.ActionView{}, failed(
		http.StatusNotFound, "Look at the plan's actions.", "plan %s has no action %q", plan.Plan, name,
	)
}

type obligationBody struct {
	Plan     executor.PlanView
	Action   executor.ActionView
	Attempts []executor.UndoView
	Waiting  []executor.ActionView // undone once it is answered
	NoRetry  string                // why it cannot be tried again now
	Forced   bool                  // it could, with force
	Preview  executor.PreviewView
}

// obligation is one quarantined action in full, and the form that answers it.
func (v *view) obligation() error {
	plan, a, err := v.askAction()
	if err != nil {
		return err
	}
	body := obligationBody{Plan: plan, Action: a, Waiting: waitingFor(plan, a)}
	if a.Number != 0 {
		undos, err := ask[executor.UndosAnswer](
			v, "undo.ls", executor.UndoQuery{Plan: plan.Plan, Action: a.Action, Limit: attemptsShown},
		)
		if err == nil {
			err = said(undos.Error)
		}
		if err != nil {
			return err
		}
		body.Attempts = undos.Undos
	}
	now := v.now()
	body.NoRetry = retryRefused(a, false, now)
	body.Forced = body.NoRetry != "" && retryRefused(a, true, now) == ""
	if plan.State == ledger.StateQuarantined || plan.State == ledger.StateCommitting ||
		plan.State == ledger.StateUnwinding {
		if answer, err := ask[executor.PreviewAnswer](
			v, "plan.preview", executor.PreviewQuery{Plan: plan.Plan},
		); err == nil {
			body.Preview = answer.Preview
		}
	}
	v.live(plan.Plan)
	return v.show("obligation", "Quarantined: "+a.Capability, "quarantine", body)
}

// waitingFor are the actions that an unwind has not come to because they came before
// this one, the latest first.
func waitingFor(plan executor.PlanView, a executor.ActionView) (waiting []executor.ActionView) {
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
		if b.Undo == "owed" {
			waiting = append(waiting, b)
		}
	}
	return waiting
}
