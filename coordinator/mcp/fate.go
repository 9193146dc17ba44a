package mcp

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// What became of the effects of a plan is asked of the ledger each time that a tool answers: a
// person, a condition, a deadline or another gateway may have undone them, or have let them stand.

// effect is one call that may have changed something.
type effect struct {
	Action   string            `json:"action"`
	Tool     string            `json:"tool"`
	About    string            `json:"about,omitempty"`
	Class    contract.Class    `json:"class"`
	Fidelity contract.Fidelity `json:"fidelity,omitempty"`
	State    string            `json:"state"` // one of the states below

	why   string // it is so, as the ledger says
	known string // done or in_doubt: what is known of the call, whatever became of its undo
	print string // of server, tool and arguments
	past  string // likewise, of a call of an earlier process
	mark  string // the savepoint before it
	lacks string // what its undo reads, and what is recorded does not have

	contract *Tool // nil: its tool has none
}

// inDoubt says what its undo does where no one knows whether it has happened.
func (e *effect) inDoubt() string {
	if e.contract == nil {
		return ""
	}
	return e.contract.inDoubt()
}

// States of effects.
const (
	stateDone    = "done"
	stateInDoubt = "in_doubt"
	stateUndoing = "being_undone"
	stateUndone  = "undone"
	stateOwner   = "needs_owner" // its undo is quarantined
	stateStays   = "stays"       // for good: it is committed, or its owner said so

	// Of a call that is staged, before it is done, dropped or its owner's:
	stateStaged = "staged"     // it is made once the plan is committed
	stateMaking = "being_made" // the plan is committed
)

// notMadeYet reports whether a call is staged, and not known to be made.
func (e *effect) notMadeYet() bool { return e.State == stateStaged || e.State == stateMaking }

// there reports whether the effect is there, as far as is known.
func (e *effect) there() bool { return e.State != stateUndone }

// undoable reports whether an undo of an open plan undoes it.
func (e *effect) undoable() bool {
	return e.State == stateDone || e.State == stateInDoubt || e.State == stateUndoing ||
		e.State == stateStaged
}

// judge takes what the ledger says of the effect. What was undone stays so: an answer may be older.
func (e *effect) judge(a coordinator.PastUndo) {
	if e.State == stateUndone && a.DutyOf == "" {
		return
	}
	if a.Staged {
		e.judgeStaged(a)
		return
	}
	switch a.Undo {
	case "":
		if a.Undone {
			e.State, e.why = stateUndone, ""
		}
	case "held":
		e.State, e.why = e.known, ""
	case "retired":
		e.State, e.why = stateStays, "its plan is committed"
	case "compensated":
		e.State, e.why = stateUndone, ""
	case "skipped":
		e.State, e.why = stateUndone, a.Note
	case "quarantined":
		e.State, e.why = stateOwner, a.Note
	case "resolved":
		e.State, e.why = stateStays, "its owner lets it stand: "
		if a.Resolution == "done" {
			e.State, e.why = stateUndone, "its owner has seen to it: "
		}
		e.why += a.Resolution + said(" by ", a.ResolvedBy) + said(", ", a.ResolvedReason)
	default:
		e.State, e.why = stateUndoing, ""
	}
}

// judgeStaged is judge for a call that is staged, or was.
func (e *effect) judgeStaged(a coordinator.PastUndo) {
	switch a.Undo {
	case "staged":
		e.State, e.why = stateStaged, ""
	case "dropped":
		e.State, e.why = stateUndone, "it was staged, and dropped: it was never made"
	case ledger.StateDelivered:
		e.State, e.why = stateStays, "it was made, as its plan is committed"
	case "quarantined":
		e.State, e.why = stateOwner, a.Note
	case "resolved":
		e.State, e.why = stateStays, "its owner has answered for it: "+a.Resolution+
			said(" by ", a.ResolvedBy)+said(", ", a.ResolvedReason)
	case "owed", "retired":
		e.State, e.why = stateUndone, "its owner has ended the plan without it: it was not made"
	default:
		e.State, e.why = stateMaking, ""
	}
}

