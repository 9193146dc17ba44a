package view

import (
	"encoding/hex"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// reviewInputMax bounds the input of an action in a list.
const reviewInputMax = 8 << 10

// Reviews returns one batch of the actions that wait for a verdict, by plan, the plan that was
// opened last first. The error is a *ledger.Refused.
func (r *Reader) Reviews(q api.ReviewQuery) (answer api.ReviewAnswer, err error) {
	cursor, err := hex.DecodeString(q.After)
	if err != nil || len(cursor) > findBytesMax {
		return answer, ledger.Refuse("after", fmt.Sprintf("%.80q", q.After),
			"the next of the page before")
	}
	prefix := rows.ListPrefix(rows.ListState, rows.PhaseValue(rowspb.Phase_PHASE_OPEN))
	from := append([]byte{}, prefix...)
	if len(cursor) > 0 {
		from = append(append(from, cursor...), 0)
	}
	list, looked := newBatch[api.Review](q.Limit), 0
	for k := range r.tx.Scan(from, rows.After(prefix)) {
		place := k[len(prefix):]
		if len(place) <= rows.ListedPlace {
			panic(&rows.StoreError{Op: "scan", Err: rows.ErrMissing})
		}
		if looked++; looked > FindScanMax {
			list.end()
			answer.Paused = true
			break
		}
		found := r.reviewsOf(string(place[rows.ListedPlace:]))
		if len(found) == 0 {
			list.pass(hex.EncodeToString(place))
		} else if !list.add(hex.EncodeToString(place), found...) {
			break
		}
	}
	answer.Reviews, answer.Next = append([]api.Review{}, list.list...), list.next
	return answer, nil
}

// reviewsOf are the actions of a plan that wait for a verdict.
func (r *Reader) reviewsOf(id string) (found []api.Review) {
	p := r.core.Plan(id)
	for a := range p.Actions() {
		f := a.Fixed.Forward
		if !f.GetReview() || a.Verdict() != "" ||
			a.Row.Outcome != rowspb.Outcome_OUTCOME_UNKNOWN {
			continue
		}
		v := api.Review{Plan: id, Action: a.Fixed.Id, Number: int(a.N), Capability: f.GetCapability(),
			Class: className(f.GetClass()), Agent: p.Row.Agent, Label: p.Row.Declared.Label,
			Owner: p.Owner(), SinceNs: a.Fixed.AtNs, DeadlineNs: p.Row.Declared.DeadlineNs,
			Input: r.payload(rows.Action{Plan: id, N: a.N}).Input}
		if len(v.Input) > reviewInputMax {
			v.Input, v.Omitted = nil, true
		}
		found = append(found, v)
	}
	return found
}
