package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/console/web"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access/tries"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// certain asks who it is once more: what follows is the owner's word, and a cookie alone may
// have come into other hands. A confirmation is good for access.ConfirmTime.
func (v *visit) certain() error {
	if v.r.PostFormValue("token") == "" && !v.session.ConfirmedUntil(v.now()).IsZero() {
		return nil
	}
	if v.session.Provider {
		return failed(
			http.StatusForbidden, "Load the page again; it leads to the provider first.",
			"this needs you to sign in at %s once more", v.s.access.ProviderHost(),
		)
	}
	err := v.s.access.Confirm(v.w, v.r, v.session, time.Now())
	var many *tries.TooMany
	switch {
	case errors.As(err, &many):
		v.w.Header().Set("Retry-After", many.Seconds())
		hint := "Try again in " + many.Seconds() + " s."
		return failed(http.StatusTooManyRequests, hint, "too many tokens were shown")
	case err != nil:
		v.s.log.Warn("console: an answer without the user's token",
			"user", v.session.Name, "remote", v.r.RemoteAddr)
		hint := "Go back and give the token of " + v.session.Name + " with the answer."
		const text = "this needs your token once more, and it is missing or another one"
		return failed(http.StatusForbidden, hint, text)
	}
	return nil
}

// operate appends one operator record, as say does.
func (v *visit) operate(record *pb.Record) (sequence uint64, err error) {
	return v.say(ledger.ClassOperator, record)
}

// say appends one record under the name of the visitor and waits until it is folded. Refused or
// void there means that the log decided otherwise.
func (v *visit) say(class ledger.Class, record *pb.Record) (sequence uint64, err error) {
	ctx, cancel := context.WithTimeout(v.r.Context(), actTime)
	defer cancel()
	source := ledger.Source{Tenant: v.page.Tenant, Class: class, Name: v.session.Name}
	if err := ledger.Check(record, source); err != nil {
		return 0, refusal(err)
	}
	commit, err := jetstream.NewAppend(source, record)
	if err != nil {
		return 0, refusal(err)
	}
	sequence, err = v.host.append(ctx, v.page.Tenant, commit)
	switch {
	case errors.Is(err, jetstream.ErrDenied):
		return 0, failed(
			http.StatusForbidden, "Give the host the rights of its version: see upgrade.md of the guide.",
			"nothing is stored: the server does not let this host publish %s", commit.Subject,
		)
	case errors.Is(err, ledger.ErrInDoubt):
		return 0, failed(
			http.StatusBadGateway, "Look into the ledger before you try again.",
			"it is not known whether the record was stored: %v", err,
		)
	case err != nil:
		return 0, failed(http.StatusBadGateway, "", "cannot append the record: %v", err)
	}
	v.s.log.Info(
		"console: an operator has acted", "tenant", v.page.Tenant, "operator", v.session.Name,
		"record", ledger.KindOf(record).Name, "plan", record.Plan, "sequence", sequence,
	)
	if record.Plan == "" {
		return sequence, nil
	}
	answer, err := answered(
		v, v.page.Tenant, api.PlanOutcome,
		api.OutcomeQuery{Plan: record.Plan, Sequence: sequence, WaitMs: (actTime / 2).Milliseconds()},
	)
	switch {
	case isProblem(err):
		return sequence, failed(
			http.StatusBadGateway, "Load the page again in a moment.",
			"record %d is stored, and its effect is not known yet: %v", sequence, err,
		)
	case err != nil:
		return sequence, failed(http.StatusServiceUnavailable, "", "%v", err)
	case len(answer.Refused) > 0:
		return sequence, failed(
			http.StatusConflict, "Look at the plan as it is now.", "record %d has no effect: %s", sequence,
			strings.Join(answer.Refused, "; "),
		)
	}
	return sequence, nil
}

// act writes an operator's record and leads back to a page, which says which it is.
func (v *visit) act(record *pb.Record, path ...string) error {
	sequence, err := v.operate(record)
	if err != nil {
		return err
	}
	return v.back(sequence, path...)
}

// back leads to a page, which says which record was written.
func (v *visit) back(sequence uint64, path ...string) error {
	for i, p := range path {
		path[i] = url.PathEscape(p)
	}
	to := "/t/" + v.page.Tenant + "/" + strings.Join(path, "/")
	http.Redirect(v.w, v.r, fmt.Sprintf("%s?said=%d", to, sequence), http.StatusSeeOther)
	return nil
}