func said(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// learn has the effects know what the ledger says of them.
func (t *tracked) learn(past coordinator.Past) {
	t.mu.Lock()
	defer t.mu.Unlock()
	byAction := map[string]*effect{}
	for _, e := range t.effects {
		byAction[e.Action] = e
	}
	for _, a := range past.Actions {
		switch e := byAction[cmp.Or(a.DutyOf, a.Action)]; {
		case e == nil:
		case a.DutyOf == "" && a.Outcome == api.OutcomeFailed:
			e.State, e.why = stateUndone, "it is known not to have happened"
		case a.DutyOf == "" && a.Outcome == api.OutcomeCompleted && e.known == stateInDoubt:
			e.isKnown()
			e.judge(a)
		case a.DutyOf == "" || !slices.Contains([]string{"held", "compensated", "skipped"}, a.Undo):
			e.judge(a)
		}
	}
	switch past.State {
	case ledger.StateOpen:
		if undoneInstead(t.over) {
			t.over = nil
		}
	case ledger.StateCommitting, ledger.StateUnwinding, ledger.StateQuarantined:
	default:
		t.settled = !slices.ContainsFunc(t.effects, (*effect).notMadeYet)
	}
}

// undoneInstead reports whether a plan took something no more because it is undone, or was. It may
// go on afterwards: its owner has answered for the undo that it was waiting for.
func undoneInstead(err error) bool {
	return errors.Is(err, coordinator.ErrUnwound) || errors.Is(err, coordinator.ErrUnwinding)
}

// look asks what became of the effects of a plan.
func (g *Gateway) look(ctx context.Context, t *tracked) (coordinator.Past, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	t.mu.Lock()
	mark := t.mark
	t.mu.Unlock()
	past, err := g.agent.Past(ctx, t.plan.ID(), t.plan.Stored())
	if err == nil {
		t.meet(g, past)
		t.learn(past)
		g.ask(ctx, t)
		t.unmark(past, mark)
	}
	return past, err
}

// ask finds out why calls that were staged are their owner's: the plan that makes them says so.
func (g *Gateway) ask(ctx context.Context, t *tracked) {
	owned := t.those(func(e *effect) bool { return e.wasStaged() && e.State == stateOwner })
	if len(owned) == 0 {
		return
	}
	making, err := g.agent.Past(ctx, t.plan.ID()+deliverySuffix, 0)
	if err != nil {
		g.logger.Debug("why a call needs its owner is not known", "plan", t.plan.ID(), "error", err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range making.Actions {
		for _, e := range owned {
			if e.Action == a.Action {
				e.why = a.Note
			}
		}
	}
}

// unmark takes back the savepoint before the next effect where the ledger does not have it any
// more: it went with what another has undone. mark is the one that was known before it was asked.
func (t *tracked) unmark(past coordinator.Past, mark string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if past.State != ledger.StateOpen || mark == "" || t.mark != mark ||
		slices.ContainsFunc(past.Savepoints,
			func(s coordinator.PastSavepoint) bool { return s.Name == mark }) {
		return
	}
	t.marks++
	t.mark = ""
}

// markLater stores a savepoint after an effect while the client thinks about its result.
func (t *tracked) markLater(ctx context.Context) {
	done := make(chan struct{})
	t.mu.Lock()
	t.marks++
	t.mark, t.marking = "", done
	t.mu.Unlock()
	go func() { // ends with the append
		defer close(done)
		t.markNow(ctx)
	}()
}

// markNow stores the savepoint before the next effect, if it is not stored yet. Without one the
// effect can be undone only together with what comes before it.
func (t *tracked) markNow(ctx context.Context) {
	t.mu.Lock()
	name, set := markName(t.marks), t.mark != ""
	t.mu.Unlock()
	if set {
		return
	}
	err := t.plan.Savepoint(ctx, name)
	t.mu.Lock()
	defer t.mu.Unlock()
	var part *coordinator.PartUndone
	switch {
	case err == nil: // one that is in doubt is asked for again
		t.mark = name
	case errors.As(err, &part): // it is said once, and a client must hear it before it commits
		t.parts = append(t.parts, part)
	}
}

// tell says, once, what a savepoint has heard of parts of the plan that were undone. Errors:
// coordinator.ErrPartUndone, ctx's; nil: nothing.
func (t *tracked) tell(ctx context.Context) error {
	if err := t.awaitMark(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := t.parts
	t.parts = nil
	return errors.Join(parts...)
}

// hear is tell for one session, and notes what it hears for the other whose plan it is.
func (p *plans) hear(ctx context.Context, by *sdk.ServerSession, t *tracked) error {
	err := t.tell(ctx)
	p.heard(by, t, err)
	return err
}

// markAgain stores the savepoint before a call where that has failed, as while the server of the
// ledger was away.
func (t *tracked) markAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	t.markNow(ctx)
}

// meet adds the effects that are recorded and that this gateway does not know: another one has
// gone on with the plan, or a call of this one is under way.
func (t *tracked) meet(g *Gateway, past coordinator.Past) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := maps.Clone(t.failed)
	for _, e := range t.effects {
		known[e.Action] = true
	}
	if !slices.ContainsFunc(past.Actions, func(a coordinator.PastUndo) bool {
		return a.DutyOf == "" && a.Outcome != api.OutcomeFailed && !known[a.Action]
	}) {
		return
	}
	recorded, _ := g.recollect(past)
	for _, e := range recorded {
		if !known[e.Action] {
			t.effects = append(t.effects, e)
		}
	}
}

// recollect makes the effects of what is recorded of a plan.
func (g *Gateway) recollect(past coordinator.Past) (effects []*effect, marks int) {
	mark, next := "", past.Savepoints
	for i, a := range past.Actions {
		for len(next) > 0 && next[0].Before <= i {
			mark, next = next[0].Name, next[1:]
		}
		if a.DutyOf != "" || a.Outcome == api.OutcomeFailed {
			continue
		}
		e := g.effectOf(a)
		if !a.Undone { // else an undo to the savepoint before it is one of the next call
			e.mark, mark = mark, ""
		}
		effects = append(effects, e)
	}
	for _, s := range past.Savepoints {
		if n, err := strconv.Atoi(strings.TrimPrefix(s.Name, markPrefix)); err == nil {
			marks = max(marks, n)
		}
	}
	return effects, marks
}

// effectOf is the effect of an action of an earlier process.
func (g *Gateway) effectOf(r coordinator.PastUndo) *effect {
	e := &effect{Action: r.Action, Tool: r.Capability, Class: contract.Irreversible,
		known: stateDone, past: pastPrint(r.Capability, r.Input)}
	if r.Outcome != api.OutcomeCompleted {
		e.known = stateInDoubt
	}
	if r.Staged {
		e.known = stateStaged
	}
	e.State = e.known
	for _, s := range g.config.Servers {
		for _, name := range sortedKeys(s.first) {
			if s.Capability(name) == r.Capability {
				e.Tool = g.shown(s, name)
			}
		}
		for _, name := range sortedKeys(s.pack.Tools) {
			tool := s.pack.Tools[name]
			if tool.capability(s, name) == r.Capability {
				e.Tool, e.Class, e.Fidelity = g.shown(s, name), tool.Class, tool.Fidelity
				e.contract = &tool
			}
		}
	}
	return e
}

// pastPrint is the print of a call of an earlier process: of its capability and its input.
func pastPrint(capability string, input []byte) string {
	return capability + " " + hex.EncodeToString(input)
}

// report is what the gateway's own tools answer.
type report struct {
	Plan    string `json:"plan"`
	State   string `json:"state"`
	Undone  []told `json:"undone,omitempty"`
	Stands  []told `json:"stands,omitempty"`
	Can     []told `json:"can_be_undone,omitempty"`
	Message string `json:"message,omitempty"`

	refused bool // nothing was done of what was asked
}

// told is an effect, and why it is still there, how it can be undone, or who has undone it.
type told struct {
	effect
	How string `json:"how,omitempty"`
}

// report says of some effects of a plan, latest first, what is undone, what is not and why, and
// what an undo can undo.
func (t *tracked) report(past coordinator.Past, of func(*effect) bool) report {
	out := report{Plan: past.Plan, State: past.State}
	if past.State != ledger.StateOpen {
		out.Message = ended(past)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, e := range slices.Backward(t.effects) {
		switch {
		case !of(e):
		case !e.there():
			out.Undone = append(out.Undone, told{*e, e.why})
		case past.State == ledger.StateOpen && e.undoable() && e.State != stateUndoing &&
			(e.Class != contract.Irreversible || e.State == stateStaged):
			out.Can = append(out.Can, told{*e, t.can(i)})
		default:
			out.Stands = append(out.Stands, told{*e, e.whyThere(past)})
		}
	}
	return out
}

// ended says what a plan that is not open is, and why.
func ended(past coordinator.Past) string {
	text := "it is " + past.State + said(": ", past.Reason)
	if past.UndoneAs != "" {
		text += "; plan " + past.UndoneAs + " undoes it"
	}
	return text
}

// whyThere says why an effect is still there.
func (e *effect) whyThere(past coordinator.Past) string {
	switch {
	case e.State == stateStaged:
		return "it is not made: it is staged, and its plan is " + past.State
	case e.State == stateMaking:
		return "it is being made, as its plan is committed: plan " + past.Plan + deliverySuffix +
			" does that, and nothing says yet that it was"
	case e.State == stateOwner && e.known == stateStaged:
		return "it needs the plan's owner" + said(": ", e.why) +
			" (sagenbaum quarantine show " + past.Plan + deliverySuffix + " " + e.Action + ")"
	case e.State == stateOwner:
		return "its undo needs the plan's owner" + said(": ", e.why) + " (sagenbaum quarantine show " +
			past.Plan + " " + e.Action + ")"
	case e.State == stateStays:
		return e.why
	case e.State == stateUndoing && past.State == ledger.StateQuarantined:
		return "its undo is held until the plan's owner has answered for another one"
	case e.State == stateUndoing:
		return "it is being undone"
	case e.Class == contract.Irreversible:
		return "nothing undoes it"
	case past.State == ledger.StateQuarantined:
		return "it was not to be undone; nothing more is done before the plan's owner has answered"
	}
	return "its plan is " + past.State + said(": ", past.Reason)
}

// can says how effect i can be undone. Called with mu held.
func (t *tracked) can(i int) string {
	e := t.effects[i]
	how := cmp.Or(string(e.Fidelity), "as its contract says")
	if e.lacks != "" {
		how = "not exact: its undo reads " + e.lacks
	}
	if e.State == stateStaged {
		how = "it is not made yet: an undo drops it, and a commit of the plan has it made"
	}
	if e.State == stateInDoubt {
		how = "no one knows whether it has happened" + said("; ", e.inDoubt())
	}
	if e.mark != "" {
		return how
	}
	together := "together with what was done before it"
	if count := t.joint(i); count > 0 {
		together += fmt.Sprintf(": undo_last with count %d or more", count)
	} else {
		together += ": plan_fail"
	}
	if e.State == stateInDoubt || e.State == stateStaged {
		return how + ", " + together
	}
	return together
}

// joint is with how many of the last effects one without a savepoint of its own can be undone; 0:
// only with all. Called with mu held.
func (t *tracked) joint(i int) (count int) {
	for n, e := range slices.Backward(t.effects) {
		if e.undoable() {
			count++
			if n <= i && e.mark != "" {
				return count
			}
		}
	}
	return 0
}

// budget bounds how often a connection undoes: an agent may undo and do again for ever. It is
// guarded by the plans.
type budget struct{ undos []time.Time }

// waits is how long there is no undo left; 0: there is one.
func (b *budget) waits(now time.Time) time.Duration {
	b.undos = slices.DeleteFunc(b.undos, func(t time.Time) bool { return now.Sub(t) >= undoSpan })
	if len(b.undos) < undosMax {
		return 0
	}
	return b.undos[len(b.undos)-undosMax].Add(undoSpan).Sub(now)
}

// budgetOf is that of a connection; of the plan, where the client has none, or names the plan of
// another one.
func (p *plans) budgetOf(session *sdk.ServerSession, t *tracked) *budget {
	if b := p.budgets[session]; b != nil || t == nil {
		return b
	}
	return &t.budget
}

// waits is how long a connection has to wait before it begins a plan.
func (p *plans) waits(session *sdk.ServerSession, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.budgetOf(session, nil); b != nil {
		return b.waits(now)
	}
	return 0
}

// spend takes an undo of a part of a plan; wait: none is left, but after so long there is.
func (p *plans) spend(session *sdk.ServerSession, t *tracked, now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.budgetOf(session, t)
	if wait = b.waits(now); wait == 0 {
		b.undos = append(b.undos, now)
	}
	return wait
}

// overdraw takes the undo of a plan, which is never refused: the next plan waits.
func (p *plans) overdraw(session *sdk.ServerSession, t *tracked, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.budgetOf(session, t)
	b.undos = append(b.undos, now)
}

// overdrawn says that a client has undone too often.
func overdrawn(wait time.Duration, next string) error {
	return ledger.Refuse("plan", fmt.Sprintf("this client has undone %d times within %v",
		undosMax, undoSpan), fmt.Sprintf("another way than undoing and doing again, or %s in %d s", next,
		int(wait.Seconds())+1))
}

// A session is told once what another one has done to its plan: its agent does not know otherwise
// that what it did is gone, or stays for good. What other processes do the coordinator tells.

// news is what a session has not been told yet of its plan.
type news struct {
	of    *tracked
	parts []string // that were undone while it went on
	ended bool
}

// partsOf says what a session has not been told of a plan that goes on; nil: nothing.
func (n *news) partsOf(t *tracked) error {
	if n == nil || n.ended || n.of != t {
		return nil
	}
	return fmt.Errorf("%w: %s", coordinator.ErrPartUndone, strings.Join(n.parts, "; "))
}

// endedBy notes, for the session whose plan it was, that another has ended it. Called with mu held.
func (p *plans) endedBy(by, holder *sdk.ServerSession, t *tracked) {
	if holder != by {
		p.news[holder] = &news{of: t, ended: true}
	}
}

// undoneBy notes, for the session whose plan it is, that another has undone a part of it.
func (p *plans) undoneBy(by *sdk.ServerSession, t *tracked, part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for holder, current := range p.current {
		if current != t || holder == by {
			continue
		}
		if n := p.news[holder]; n == nil || n.of != t {
			p.news[holder] = &news{of: t}
		}
		p.news[holder].parts = append(p.news[holder].parts, part)
	}
}

// heard notes, for the session whose plan it is, what another one has heard of a part that was
// undone, which is said once. err: of a call under the plan.
func (p *plans) heard(by *sdk.ServerSession, t *tracked, err error) {
	if part := new(coordinator.PartUndone); errors.As(err, &part) {
		_, text, _ := strings.Cut(err.Error(), coordinator.ErrPartUndone.Error()+": ")
		p.undoneBy(by, t, text)
	}
}

// take takes what a session has not been told of a plan; of nil: of one that has ended.
func (p *plans) take(session *sdk.ServerSession, of *tracked) *news {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.news[session]
	if n == nil || of != nil && n.of != of || of == nil && !n.ended {
		return nil
	}
	delete(p.news, session)
	return n
}

// untold says, once, what others have done to a plan of this session; of nil: another session to
// the one that has ended. Errors: coordinator.ErrUnwound and the like, nil: nothing.
func untold(ctx context.Context, g *Gateway, session *sdk.ServerSession, of *tracked) error {
	n := g.plans.take(session, of)
	var heard error
	if of != nil {
		heard = g.plans.hear(ctx, session, of)
	}
	switch {
	case n == nil:
		return heard
	case !n.ended:
		return errors.Join(heard, n.partsOf(of))
	}
	over := n.of.ended()
	past, err := g.look(ctx, n.of)
	switch {
	case err != nil || past.State == ledger.StateOpen: // its owner has answered since
		return fmt.Errorf("plan %s takes no more: %w", n.of.plan.ID(), over)
	case past.State == ledger.StateCommitted || past.State == ledger.StateCommitting:
		return fmt.Errorf("plan %s takes no more: %w", n.of.plan.ID(), errCommitted)
	case past.State == ledger.StateUnwinding:
		return fmt.Errorf("plan %s takes no more: %w: %s", n.of.plan.ID(), coordinator.ErrUnwinding,
			ended(past))
	}
	return fmt.Errorf("plan %s takes no more: %w: %s", n.of.plan.ID(), coordinator.ErrUnwound,
		ended(past))
}

// explained says of a plan that takes nothing more that it is committed, or undone by now, where it
// is: who calls a tool under it does not know otherwise that what it did stays, or is gone.
func (g *Gateway) explained(ctx context.Context, t *tracked, by *sdk.ServerSession,
	err error) error {
	switch {
	case errors.Is(err, coordinator.ErrPartUndone): // its savepoints are gone, too
		g.plans.heard(by, t, err)
		_, _ = g.look(ctx, t) // without an answer the next undo finds out
		return err
	case !undoneInstead(err) || !t.overs(err):
		return err
	}
	past, failed := g.look(ctx, t)
	switch {
	case failed != nil:
	case past.State == ledger.StateCommitted:
		return fmt.Errorf("plan %s takes no more: %w", t.plan.ID(), errCommitted)
	case past.State == ledger.StateCompensated: // since it was heard that it is being undone
		return fmt.Errorf("plan %s takes no more: %w: %s", t.plan.ID(), coordinator.ErrUnwound,
			ended(past))
	}
	return err
}
