package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// PartUndone says that an action of a plan and what came after it were undone, for a
// condition, a verdict or a request, and that the plan goes on without them; or several such
// parts, where no call has said so since. The next call that adds to the plan or commits it
// returns it once; called again, it goes on. errors.Is(err, ErrPartUndone) holds.
type PartUndone struct {
	Plan   string
	Action string // of the last of Parts
	Reason string
	// of the last of Parts, where another than the agent has had the plan go back to it
	Savepoint string
	Parts     []UndonePart // all that no call has told of before, in the order of their undo
}

// UndonePart is what was undone of a plan that went on.
type UndonePart struct {
	Number uint32 // of the parts of the plan, from 1; 0: back to a savepoint
	Action string // and what came after it; empty: what it was is no longer kept
	Reason string

	Savepoint string // all that came after it
}

// Error reads "a part of the plan was undone: action b and what came after it (why)".
func (e *PartUndone) Error() string {
	parts := e.Parts
	if len(parts) == 0 {
		parts = []UndonePart{{Action: e.Action, Reason: e.Reason, Savepoint: e.Savepoint}}
	}
	var said []string
	for _, part := range parts {
		text := "action " + part.Action + " and what came after it"
		switch {
		case part.Savepoint != "":
			text = "all that came after savepoint " + part.Savepoint
		case part.Action == "":
			text = fmt.Sprintf("part %d, and all before it that was not told", part.Number)
		}
		said = append(said, text+because(part.Reason))
	}
	return fmt.Sprintf("%v: %s", ErrPartUndone, strings.Join(said, "; "))
}

// Is makes it an ErrPartUndone.
func (e *PartUndone) Is(target error) bool { return target == ErrPartUndone }

// undoneParts is what a plan knows of the parts of it that were undone. A commit counts those
// only of which a call has told, without a gap: a notice may be lost, or come late.
type undoneParts struct {
	known  uint32          // the agent knows of the first so many
	told   map[uint32]bool // and of these after them
	untold []UndonePart    // not yet of these, ascending
	backs  []UndonePart    // nor of these, which the ledger does not count
}

// note takes word of a part; news: for the first time.
func (u *undoneParts) note(part UndonePart) (news bool) {
	at, found := slices.BinarySearchFunc(u.untold, part.Number,
		func(p UndonePart, n uint32) int { return cmp.Compare(p.Number, n) })
	news = part.Number > u.known && !u.told[part.Number] && !found
	if news {
		u.untold = slices.Insert(u.untold, at, part)
	}
	return news
}

// notePart takes word of a part that was undone before the record at a sequence; 0: of all that is
// known. It drops the savepoints in it, as the ledger does. Called with mu held.
func notePart(p *Plan, part UndonePart, at uint64) {
	from := p.actions[part.Action]
	if !p.parts.note(part) || from == nil {
		return
	}
	gone(p, p.reached(part.Action), at)
	p.savepoints = slices.DeleteFunc(p.savepoints, func(s *savepoint) bool {
		return s.at >= from.number && s.bundle.before(at)
	})
}

// gone notes which actions of an earlier process were undone before the record at a sequence; 0:
// all that are known were registered before it. Called with mu held.
func gone(p *Plan, reached func(*action) bool, at uint64) {
	for _, a := range p.order {
		if a.past != nil && a.past.Outcome != api.OutcomeFailed && a.pair.before(at) && reached(a) {
			a.past.Undone = true
		}
	}
}

// tell hands out what no call has told of, or nil. A part of which nothing is kept ends the gap
// before it.
func (u *undoneParts) tell() (parts []UndonePart) {
	counted := u.untold
	parts = slices.Concat(counted, u.backs)
	u.untold, u.backs = nil, nil
	for _, part := range counted {
		if part.Action == "" {
			u.known = max(u.known, part.Number)
		}
		if u.told == nil {
			u.told = map[uint32]bool{}
		}
		u.told[part.Number] = true
	}
	for u.told[u.known+1] {
		delete(u.told, u.known+1)
		u.known++
	}
	return parts
}

