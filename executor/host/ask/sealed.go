package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// keyTimeout is for one question about keys.
const keyTimeout = 5 * time.Second

// reveal shows an operator a plan with its sealed values.
func (d *Desk) reveal(q api.PlanQuery) (shown api.PlanAnswer, err error) {
	if shown, err = d.seenPlan(q.Plan); err != nil {
		return shown, err
	}
	seen := &shown.Plan
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	plan, _, _ := strings.Cut(seen.Plan, "~")
	d.forgetErased(plan)
	for i := range seen.Actions {
		action := &seen.Actions[i]
		for _, document := range []*json.RawMessage{&action.Input, &action.Output, &action.Before,
			&action.Arguments} {
			opened, _, err := d.Keys.Open(ctx, *document, []string{plan}, nil)
			if err != nil {
				return shown, alone{fmt.Errorf("cannot reveal action %s of plan %s: %w",
					action.Action, seen.Plan, err)}
			}
			*document = opened
		}
	}
	d.Log.Info("sealed values were revealed to an operator", "plan", seen.Plan)
	return shown, nil
}

// forgetErased has nothing of a plan opened that was erased: it stays so where its key is back with
// an older copy of the store.
func (d *Desk) forgetErased(plan string) {
	d.look(func(r *view.Reader) {
		if _, erased := r.KeyOwner(plan); erased != "" {
			d.Keys.Forget(plan)
		}
	})
}

// ForgetErased is forgetErased beside the tenant's loop. The error says that the host is stopping,
// or cannot look.
func (d *Desk) ForgetErased(plan string) (err error) {
	if !d.Board.asking.enter() {
		return errStopping
	}
	defer d.Board.asking.leave()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot look whether plan %s was erased: %v", plan, r)
		}
	}()
	d.forgetErased(plan)
	return nil
}

// key answers an agent about the key of a plan of its own.
func (d *Desk) key(agent string, q api.KeyQuery) (answer api.KeyAnswer, err error) {
	if !ledger.ValidToken(q.Plan) {
		return answer, fmt.Errorf("%q is not a plan id", q.Plan)
	}
	var owner, erased string
	read := func() { d.look(func(r *view.Reader) { owner, erased = r.KeyOwner(q.Plan) }) }
	read()
	if owner == "" && d.catchUp() { // its first record may have been acknowledged just now
		read()
	}
	switch {
	case owner != "" && owner != agent:
		return answer, fmt.Errorf("plan %s is agent %s's", q.Plan, owner)
	case erased != "":
		return api.KeyAnswer{Erased: erased}, nil
	case owner == "": // or anybody could take the ids of others, and make keys without end
		return answer, fmt.Errorf("plan %s is not in the ledger; "+
			"its agent opens it before it asks for its key", q.Plan)
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	key, err := d.Keys.Issue(ctx, agent, q.Plan)
	switch {
	case errors.Is(err, jetstream.ErrKeyDestroyed):
		return api.KeyAnswer{Erased: "its key was destroyed"}, nil
	case err != nil:
		d.Log.Warn("no key for an agent", "plan", q.Plan, "agent", agent, "error", err)
		problem := api.ProblemOf(vault.Told(err))
		problem.Again = vault.MayPass(err)
		return answer, problem
	}
	return api.KeyAnswer{Key: key[:]}, nil
}

// give answers another host that asks for the tenant's key, and no one else.
func (d *Desk) give(asked vault.Asked, reply string) any {
	given, ok := d.Keys.Give(asked, reply)
	if !ok {
		return nil
	}
	d.Log.Info("the tenant's key was given to another host", "kid", asked.ID)
	return given
}
