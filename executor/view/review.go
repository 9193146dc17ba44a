package view

import (
	"encoding/hex"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// reviewInputMax bounds the input of an action in a list.
const reviewInputMax = 8 << 10

// Reviews returns one batch of the actions that wait for a verdict, the one that has waited longest
// first. The error is a *ledger.Refused.
func (r *Reader) Reviews(q api.ReviewQuery, nowNs int64) (answer api.ReviewAnswer, err error) {
	if q.Plan != "" || q.Action != "" {
		return r.review(q, nowNs)
	}
	cursor, err := hex.DecodeString(q.After)
	if err != nil || len(cursor) > findBytesMax {
		return answer, ledger.Refuse("after", fmt.Sprintf("%.80q", q.After),
			"the next of the page before")
	}
	prefix := rows.Reviews.Prefix()
	from := append([]byte{}, prefix...)
	if len(cursor) > 0 {
		from = append(append(from, cursor...), 0)
	}
	list, looked := newBatch[api.Review](q.Limit), 0
	for k := range r.tx.Scan(from, rows.After(prefix)) {
		place := hex.EncodeToString(k[len(prefix):])
		if looked++; looked > FindScanMax {
			list.end()
			answer.Paused = true
			break
		}
		id := rows.ParseWaiting(k)
		p := r.core.Plan(id.Plan)
		a := p.Action(id.N)
		if !selects(q, p, a) {
			list.pass(place)
		} else if !list.add(place, r.reviewOf(p, a)) {
			break
		}
	}
	answer.Reviews, answer.Next = append([]api.Review{}, list.list...), list.next
	return answer, nil
}

// selects reports whether an action is one that a question is about.
func selects(q api.ReviewQuery, p *executor.Plan, a *executor.Action) bool {
	return (q.Agent == "" || p.Row.Agent == q.Agent) &&
		(q.Capability == "" || a.Fixed.Forward.GetCapability() == q.Capability) &&
		(q.Label == "" || p.Row.Declared.Label == q.Label)
}

// reviewOf is an action that waits for a verdict.
func (r *Reader) reviewOf(p *executor.Plan, a *executor.Action) api.Review {
	f := a.Fixed.Forward
	deadline, _ := p.Deadline()
	v := api.Review{Plan: p.ID, Action: a.Fixed.Id, Number: int(a.N), Capability: f.GetCapability(),
		Class: className(f.GetClass()), Agent: p.Row.Agent, Label: p.Row.Declared.Label,
		Owner: p.Owner(), SinceNs: a.Fixed.AtNs, DeadlineNs: deadline,
		Input: r.payload(rows.Action{Plan: p.ID, N: a.N}).Input}
	if len(v.Input) > reviewInputMax {
		v.Input, v.Omitted = nil, true
	}
	return v
}

// review is one action, if it waits for a verdict, with what a block would undo of it, by the code
// that undoes. What the undos of other actions take is left out: it is made of their inputs and
// outputs, and who judges one action does not read those.
func (r *Reader) review(q api.ReviewQuery, nowNs int64) (answer api.ReviewAnswer, err error) {
	answer.Reviews = []api.Review{}
	p := r.core.Plan(q.Plan)
	if p == nil {
		return answer, nil
	}
	a, err := which(p, q.Action)
	if a == nil {
		return answer, err
	}
	if answer.Action = a.Fixed.Id; !a.WaitsForVerdict() {
		return answer, nil
	}
	v := r.reviewOf(p, a)
	v.Input, v.Omitted = r.payload(rows.Action{Plan: p.ID, N: a.N}).Input, false
	block, err := r.Preview(api.PreviewQuery{Plan: p.ID, Action: api.ByID(a.Fixed.Id)}, nowNs)
	for i, step := range block.Steps {
		if step.Plan != p.ID || step.Number != int(a.N) {
			block.Steps[i].Arguments = nil
		}
	}
	v.Block = &block
	answer.Reviews = append(answer.Reviews, v)
	return answer, err
}