// noteParts takes what an executor says of the parts that were undone. Called with mu held.
func (p *Plan) noteParts(answer api.OutcomeAnswer) {
	for _, part := range undoneAfter(answer, p.parts.known) {
		notePart(p, UndonePart{Number: part.Number, Action: part.Action, Reason: part.Reason}, part.At)
	}
}

// undoneAfter are the parts after the first so many; one without an action is of all before it that
// an executor does not keep.
func undoneAfter(answer api.OutcomeAnswer, known uint32) []api.UndonePart {
	list := answer.Undone
	if len(list) == 0 && answer.Parts > known { // it keeps the last one only
		list = []api.UndonePart{{Number: answer.Parts, Action: answer.FromAction,
			Reason: answer.PartReason}}
	}
	if len(list) > 0 && list[0].Number > known+1 {
		list = slices.Insert(list, 0, api.UndonePart{Number: list[0].Number - 1})
	}
	return list
}

// tellAgain has the next call tell of every part that was undone: no one knows whether an earlier
// process has, nor whether its agent has heard it. What they are of is known from the history.
func tellAgain(ctx context.Context, p *Plan) error {
	if p.knownParts() == 0 {
		return nil
	}
	answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: p.Stored()})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts.known = 0
	for _, part := range undoneAfter(answer, 0) {
		p.parts.note(UndonePart{Number: part.Number, Action: part.Action, Reason: part.Reason})
	}
	return nil
}

// knownParts is of how many parts, without a gap, a call has told.
func (p *Plan) knownParts() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parts.known
}

// wentOn takes a notice that the plan is open again after a part of it was undone.
func (p *Plan) wentOn(n api.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	notePart(p, UndonePart{Number: n.Parts, Action: n.FromAction, Reason: n.Reason}, n.At)
	if p.rewinding == nil {
		p.unwound, p.partly = nil, false
	}
	p.change()
}

// reached says which actions are undone in an unwind from an action on; with no action, all.
func (p *Plan) reached(from string) func(*action) bool {
	if from == "" || p.actions[from] == nil {
		return func(*action) bool { return true }
	}
	undone := map[string]bool{from: true}
	for _, a := range p.order {
		if slices.ContainsFunc(a.after, func(id string) bool { return undone[id] }) {
			undone[a.call.Action] = true
		}
	}
	return func(a *action) bool { return undone[a.call.Action] }
}

// lookAgain asks an executor whether a plan of which a part is undone goes on by now: the
// notice of it may be lost.
func (p *Plan) lookAgain(ctx context.Context) {
	p.mu.Lock()
	known := p.parts.known
	look := p.partly && p.rewinding == nil && p.c.bus != nil && time.Since(p.looked) > askDelayMax
	if look {
		p.looked = time.Now()
	}
	p.mu.Unlock()
	if !look {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.c.confirmTimeout)
	defer cancel()
	answer, err := p.ask(ctx, api.OutcomeQuery{Plan: p.id, Sequence: p.Stored(), Parts: known})
	if err != nil || answer.State != ledger.StateOpen {
		return
	}
	p.mu.Lock()
	p.noteParts(answer)
	p.mu.Unlock()
	p.wentOn(api.Notice{FromAction: answer.FromAction, Parts: answer.Parts,
		Reason: answer.PartReason})
}

// Undone returns the ids of the actions of this agent's plan that were undone in a part of it, or
// back to a savepoint, after which the plan went on: what they did is not there any more. It
// waits for an executor until ctx ends.
func (c *Coordinator) Undone(ctx context.Context, plan string) (ids []string, err error) {
	history, err := c.history(ctx, api.HistoryQuery{Plan: plan}, true)
	if err != nil {
		return nil, fmt.Errorf("cannot say what was undone of plan %q: %w", plan, err)
	}
	for _, past := range history.Actions {
		if past.Undone {
			ids = append(ids, past.Action)
		}
	}
	return ids, nil
}

// partOf says, once, what was undone of the plan, as an executor tells it.
func (p *Plan) partOf(answer api.OutcomeAnswer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteParts(answer)
	return p.astray()
}