// reason is why an operator acts, which every record has.
func (v *visit) reason() (string, error) {
	reason := strings.TrimSpace(v.r.PostFormValue("reason"))
	if reason == "" {
		return "", failed(http.StatusBadRequest, "Say why, for the record.", "a reason is missing")
	}
	return reason, nil
}

func (v *visit) askPlan(id string) (api.Plan, error) {
	if !ledger.ValidDerived(id) {
		return api.Plan{}, failed(
			http.StatusNotFound, "Look among the plans.", "%q is no plan id", id,
		)
	}
	answer, err := ask(v, api.PlanShow, api.PlanQuery{Plan: id})
	return answer.Plan, err
}

// askAction is the action that the page's address names, with its plan.
func (v *visit) askAction() (plan api.Plan, a api.Action, err error) {
	if plan, err = v.askPlan(v.r.PathValue("plan")); err == nil {
		a, err = findAction(plan, v.r.PathValue("action"))
	}
	return plan, a, err
}

// aboutPlan is the plan that an operator acts on, and why.
func (v *visit) aboutPlan() (plan api.Plan, reason string, err error) {
	if plan, err = v.askPlan(v.r.PathValue("plan")); err == nil {
		reason, err = v.reason()
	}
	return plan, reason, err
}

func (v *visit) cancel() error {
	plan, reason, err := v.aboutPlan()
	if err != nil {
		return err
	}
	request := &pb.CancelRequested{Reason: reason, Actor: v.session.Name}
	record := &pb.Record{Plan: plan.Plan, Kind: &pb.Record_CancelRequested{CancelRequested: request}}
	return v.act(record, "plans", plan.Plan)
}

func (v *visit) unwind() error {
	plan, reason, err := v.aboutPlan()
	if err != nil {
		return err
	}
	to := v.r.PostFormValue("to")
	named := func(sp api.Savepoint) bool { return sp.Name == to }
	if to != "" && !slices.ContainsFunc(plan.Savepoints, named) {
		return failed(
			http.StatusBadRequest, "Choose one that the plan has.", "the plan has no savepoint %q", to,
		)
	}
	action := v.r.PostFormValue("action")
	switch called := func(a api.Action) bool { return a.Action == action }; {
	case action != "" && to != "":
		return failed(http.StatusBadRequest, "Choose one of the two.",
			"an action and a savepoint are two parts of a plan")
	case action != "" && !slices.ContainsFunc(plan.Actions, called):
		return failed(http.StatusBadRequest, "Choose one that the plan has.",
			"the plan has no action %q", action)
	}
	request := &pb.CompensationRequested{Reason: reason, Actor: v.session.Name, ToSavepoint: to,
		FromAction: action}
	record := &pb.Record{
		Plan: plan.Plan, Kind: &pb.Record_CompensationRequested{CompensationRequested: request},
	}
	return v.act(record, "plans", plan.Plan)
}

// erase destroys the key of a plan's sealed values, for good: the form repeats the plan's id.
func (v *visit) erase() error {
	plan, reason, err := v.aboutPlan()
	switch {
	case err != nil:
		return err
	case plan.Erasure != nil:
		return failed(http.StatusConflict, "Look at the plan as it is now.", "plan %s is erased already",
			plan.Plan)
	case strings.TrimSpace(v.r.PostFormValue("plan")) != plan.Plan:
		return failed(http.StatusBadRequest, "Go back and give the plan's id, "+plan.Plan+".",
			"an erasure is for good, and the form does not name the plan")
	}
	request := &pb.PlanErased{
		Reason: reason, Actor: v.session.Name, Force: v.r.PostFormValue("force") != "",
	}
	record := &pb.Record{Plan: plan.Plan, Kind: &pb.Record_PlanErased{PlanErased: request}}
	return v.act(record, "plans", plan.Plan)
}

