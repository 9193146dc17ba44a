package ask

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// outcome is a question about a plan's outcome that the loop answers from the state it folds,
// so that an end is told before it is written.
type outcome struct {
	query  api.OutcomeQuery
	answer chan *toldOutcome // buffered 1; nil: there is no loop any more
}

// toldOutcome is the answer to such a question, or why there is none.
type toldOutcome struct {
	answer api.OutcomeAnswer
	err    error
}

// outcomes are those that wait.
type outcomes struct {
	fresh []*outcome            // not looked at yet
	of    map[string][]*outcome // that wait for the end of a plan
	count int
}

// outcomesPerTurn bounds those that one turn answers because their plans have ended, and the new
// ones that it looks at.
const outcomesPerTurn = 256

// add takes a question.
func (o *outcomes) add(q *outcome) {
	o.fresh = append(o.fresh, q)
	o.count++
}

// drop forgets a question that has given up.
func (o *outcomes) drop(q *outcome) {
	is := func(x *outcome) bool { return x == q }
	before := len(o.fresh) + len(o.of[q.query.Plan])
	o.fresh = slices.DeleteFunc(o.fresh, is)
	o.put(q.query.Plan, slices.DeleteFunc(o.of[q.query.Plan], is))
	if before > len(o.fresh)+len(o.of[q.query.Plan]) {
		o.count--
	}
}

func (o *outcomes) put(plan string, list []*outcome) {
	if len(list) == 0 {
		delete(o.of, plan)
		return
	}
	o.of[plan] = list
}

// end lets all go.
func (o *outcomes) end() {
	for _, q := range o.fresh {
		q.answer <- nil
	}
	for _, list := range o.of {
		for _, q := range list {
			q.answer <- nil
		}
	}
	*o = outcomes{of: map[string][]*outcome{}}
}

// AnswerOutcomes answers questions about the outcomes of plans from the state that the loop
// has folded: those that are new, and those whose plan has ended, as the notices of a turn
// say. seen shows the state.
func (b *Board) AnswerOutcomes(notices []executor.Notice, seen func() *view.Reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := &b.outcomes
	if o.count == 0 {
		return
	}
	reply := func(q *outcome) bool {
		answer, err := outcomeOf(seen(), q.query)
		if q.query.Ended && err == nil && !ledger.HasEnded(answer.State) {
			return false
		}
		q.answer <- &toldOutcome{answer, err}
		o.count--
		return true
	}
	room := outcomesPerTurn
	for _, n := range notices {
		list := o.of[n.Plan]
		if len(list) == 0 || !ledger.HasEnded(n.State) {
			continue
		}
		now := list[:min(len(list), room)]
		room -= len(now)
		o.fresh = append(o.fresh, list[len(now):]...) // the next turns look at them
		o.put(n.Plan, slices.DeleteFunc(now, reply))
	}
	looked, kept := 0, o.fresh[:0]
	for _, q := range o.fresh {
		if q.query.Sequence > b.folded || looked == outcomesPerTurn {
			kept = append(kept, q)
			continue
		}
		looked++
		if !reply(q) {
			o.of[q.query.Plan] = append(o.of[q.query.Plan], q)
		}
	}
	clear(o.fresh[len(kept):])
	o.fresh = kept
	if looked == outcomesPerTurn {
		b.wake()
	}
}

// ask has the loop answer, within limit. asked is false where it did not: no session goes on,
// or the limit is over.
func (b *Board) ask(query api.OutcomeQuery, limit time.Duration) (told toldOutcome, asked bool) {
	q := &outcome{query: query, answer: make(chan *toldOutcome, 1)}
	b.mu.Lock()
	if !b.attached {
		b.mu.Unlock()
		return told, false
	}
	b.outcomes.add(q)
	if query.Sequence <= b.folded {
		b.wake()
	}
	b.mu.Unlock()
	got, _ := within(b, q.answer, limit)
	if got != nil {
		return *got, true
	}
	b.mu.Lock()
	b.outcomes.drop(q)
	b.mu.Unlock()
	return told, false
}

