package door

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// What a refusal says of the ledger.
const (
	StoredNothing = "nothing" // nothing of the request is stored, or has an effect
	StoredAll     = "all"     // the request is stored, and may have no effect: the problem says why
	StoredUnknown = "unknown" // ask again with the same ids: there never is a second copy
)

// Error is why a request was not carried out. Its JSON is {"error": {...}}.
type Error struct {
	Status  int    `json:"status" doc:"401, 403, 404, 409, 422, 429 or 503"`
	Code    string `json:"code" doc:"refused, conflict, limit, unavailable, unauthorized, forbidden or not_found"`
	Field   string `json:"field,omitempty" doc:"of the request, where it is what is wrong"`
	Problem string `json:"problem" doc:"what is wrong"`
	Want    string `json:"want,omitempty" doc:"what would be right"`
	Limit   string `json:"limit,omitempty" doc:"name of the limit that is reached"`
	Agent   string `json:"agent,omitempty" doc:"that has the plan, where an operator has handed it to that one"`
	Stored  string `json:"stored" enum:"nothing,all,unknown" doc:"whether anything of the request is in the ledger; unknown: ask again with the same ids"`

	retryAfter string // seconds; empty: 1
}

// Error reads as a *ledger.Refused does.
func (e *Error) Error() string {
	text := e.Code + ": "
	if e.Field != "" {
		text += e.Field + ": "
	}
	if text += e.Problem; e.Want != "" {
		text += "; want " + e.Want
	}
	return text
}

// conflict is an Error for what another call, process or the executor has decided before.
func conflict(problem, want, stored string) *Error {
	return &Error{Status: http.StatusConflict, Code: "conflict", Problem: problem, Want: want,
		Stored: stored}
}

// sameAgain is what to do about most of what is unavailable.
const sameAgain = "the same request again"

// unavailable is an Error for what cannot be done at this moment.
func unavailable(problem, want, stored string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Code: "unavailable", Problem: problem,
		Want: want, Stored: stored}
}

// repeated refuses a request under the id of another one: what names it, and differs says what it
// states otherwise.
func repeated(what, id, differs string) *Error {
	e := conflict(fmt.Sprintf("%q was given before, with another %s", id, differs),
		"what was given with it, or an id of its own", StoredNothing)
	e.Field = what
	return e
}

// records are the names of records that begin a field in refusals of the ledger: a request has
// the field without them.
var records = []string{"plan.", "action.", "outcome.", "plan_opened.", "forward_registered.",
	"compensation_registered.", "forward_completed.", "forward_failed.", "forward_in_doubt.",
	"savepoint_set.", "unwind_requested.", "deadline_moved.",
	"plan_failed.", "plan_cancelled.", "fact_asserted.", "fact_retracted.",
	"verdict_given.", "payload."}

// limitField begins the field of a refusal by a limit of the tenant. The record is stored, and has
// no effect.
const limitField = "limits."

// fieldActionID is the field of a refusal by what is recorded under the id of an action.
const fieldActionID = "action.id"

// renamed are fields that have another name in requests.
var renamed = map[string]string{"plan.id": "plan", "request.plan": "plan", "forward": "action",
	"savepoint_set.name": "savepoint", "unwind_requested.to_savepoint": "savepoint",
	"plan_opened.deadline_ns": "deadline", "plan_opened.parent_plan": "parent",
	"plan.parent_plan": "parent", "plan.deadline_ns": "deadline", "plan.attach_digest": "attach_token",
	"plan_opened.attach_digest": "attach_token", "config.writer": "writer", "records": "body",
	"verdict_given.outcome": "verdict", "forward_in_doubt.message": "message"}

// wantIn is what would be right, as a request has it.
func wantIn(refused *ledger.Refused) string {
	if refused.Field == "action.stage" {
		return `plan.act with "stage": true`
	}
	if rest, resume := strings.CutPrefix(refused.Want, "Resume, "); resume {
		return "plan.resume, " + rest
	}
	return refused.Want
}

// fieldIn is a field of a refusal as a request has it.
func fieldIn(field string) string {
	if name, ok := renamed[field]; ok {
		return name
	}
	for _, prefix := range records {
		if rest, ok := strings.CutPrefix(field, prefix); ok {
			return rest
		}
	}
	return field
}

// undone says that the effect of an action is not there any more.
func undone(r *coordinator.Recorded) *Error {
	e := conflict(r.Error(), "another action, with another id", StoredAll)
	e.Field = "action"
	return e
}

