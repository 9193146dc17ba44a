package main

import (
	"context"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// familyMax bounds the child plans that are asked for to show one plan.
const familyMax = 100

// family is a plan with the plans that are part of it, as far as they were asked
// for.
type family struct {
	root     executor.PlanView
	children map[string]executor.PlanView // by id
}

// family asks for the child plans of a plan, theirs, and so on: nearest first, at
// most familyMax.
func (c *client) family(ctx context.Context, root executor.PlanView) (family, error) {
	f := family{root: root, children: map[string]executor.PlanView{}}
	todo := childrenOf(root)
	for len(todo) > 0 && len(f.children) < familyMax {
		id := todo[0]
		todo = todo[1:]
		if _, known := f.children[id]; known || id == root.Plan {
			continue
		}
		child, err := c.plan(ctx, id, 0)
		if err != nil {
			return f, err
		}
		f.children[id] = child
		todo = append(todo, childrenOf(child)...)
	}
	return f, nil
}

func childrenOf(plan executor.PlanView) (ids []string) {
	for _, a := range plan.Actions {
		if a.Child != "" {
			ids = append(ids, a.Child)
		}
	}
	return ids
}

// plans are all of a family that are known, each once, parents before children.
func (f family) plans() []executor.PlanView {
	list := []executor.PlanView{f.root}
	seen := map[string]bool{f.root.Plan: true}
	for i := 0; i < len(list); i++ {
		for _, id := range childrenOf(list[i]) {
			if child, known := f.children[id]; known && !seen[id] {
				seen[id] = true
				list = append(list, child)
			}
		}
	}
	return list
}

// quarantined reports whether something in a family waits for its owner: an action,
// or a lease that a cascade limit holds.
func (f family) quarantined() bool {
	for _, plan := range f.plans() {
		if plan.Quarantined > 0 || len(plan.Cuts) > 0 || plan.State == ledger.StateQuarantined {
			return true
		}
	}
	return false
}

// forPeople is a family in which every string is printable.
func (f family) forPeople() family {
	clean := family{root: forPeople(f.root), children: map[string]executor.PlanView{}}
	for _, child := range f.children {
		child = forPeople(child)
		clean.children[child.Plan] = child
	}
	return clean
}