// cascade answers one cut lease, named by the address of its cut, so that the answer
// never meets a later one.
func (v *visit) cascade() error {
	plan, reason, err := v.aboutPlan()
	if err != nil {
		return err
	}
	cut := v.r.PostFormValue("cut")
	at := slices.IndexFunc(plan.Cuts, func(c api.Cut) bool { return c.Cut == cut })
	resume := v.r.PostFormValue("word") == "resume"
	switch {
	case at < 0:
		return failed(
			http.StatusConflict, "Look at the plan as it is now.", "this lease is not cut any more",
		)
	case !resume && v.r.PostFormValue("word") != "give-up":
		return failed(http.StatusBadRequest, "Let it fire, or give it up.", "no answer was chosen")
	}
	cause, err := ledger.ParseAddress(cut)
	if err != nil {
		return refusal(err)
	}
	lease := plan.Cuts[at]
	answer := &pb.CascadeAnswered{
		Resume: resume, Lease: lease.Lease, Reason: reason, Actor: v.session.Name,
	}
	record := &pb.Record{
		Plan: plan.Plan, Action: lease.Action, Cause: cause,
		Kind: &pb.Record_CascadeAnswered{CascadeAnswered: answer},
	}
	return v.act(record, "plans", plan.Plan)
}

// resolutions are the answers that end a quarantine; each but skipped is a claim and
// names its evidence.
var resolutions = map[string]pb.Resolution{
	"done": pb.Resolution_RESOLUTION_DONE, "lost": pb.Resolution_RESOLUTION_LOST,
	"accepted": pb.Resolution_RESOLUTION_ACCEPTED, "skipped": pb.Resolution_RESOLUTION_SKIPPED,
}

// answer is the owner's word on a quarantined action.
func (v *visit) answer() error {
	plan, a, err := v.askAction()
	if err != nil {
		return err
	}
	record, err := v.ownerWord(plan, a)
	if err != nil {
		return err
	}
	return v.act(record, "quarantine", plan.Plan, v.r.PathValue("action"))
}

func (v *visit) ownerWord(plan api.Plan, a api.Action) (*pb.Record, error) {
	reason, err := v.reason()
	if err != nil {
		return nil, err
	}
	as, evidence := v.r.PostFormValue("as"), strings.TrimSpace(v.r.PostFormValue("evidence"))
	halt, force := v.r.PostFormValue("halt") != "", v.r.PostFormValue("force") != ""
	newKey, over := v.r.PostFormValue("new_key") != "", v.r.PostFormValue("overwrite") != ""
	outcome, resolves := resolutions[as]
	switch {
	case a.Undo != undoQuarantined && !a.Owed:
		return nil, failed(
			http.StatusConflict, "Look at the plan as it is now.", "action %d is %s: nothing of it is owed",
			a.Number, a.Undo,
		)
	case as != "retry" && !resolves:
		return nil, failed(http.StatusBadRequest, "Choose one of the answers.", "no answer was chosen")
	case as == "retry" && retryRefused(plan, a, force, time.Now()) != "":
		return nil, failed(http.StatusConflict, "", "%s", retryRefused(plan, a, force, time.Now()))
	case resolves && as != "skipped" && evidence == "":
		return nil, failed(
			http.StatusBadRequest, "Name it, as in ticket:OPS-91; or skip, which claims nothing.",
			"%q is a claim and needs its evidence", as,
		)
	}
	record := &pb.Record{Plan: plan.Plan, Action: a.Action}
	if a.QuarantinedAt != "" { // the answer never meets a later quarantine
		if record.About, err = ledger.ParseAddress(a.About); err != nil {
			return nil, refusal(err)
		}
		if record.Cause, err = ledger.ParseAddress(a.QuarantinedAt); err != nil {
			return nil, refusal(err)
		}
	}
	if resolves {
		record.Kind = &pb.Record_Resolved{
			Resolved: &pb.Resolved{
				Outcome: outcome, Reason: reason, Evidence: evidence, Actor: v.session.Name, Halt: halt,
			},
		}
	} else {
		record.Kind = &pb.Record_RetryRequested{
			RetryRequested: &pb.RetryRequested{
				Reason: reason, Actor: v.session.Name, Force: force, NewKey: newKey,
				Overwrite: over,
			},
		}
	}
	return record, nil
}

