package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Which finds the action of a plan that people mean by a text: the id that its agent has given it,
// or its number in the plan. An agent may give an action as its id what is the number of another
// one: then it is neither, and "id:4" or "number:4" says which is meant. has reports whether an
// action has an id, and named is the id of the one with a number, or "". The id is "" where the
// plan has no such action. The error is a *ledger.Refused.
func Which(text string, has func(id string) bool, named func(number int) string) (id string,
	err error) {
	byID, isID := strings.CutPrefix(text, api.IDPrefix)
	byNumber, isNumber := strings.CutPrefix(text, api.NumberPrefix)
	numbered := ""
	if n, err := strconv.ParseUint(byNumber, 10, 32); err == nil && n > 0 {
		numbered = named(int(n))
	}
	switch known := has(byID); {
	case isNumber, !isID && !known:
		return numbered, nil
	case !known:
		return "", nil
	case isID, numbered == "", numbered == text:
		return byID, nil
	}
	return "", ledger.Refuse("action", fmt.Sprintf("%s is the id of an action, and the number of "+
		"action %s", text, numbered), api.IDPrefix+text+" or "+api.NumberPrefix+text)
}

// Find is Which of the actions of a plan that are shown. at is the place of the action among them;
// -1: its record was refused, or there is no such one.
func Find(plan api.Plan, text string) (id string, at int, err error) {
	called := func(id string) int {
		return slices.IndexFunc(plan.Actions, func(a api.Action) bool { return a.Action == id })
	}
	has := func(id string) bool { return called(id) >= 0 || slices.Contains(plan.Orphans, id) }
	id, err = Which(text, has, func(number int) string {
		for _, a := range plan.Actions {
			if a.Number == number {
				return a.Action
			}
		}
		return ""
	})
	return id, called(id), err
}

// which is the action of a plan that a question of people is about; nil: it has no such one. The
// error is a *ledger.Refused.
func which(p *executor.Plan, text string) (*executor.Action, error) {
	has := func(id string) bool { return p.Named(id) != nil }
	id, err := Which(text, has, func(n int) string {
		if uint64(n) > uint64(p.Row.Actions) {
			return ""
		}
		return p.Action(uint32(n)).Fixed.Id
	})
	if id == "" {
		return nil, err
	}
	return p.Named(id), nil
}
