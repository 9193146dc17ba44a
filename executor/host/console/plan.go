package console

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
)

const undoQuarantined = "quarantined"

// planTree is a plan and its actions, with their places in the picture.
type planTree struct {
	Plan  view.Plan
	Rows  []treeRow
	Lanes int
	Depth int
	More  string // URL of the actions after these; empty: none
	Less  string
}

// treeRow is one action.
type treeRow struct {
	view.Action
	Graph     graph
	Savepoint []view.Savepoint // set after it
	Tree      *planTree        // of the child plan; nil: none, or not shown
}

type planBody struct {
	planTree
	Timeline  *timeline
	Why       view.Why
	Leases    []leaseRow
	Unsettled bool // something of it is still to be undone
}

// leaseRow is a lease and what it is held for.
type leaseRow struct {
	Plan   string
	Action string // empty: the plan
	Number int
	view.Lease
}

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
	body := planBody{planTree: *maker.tree(seen, max(from, 0), 0)}
	undos, err := ask[view.UndosAnswer](
		v, "undo.ls", view.UndoQuery{Plan: seen.Plan, Limit: attemptsShown},
	)
	if err == nil {
		err = said(undos.Error)
	}
	if err != nil {
		return err
	}
	body.Timeline = newTimeline(seen, undos.Undos, v.page.NowNs)
	why, err := ask[view.WhyAnswer](v, "plan.why", view.WhyQuery{Plan: seen.Plan})
	if err == nil {
		err = said(why.Error)
	}
	if err != nil {
		return err
	}
	body.Why = why.Why
	for _, l := range seen.Leases {
		body.Leases = append(body.Leases, leaseRow{Plan: seen.Plan, Lease: l})
	}
	for _, a := range seen.Actions {
		for _, l := range a.Leases {
			body.Leases = append(body.Leases, leaseRow{seen.Plan, a.Action, a.Number, l})
		}
	}
	body.Unsettled = seen.Held > 0
	v.live(maker.shown...)
	title := seen.Label
	if title == "" {
		title = seen.Plan
	}
	return v.show("plan", title, "plans", body)
}

// tree makes the picture of a plan from action number from on, with its child plans
// inside as far as childDepth.
func (m *treeMaker) tree(seen view.Plan, from, depth int) *planTree {
	m.shown = append(m.shown, seen.Plan)
	t := &planTree{Plan: seen, Depth: depth}
	last := min(len(seen.Actions), from+stepsShown)
	from = min(from, last)
	if last < len(seen.Actions) {
		t.More = "?from=" + strconv.Itoa(last)
	}
	if from > 0 {
		t.Less = "?from=" + strconv.Itoa(max(0, from-stepsShown))
	}
	actions := seen.Actions[from:last]
	graphs, lanes := draw(actions)
	t.Lanes = lanes
	for i, a := range actions {
		row := treeRow{Action: a, Graph: graphs[i]}
		for _, sp := range seen.Savepoints {
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
	Preview view.Preview
	Plan    view.Plan
}

func (v *visit) preview() error {
	plan, err := v.askPlan(v.r.PathValue("plan"))
	if err != nil {
		return err
	}
	answer, err := ask[view.PreviewAnswer](
		v, "plan.preview", view.PreviewQuery{Plan: plan.Plan, To: v.r.URL.Query().Get("to")},
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
	Plan   view.Plan
	Action view.Action
	Cut    *view.Cut // it is a lease that a cascade limit holds
	Orphan string    // its record was refused
}

func (v *visit) quarantine() error {
	after := v.r.URL.Query().Get("after")
	answer, err := ask[view.PlansAnswer](
		v, "quarantine.ls", view.ListQuery{After: after, Limit: pageRows},
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

func orphan(id string) view.Action {
	return view.Action{Action: id, Undo: undoQuarantined, Note: whyOrphan}
}

// findAction finds an action by its number or, where no number is meant, its id.
func findAction(plan view.Plan, name string) (view.Action, error) {
	if slices.Contains(plan.Orphans, name) {
		return orphan(name), nil
	}
	for _, a := range plan.Actions {
		if strconv.Itoa(a.Number) == name || a.Action == name {
			return a, nil
		}
	}
	return view.Action{}, failed(
		http.StatusNotFound, "Look at the plan's actions.", "plan %s has no action %q", plan.Plan, name,
	)
}

type obligationBody struct {
	Plan     view.Plan
	Action   view.Action
	Attempts []view.Undo
	Waiting  []view.Action // undone once it is answered
	NoRetry  string        // why it cannot be tried again now
	Forced   bool          // it could, with force
	Preview  view.Preview
}

// obligation is one quarantined action in full, and the form that answers it.
func (v *visit) obligation() error {
	plan, a, err := v.askAction()
	if err != nil {
		return err
	}
	body := obligationBody{Plan: plan, Action: a, Waiting: waitingFor(plan, a)}
	if a.Number != 0 {
		undos, err := ask[view.UndosAnswer](
			v, "undo.ls", view.UndoQuery{Plan: plan.Plan, Action: a.Action, Limit: attemptsShown},
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
		if answer, err := ask[view.PreviewAnswer](
			v, "plan.preview", view.PreviewQuery{Plan: plan.Plan},
		); err == nil {
			body.Preview = answer.Preview
		}
	}
	v.live(plan.Plan)
	return v.show("obligation", "Quarantined: "+a.Capability, "quarantine", body)
}

// waitingFor are the actions that an unwind has not come to because they came before
// this one, the latest first.
func waitingFor(plan view.Plan, a view.Action) (waiting []view.Action) {
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