// otherwise says what is recorded of an action, in place of what a request says of it.
func otherwise(r *coordinator.Recorded) *Error {
	if r.Undone {
		return undone(r)
	}
	want := "the outcome that is recorded: " + r.Outcome
	if r.Differs != "" {
		want = "the " + r.Differs + " that is recorded, in plan.get"
	}
	e := conflict(r.Error(), want, StoredNothing)
	e.Field = "outcome"
	return e
}

// handedOver says which agent has the plan, and what its processes, and that of the one before, may
// do.
func handedOver(h *coordinator.HandedOver) *Error {
	problem := fmt.Sprintf("operator %s has handed plan %s to agent %s", h.By, h.Plan, h.Agent)
	if h.Reason != "" {
		problem += ": " + h.Reason
	}
	want := "plan.resume by a process of agent " + h.Agent + ", before all else; of the writer " +
		"before, plan.outcome with completed or in_doubt of what it has registered"
	e := conflict(problem, want, StoredNothing)
	e.Field, e.Agent = "plan", h.Agent
	return e
}

// explain turns what went wrong into an Error.
func explain(err error) *Error {
	var known *Error
	var refused *ledger.Refused
	var recorded *coordinator.Recorded
	var handed *coordinator.HandedOver
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &recorded):
		return otherwise(recorded)
	case errors.As(err, &refused) && strings.HasPrefix(refused.Field, limitField):
		return &Error{Status: http.StatusTooManyRequests, Code: "limit", Field: refused.Field,
			Limit:   strings.TrimPrefix(refused.Field, limitField),
			Problem: refused.Problem, Want: refused.Want + "; and another id", Stored: StoredAll}
	case errors.As(err, &refused) && refused.Field == fieldActionID:
		e := conflict(refused.Problem, refused.Want, StoredNothing)
		e.Field = "action"
		return e
	case is(coordinator.ErrPlanExists):
		e := conflict(err.Error(), "an id of its own for each plan", StoredNothing)
		if e.Field = "plan"; refused != nil {
			e.Problem = coordinator.ErrPlanExists.Error() + ": " + refused.Problem
			e.Want = wantIn(refused)
		}
		return e
	case errors.As(err, &handed):
		return handedOver(handed)
	case is(coordinator.ErrSuperseded):
		e := conflict("another writer has resumed the plan",
			"plan.resume, if this one is to go on with it", StoredNothing)
		e.Field = "writer"
		return e
	case is(ledger.ErrFull):
		return unavailable(err.Error(), "room in the ledger", StoredNothing)
	case is(coordinator.ErrBusy):
		return &Error{Status: http.StatusTooManyRequests, Code: "limit", Limit: "calls",
			Problem: err.Error(), Want: "the same request, later", Stored: StoredNothing}
	case is(coordinator.ErrKeyAway) && !is(coordinator.ErrInDoubt):
		return unavailable(err.Error(), sameAgain, StoredNothing)
	case is(coordinator.ErrInDoubt):
		return unavailable(err.Error(), sameAgain, StoredUnknown)
	case is(coordinator.ErrUnconfirmed):
		return unavailable(err.Error(), sameAgain, StoredAll)
	case is(coordinator.ErrNotCaptured) && !errors.As(err, &refused):
		return unavailable(err.Error(),
			"a worker that says what is there before, and the same request again", StoredNothing)
	case is(coordinator.ErrNotStarted):
		e := conflict(err.Error(), "another action, with another id", StoredAll)
		e.Field = "action"
		return e
	case is(coordinator.ErrPartUndone):
		return conflict(err.Error(), "the same request again, to go on without it", StoredNothing)
	case is(coordinator.ErrUnwinding), is(coordinator.ErrUnwound), is(coordinator.ErrClosed),
		is(coordinator.ErrErased):
		return conflict(err.Error(), "plan.wait, for the end", StoredNothing)
	case errors.As(err, &refused):
		return &Error{Status: http.StatusUnprocessableEntity, Code: "refused",
			Field: fieldIn(refused.Field), Problem: refused.Problem, Want: wantIn(refused),
			Stored: StoredNothing}
	case is(context.DeadlineExceeded), is(context.Canceled):
		return unavailable("no answer in time: "+err.Error(), sameAgain, StoredUnknown)
	}
	return unavailable(err.Error(), sameAgain, StoredUnknown)
}
