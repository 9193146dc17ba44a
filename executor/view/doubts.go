package view

import (
	"cmp"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// doubtsShown bounds the actions of one answer about a commit that waits.
const doubtsShown = 100

// Doubts lists what the commit of a plan waits for: its actions in doubt, in order, and
// then the acts that were claimed by records which were refused.
func (r *Reader) Doubts(id string) (list []api.Doubt) {
	root := r.core.Plan(id)
	if root == nil || root.Row.Phase != rowspb.Phase_PHASE_COMMITTING {
		return nil
	}
	r.doubts(root, func(p *executor.Plan, a *executor.Action) bool {
		doubt := api.Doubt{Action: root.NameOf(a), Waits: r.waitOf(p, a)}
		doubt.Owner = a.Row.Undo == rowspb.Undo_UNDO_QUARANTINED
		if doubt.Owner {
			doubt.Waits = withNote(doubt.Waits, a.Row.Note)
		}
		list = append(list, doubt)
		return len(list) < doubtsShown
	})
	claims(root, func(name, why string) bool {
		if len(list) < doubtsShown {
			list = append(list, api.Doubt{Action: name, Owner: true, Waits: why})
		}
		return len(list) < doubtsShown
	})
	return list
}

// OpenDoubts lists of which actions of an open plan, or of what is committed with it, it is not
// known whether they happened: those about which the world is asked, or will be, and those that
// nothing asks about as long as the plan is open. Those of a child that is committed wait for its
// root, as long as that is open.
func (r *Reader) OpenDoubts(id string) (asked, stay []api.Doubt) {
	root := r.core.Plan(id)
	if root == nil || !r.isOpen(root) {
		return nil, nil
	}
	r.doubts(root, func(p *executor.Plan, a *executor.Action) bool {
		what, stays := r.openDoubt(p, a)
		doubt := api.Doubt{Action: root.NameOf(a), Waits: what}
		switch {
		case stays && len(stay) < doubtsShown:
			doubt.Waits = withNote(cmp.Or(what, "its outcome"), a.Row.Note)
			stay = append(stay, doubt)
		case !stays:
			asked = append(asked, doubt)
		}
		return len(asked) < doubtsShown
	})
	return asked, stay
}

// doubts calls each for every action that the commit of a root has to settle first, in
// order, until it returns false.
func (r *Reader) doubts(root *executor.Plan, each func(*executor.Plan, *executor.Action) bool) {
	for p := range root.Parts() {
		for a := range p.Actions() {
			if a.Fixed.Child == "" && a.Unanswered() && !each(p, a) {
				return
			}
		}
	}
}

// claims calls each for every act of the tree of a root that was claimed by a record which
// was refused, by what the root calls it, with what it waits for, until it returns false.
func claims(root *executor.Plan, each func(name, why string) bool) {
	for p := range root.Parts() {
		prefix := ""
		if p.ID != root.ID {
			prefix = p.ID + "/"
		}
		for _, o := range p.Orphans() {
			why := "its owner's word, before the plan is committed: it was claimed by a record that was " +
				"refused"
			if !each(prefix+o.Name, withNote(why, o.Reason)) {
				return
			}
		}
	}
}

// orphanNames names the acts that were claimed by refused records and wait for the owner.
func orphanNames(p *executor.Plan) (names []string) {
	for _, o := range p.Orphans() {
		names = append(names, o.Name)
	}
	return names
}
