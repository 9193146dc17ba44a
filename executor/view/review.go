package view

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// ReviewQuery asks for the actions that wait for a verdict (review.ls).
type ReviewQuery struct {
	After string `json:"after,omitempty"` // Next of the batch before
	Limit int    `json:"limit,omitempty"` // 1..1000, default 100
}

// ReviewAnswer answers review.ls. The last plan of a batch is whole in it.
type ReviewAnswer struct {
	Reviews []Review `json:"reviews"`
	Next    string   `json:"next,omitempty"` // goes into After; empty: no more
	// Paused is set where the batch ends because it has looked at enough plans, not
	// because it is full.
	Paused bool   `json:"paused,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Review is an action that waits for a supervisor's verdict before its forward runs.
type Review struct {
	Plan       string          `json:"plan"`
	Action     string          `json:"action"`
	Number     int             `json:"number"` // of the action in its plan
	Capability string          `json:"capability"`
	Class      string          `json:"class"` // compensable, irreversible, effectless
	Agent      string          `json:"agent"`
	Label      string          `json:"label,omitempty"` // of the plan
	Owner      string          `json:"owner,omitempty"`
	SinceNs    int64           `json:"since_ns"`              // when it was registered, unix ns
	DeadlineNs int64           `json:"deadline_ns,omitempty"` // of the plan
	Input      json.RawMessage `json:"input,omitempty"`       // sealed values stay sealed
	Omitted    bool            `json:"omitted,omitempty"`     // Input is left out: it is too large
}

// reviewInputMax bounds the input of an action in a list.
const reviewInputMax = 8 << 10

// Reviews returns one batch of the actions that wait for a verdict, by plan, the plan that was
// opened last first. The error is a *ledger.Refused.
func (r *Reader) Reviews(q ReviewQuery) (answer ReviewAnswer, err error) {
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
	list, looked := newBatch[Review](q.Limit), 0
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
	answer.Reviews, answer.Next = append([]Review{}, list.list...), list.next
	return answer, nil
}

// reviewsOf are the actions of a plan that wait for a verdict.
func (r *Reader) reviewsOf(id string) (found []Review) {
	p := r.core.Plan(id)
	for a := range p.Actions() {
		f := a.Fixed.Forward
		if !f.GetReview() || a.Verdict() != "" ||
			a.Row.Outcome != rowspb.Outcome_OUTCOME_UNKNOWN {
			continue
		}
		v := Review{Plan: id, Action: a.Fixed.Id, Number: int(a.N), Capability: f.GetCapability(),
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