func (d *Desk) outcome(q api.OutcomeQuery) (answer api.OutcomeAnswer, err error) {
	limit := min(time.Duration(q.WaitMs)*time.Millisecond, waitMax)
	if limit <= 0 {
		limit = sequenceWait
	}
	late := time.Now().Add(limit)
	if q.Digest != "" {
		return d.compared(q, limit)
	}
	d.question.waits()
	if told, asked := d.Board.ask(q, limit); asked {
		return told.answer, told.err
	}
	// No session goes on, or the plan has not ended in time: as it is written.
	if err := d.unfolded(q.Sequence, max(time.Until(late), 0)); err != nil {
		return answer, err
	}
	d.look(func(r *view.Reader) { answer, err = outcomeOf(r, q) })
	return answer, err
}

// compared says whether the message at a sequence is the one that an agent was told is there. What
// the stream has no more, as after a repair, is not told.
func (d *Desk) compared(q api.OutcomeQuery, limit time.Duration) (answer api.OutcomeAnswer,
	err error) {
	if err := d.unfolded(q.Sequence, limit); err != nil {
		return answer, &api.Problem{Text: err.Error(), Behind: true}
	}
	records := d.Board.Records()
	if records == nil {
		return answer, &api.Problem{Text: "the ledger is not open yet", Again: true}
	}
	ctx, cancel := context.WithTimeout(context.Background(), storyTime)
	defer cancel()
	m, err := records.Get(ctx, q.Sequence)
	switch {
	case errors.As(err, new(*ledger.Halted)):
		return answer, nil
	case err != nil:
		return answer, &api.Problem{Again: true,
			Text: fmt.Sprintf("cannot read sequence %d: %v", q.Sequence, err)}
	}
	sum := sha256.Sum256(m.Data)
	answer.Other = hex.EncodeToString(sum[:]) != q.Digest
	return answer, nil
}

// outcomeOf is what became of a plan; the error says that there is none.
func outcomeOf(r *view.Reader, q api.OutcomeQuery) (answer api.OutcomeAnswer, err error) {
	answer.Applied = r.Applied()
	for _, refused := range r.RefusedAt(q.Sequence) {
		if refused.Plan == q.Plan {
			answer.Refused = append(answer.Refused, refused.Reason)
		}
	}
	var ok bool
	if answer.State, answer.Reason, answer.Outstanding, ok = r.Outcome(q.Plan); !ok {
		return answer, errors.New(r.NoPlan(q.Plan))
	}
	answer.Writer, answer.WriterAt = r.Writer(q.Plan), r.WriterAt(q.Plan)
	answer.Agent, answer.Handed = r.HandedTo(q.Plan)
	answer.DueNs, answer.DueSet, _ = r.Deadline(q.Plan)
	answer.Parts, answer.FromAction, answer.PartReason = r.Parts(q.Plan)
	answer.Undone = r.PartsAfter(q.Plan, q.Parts)
	answer.Turned, answer.Whole = r.Turned(q.Plan), r.Whole(q.Plan)
	answer.Doubts, answer.UndoneAs = r.Doubts(q.Plan), r.UndoneAs(q.Plan)
	answer.Delivery = r.Delivery(q.Plan)
	switch {
	case !q.Doubts:
	case answer.State == ledger.StateCommitted: // a child, for its root
		_, answer.Unknown = r.OpenDoubts(q.Plan)
	case answer.State == ledger.StateOpen:
		answer.Doubts, answer.Unknown = r.OpenDoubts(q.Plan)
		answer.Settled = len(answer.Doubts) == 0
	case answer.State == ledger.StateCommitting && allOwners(answer.Doubts):
		answer.Unknown, answer.Settled = answer.Doubts, true
	}
	if q.Action != "" {
		answer.Outcome, answer.Undo, answer.UndoneIn = r.Undo(q.Plan, q.Action)
		answer.Verdict, answer.VerdictReason, answer.VerdictBy = r.Verdict(q.Plan, q.Action)
	}
	return answer, nil
}

// allOwners reports whether a commit waits for nothing but its owner's word.
func allOwners(doubts []api.Doubt) bool {
	return len(doubts) > 0 &&
		!slices.ContainsFunc(doubts, func(d api.Doubt) bool { return !d.Owner })
}
