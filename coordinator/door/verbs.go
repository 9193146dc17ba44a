package door

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Verb is one thing that may be asked of the door.
type Verb struct {
	Name    string
	Summary string // one line
	Request reflect.Type
	Answer  reflect.Type

	run func(ctx context.Context, d *Door, who Caller, body []byte) (any, error)
}

// verb is a line of the table.
func verb[Q, A any](name, summary string,
	do func(d *Door, ctx context.Context, who Caller, q *Q) (A, error)) Verb {
	return Verb{Name: name, Summary: summary, Request: reflect.TypeFor[Q](),
		Answer: reflect.TypeFor[A](),
		run: func(ctx context.Context, d *Door, who Caller, body []byte) (any, error) {
			q := new(Q)
			if err := decode(body, q); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, workMax+WaitMax)
			defer cancel()
			return do(d, ctx, who, q)
		}}
}

// table is all verbs, in the order of a plan's life.
func table() []Verb {
	return []Verb{
		verb("plan.begin", "Open a plan", (*Door).doBegin),
		verb("plan.act", "Register an action, before its tool is called", (*Door).doAct),
		verb("plan.outcome", "Tell what became of an action", (*Door).doOutcome),
		verb("plan.report", "Register an action that has happened", (*Door).doReport),
		verb("plan.savepoint", "Mark a place to go back to", (*Door).doSavepoint),
		verb("plan.unwind_to", "Undo what came after a savepoint, and go on", (*Door).doUnwindTo),
		verb("plan.deadline", "Move the deadline of an open plan", (*Door).doDeadline),
		verb("plan.commit", "End a plan well: nothing of it is undone", (*Door).doCommit),
		verb("plan.fail", "End a plan badly: what happened is undone", (*Door).doFail),
		verb("plan.cancel", "End a plan that is not wanted any more", (*Door).doCancel),
		verb("plan.wait", "Wait for the end of a plan", (*Door).doWait),
		verb("plan.get", "Show what is recorded of a plan", (*Door).doGet),
		verb("plan.preview", "Show what would be undone", (*Door).doPreview),
		verb("plan.resume", "Go on with a plan of a process that has ended", (*Door).doResume),
		verb("plan.find", "Find plans of this agent", (*Door).doFind),
		verb("fact.put", "Assert a fact", (*Door).doPut),
		verb("fact.retract", "End a fact", (*Door).doRetract),
		verb("verdict.give", "Allow, block or redirect an action", (*Door).doGive),
		verb("review.list", "List the actions that wait for a verdict", (*Door).doReviews),
	}
}

// verbs is the table, by name.
var verbs = func() map[string]Verb {
	found := map[string]Verb{}
	for _, v := range table() {
		found[v.Name] = v
	}
	return found
}()

// Verbs are all verbs, in the order of a plan's life.
func Verbs() []Verb { return table() }

func verbsText() string {
	return strings.Join(slices.Sorted(maps.Keys(verbs)), ", ")
}