// judge gives a verdict on an action that waits for one, under the name of the visitor.
func (v *visit) judge() error {
	plan, a, err := v.askAction()
	if err != nil {
		return err
	}
	as, reason := v.r.PostFormValue("as"), strings.TrimSpace(v.r.PostFormValue("reason"))
	answer, err := ask(v, api.ReviewLs, api.ReviewQuery{Plan: plan.Plan, Action: api.ByID(a.Action)})
	if err != nil {
		return err
	}
	outcome, known := ledger.VerdictOf(as)
	given := &pb.VerdictGiven{Outcome: outcome, Reason: reason}
	switch allows := as == "allow"; {
	case !known:
		return failed(http.StatusBadRequest, "Choose one of the verdicts.", "no verdict was chosen")
	case len(answer.Reviews) == 0: // someone was first, or its agent waits no more
		return failed(http.StatusConflict, "Look at the plan as it is now.",
			"action %s waits for no verdict", a.Action)
	case !allows && reason == "":
		return failed(http.StatusBadRequest, "Say why, or what to do instead: the agent is told.",
			"a reason is missing")
	case !allows && v.r.PostFormValue("plan") != "":
		given.Scope = pb.Scope_SCOPE_PLAN
	}
	record := &pb.Record{Plan: plan.Plan, Action: a.Action,
		Kind: &pb.Record_VerdictGiven{VerdictGiven: given}}
	sequence, err := v.say(ledger.ClassVerdict, record)
	if err != nil {
		return err
	}
	return v.back(sequence, "verdicts")
}

// retryRefused says why the undo of a quarantined action cannot be tried again now.
func retryRefused(plan api.Plan, a api.Action, force bool, now time.Time) string {
	switch {
	case a.Number == 0:
		return "there is nothing to retry: its record was refused"
	case a.Compensation == "":
		return "there is nothing to retry: " + a.Capability + " has no inverse"
	case a.Staged && a.Outcome == "completed":
		return "there is nothing to retry: " + a.Capability + " was delivered"
	case a.Staged && plan.Stopped != "":
		return "there is nothing to retry: the deliveries of plan " + plan.Origin + " were stopped at " +
			plan.Stopped
	case a.Undo == "dispatched" && !force:
		return fmt.Sprintf("attempt %d is on its way and has no answer", a.Attempt)
	case a.AliveNs > now.UnixNano() && !force:
		return fmt.Sprintf(
			"attempt %d had no answer and may be at work until %s", a.Attempt, web.Moment(a.AliveNs),
		)
	}
	return ""
}

// move takes a fact's value out of working memory, or brings it back.
func (v *visit) move() error {
	key := v.r.PostFormValue("key")
	reason, err := v.reason()
	if err != nil {
		return err
	}
	if _, err := ask(v, api.FactGet, api.FactQuery{Key: key}); err != nil {
		return err
	}
	record := &pb.Record{
		Kind: &pb.Record_EvictRequested{
			EvictRequested: &pb.EvictRequested{
				Keys: []string{key}, Reason: reason, Actor: v.session.Name,
			},
		},
	}
	if v.r.PostFormValue("to") == "memory" {
		record.Kind = &pb.Record_RestoreRequested{
			RestoreRequested: &pb.RestoreRequested{
				Keys: []string{key}, Reason: reason, Actor: v.session.Name,
			},
		}
	}
	sequence, err := v.operate(record)
	if err != nil {
		return err
	}
	answer, err := answered(
		v, v.page.Tenant, api.FactGet, api.FactQuery{Key: key, Sequence: sequence},
	)
	if err != nil && !isProblem(err) { // a problem: it is not folded yet
		return failed(http.StatusServiceUnavailable, "", "%v", err)
	}
	if len(answer.Refused) > 0 {
		return failed(
			http.StatusConflict, "", "record %d has no effect: %s", sequence,
			strings.Join(answer.Refused, "; "),
		)
	}
	http.Redirect(
		v.w, v.r,
		fmt.Sprintf("/t/%s/memory/fact?key=%s&said=%d", v.page.Tenant, url.QueryEscape(key), sequence),
		http.StatusSeeOther,
	)
	return nil
}

// confirmClock has clock leases fire again that the clock guard holds back.
func (v *visit) confirmClock() error {
	reason, err := v.reason()
	if err != nil {
		return err
	}
	if v.page.Mode != api.ModeGuard {
		return failed(
			http.StatusConflict, "", "the clock guard does not hold: the tenant is %s", v.page.Mode,
		)
	}
	confirmed := &pb.ClockConfirmed{
		Reason: reason, Actor: v.session.Name, WallNs: time.Now().UnixNano(),
	}
	record := &pb.Record{Kind: &pb.Record_ClockConfirmed{ClockConfirmed: confirmed}}
	return v.act(record, "health")
}
