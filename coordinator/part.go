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
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
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
	Number uint32 // of the parts of the plan, from 1; 0: an executor of before does not count it
	Action string // and what came after it; without Savepoint, too: what it was is no longer kept
	Reason string

	Savepoint string // all that came after it, at an operator's word
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
	backs  []UndonePart    // nor of these, which an executor of before does not count
}

// note takes word of a part; first: for the first time.
func (u *undoneParts) note(part UndonePart) (first bool) {
	at, found := slices.BinarySearchFunc(u.untold, part.Number,
		func(p UndonePart, n uint32) int { return cmp.Compare(p.Number, n) })
	first = part.Number > u.known && !u.told[part.Number] && !found
	if first {
		u.untold = slices.Insert(u.untold, at, part)
	}
	return first
}

// notePart takes word of a part that was undone before the record at a sequence; 0: of all that is
// known. It drops the savepoints in it, as the ledger does. Called with mu held.
func (p *Plan) notePart(part UndonePart, at uint64) {
	from := p.actions[part.Action]
	switch first := p.parts.note(part); {
	case first && part.Savepoint != "":
		p.dropAfter(part.Savepoint, at)
		return
	case !first || from == nil:
		return
	}
	p.gone(p.reached(part.Action), at)
	p.savepoints = slices.DeleteFunc(p.savepoints, func(s *savepoint) bool {
		return s.at >= from.number && s.bundle.before(at)
	})
}

// tell hands out what no call has told of, or nil. A part of which nothing is kept ends the gap
// before it.
func (u *undoneParts) tell() (parts []UndonePart) {
	counted := u.untold
	parts = slices.Concat(counted, u.backs)
	u.untold, u.backs = nil, nil
	for _, part := range counted {
		if part.Action == "" && part.Savepoint == "" {
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
		p.notePart(undonePart(part), part.At)
	}
}

func undonePart(of api.UndonePart) UndonePart {
	return UndonePart{Number: of.Number, Action: of.Action, Savepoint: of.Savepoint, Reason: of.Reason}
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

// TellAgain has the next call that adds to the plan, or commits it, tell of every part that was
// undone, as a PartUndone: no one knows whether an earlier process has, nor whether its agent has
// heard it. Errors: as of Outcome.
func (p *Plan) TellAgain(ctx context.Context) error {
	known := p.knownParts()
	if known == 0 {
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
		if part.Number > known { // since the history was read
			p.notePart(undonePart(part), part.At)
		} else {
			p.parts.note(undonePart(part))
		}
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
	p.notePart(UndonePart{Number: n.Parts, Action: n.FromAction, Reason: n.Reason}, n.At)
	if p.rewinding == nil {
		p.unwound, p.partly = nil, false
	}
	p.change()
}

// lookAgain asks an executor whether a plan of which a part is undone goes on by now: the
// notice of it may be lost.
func (p *Plan) lookAgain(ctx context.Context) {
	p.mu.Lock()
	known := p.parts.known
	due := p.partly && p.rewinding == nil && p.c.bus != nil && time.Since(p.looked) > askDelayMax
	if due {
		p.looked = time.Now()
	}
	p.mu.Unlock()
	if !due {
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

// Past is what is recorded of a plan of this agent, open or ended.
type Past struct {
	Plan     string
	State    string // as of End, or open, committing or unwinding
	Reason   string
	UndoneAs string // the plan that undoes this committed one

	Actions    []PastUndo      // in the order of their registration
	Savepoints []PastSavepoint // that an unwind can go back to, in order
}

// PastUndo is an action of it, and what has become of its undo.
type PastUndo struct {
	Recorded        // without what it has returned
	DutyOf   string // it is no call: the undo of this action is owed once more
	Staged   bool   // it is made once the plan is committed

	// Undo is held, retired (its plan is committed), owed, ahead, ready, dispatched, waiting,
	// exhausted or settling (under way), compensated, skipped, quarantined or resolved. Of a staged
	// act: staged, delivering, delivered, dropped, quarantined or resolved. Empty: the host has an
	// earlier version, which says no more than Undone.
	Undo string
	Note string // why it is skipped or quarantined

	Resolution     string // its owner's answer: done, or that it stays: lost, accepted
	ResolvedBy     string
	ResolvedReason string
}

// undoOf is the undo of an action, of a staged one that is not made any more: dropped.
func undoOf(past api.PastAction) string {
	if past.ToDrop {
		return undoDropped
	}
	return past.Undo
}

// PastSavepoint is a savepoint of it.
type PastSavepoint struct {
	Name   string
	Before int // how many of Actions are before it
}

// Past returns what is recorded of a plan of this agent, which need not be open, and stays with the
// process that writes it. All up to a sequence is in it, as that of Plan.Stored. It waits for an
// executor until ctx ends. Errors: *Refused (no such plan, or another agent's), *HandedOver, ctx's.
func (c *Coordinator) Past(ctx context.Context, plan string, sequence uint64) (Past, error) {
	history, err := c.history(ctx, api.HistoryQuery{Plan: plan, Sequence: sequence}, true)
	if err == nil {
		_, err = c.opened(plan, history)
	}
	if err != nil {
		return Past{}, fmt.Errorf("cannot say what became of plan %q: %w", plan, err)
	}
	past := Past{Plan: plan, State: history.State, Reason: history.Reason, UndoneAs: history.UndoneAs}
	before := map[uint32]int{} // how many actions of Past are among the first so many of the ledger
	for _, a := range history.Actions {
		before[a.Number] = len(past.Actions)
		if a.Child != "" {
			continue
		}
		registered := new(pb.ForwardRegistered)
		if err := registered.UnmarshalVT(a.Forward); err != nil {
			return Past{}, fmt.Errorf("cannot read what is recorded of action %q: %v", a.Action, err)
		}
		past.Actions = append(past.Actions, PastUndo{Recorded: Recorded{Action: a.Action,
			Capability: registered.Capability, Outcome: a.Outcome, Code: a.Code, Message: a.Message,
			Input: a.Input, Undone: a.Undone}, DutyOf: a.DutyOf, Staged: registered.Deliver != nil,
			Undo: undoOf(a), Note: a.Note,
			Resolution: a.Resolution, ResolvedBy: a.ResolvedBy, ResolvedReason: a.ResolvedReason})
		before[a.Number] = len(past.Actions)
	}
	for _, s := range history.Savepoints {
		past.Savepoints = append(past.Savepoints, PastSavepoint{Name: s.Name, Before: before[s.Actions]})
	}
	return past, nil
}

// partOf says, once, what was undone of the plan, as an executor tells it.
func (p *Plan) partOf(answer api.OutcomeAnswer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteParts(answer)
	return p.astray()
}
