package coordinator

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// A call with the ID of an action that there is already is a repetition of the one that has
// registered it, or a mistake: then something of it is stated otherwise.

// another refuses a call under the ID of another action. differs is what it states otherwise.
func another(id, differs string) error {
	return ledger.Refuse("action.id",
		fmt.Sprintf("%q is another action already: its %s was another one", id, differs),
		"an id of its own for each action")
}

// differs names what a call states otherwise than the one that has registered the action in
// this process; empty: nothing. Called with mu held.
func (a *action) differs(d *draft) string {
	other := a.stated(d)
	switch {
	case other != "":
		return other
	case !bytes.Equal(a.call.Input, d.input):
		return "input"
	case a.reported != (d.happened != nil):
		return "way, Do or Report,"
	case a.reported:
		return a.reports(d)
	}
	return ""
}

// stated is differs for what is recorded as it was stated.
func (a *action) stated(d *draft) string {
	was := a.registered
	_, digest := d.contract.Recorded()
	switch {
	case a.call.Capability != d.Capability:
		return "capability"
	case (was.Deliver != nil) != d.staged:
		return "way, Stage or not,"
	case !slices.Equal(was.After, d.After):
		return "after"
	case was.Branch != d.Branch:
		return "branch"
	case was.Pivot != d.Pivot:
		return "pivot"
	// What has happened is registered without a review, and another contract may ask for one.
	case d.happened == nil && !was.EffectCrossed && bytes.Equal(was.ContractDigest, digest) &&
		was.Review != (d.Review || d.contract.Review):
		return "review"
	}
	return ""
}

// reports is differs for what a report says of an action that is known to be completed.
// Called with mu held.
func (a *action) reports(d *draft) string {
	done := a.completed(*d.happened)
	other := a.completedWith(done.record, done)
	if other == "" && a.registered.EffectCrossed && !a.sameBefore(d) {
		return "before"
	}
	return other
}

// externalRef is what is recorded of an action that is completed. Called with mu held.
func (a *action) externalRef() string {
	if a.past != nil {
		return a.past.ExternalRef
	}
	return a.said.GetForwardCompleted().GetExternalRef()
}

// sameBefore compares the before-image of a report with what is recorded.
func (a *action) sameBefore(d *draft) bool {
	if a.past == nil {
		return bytes.Equal(a.before, d.before)
	}
	v := a.plan.vault
	opened, _, err := v.open(v.seal(d.contract, a.call.Action, "before", d.before))
	return bytes.Equal(a.pastBefore, d.before) || err == nil && bytes.Equal(a.pastBefore, opened)
}
