package coordinator

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// TestAPreviewKnowsWhatIsRecorded: it is asked for what is stored by then.
func TestAPreviewKnowsWhatIsRecorded(t *testing.T) {
	in(t, func(t *testing.T) {
		e, asked := &executor{}, []api.PreviewQuery{}
		c := start(t, memory(), e)
		p := begin(t, c, PlanSpec{})
		closes := time.Now().Add(time.Hour)
		e.serve = map[string]func([]byte) any{api.PreviewSubject(tenant, "a1"): func(body []byte) any {
			var q api.PreviewQuery
			if err := json.Unmarshal(body, &q); err != nil {
				return err
			}
			asked = append(asked, q)
			return api.PreviewAnswer{Preview: api.Preview{Plan: q.Plan, End: "open", Undoable: &api.Undoable{
				Can: true, ClosesNs: closes.UnixNano(), Class: "compensable", Fidelity: "exact", With: []string{"b"}}}}
		}}
		if _, err := p.Preview(t.Context(), Part{}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Preview(t.Context(), Part{Savepoint: "s1"}); err != nil {
			t.Fatal(err)
		}
		u, err := p.Undoable(t.Context(), "a")
		if err != nil || !u.Can || !u.Until.Equal(closes) || u.Fidelity != "exact" || !slices.Equal(u.With, []string{"b"}) {
			t.Errorf("%+v, %v", u, err)
		}
		stored := p.Stored()
		want := []api.PreviewQuery{{Plan: p.ID(), Sequence: stored}, {Plan: p.ID(), To: "s1", Sequence: stored},
			{Plan: p.ID(), Action: "a", Sequence: stored}}
		if stored == 0 || !slices.Equal(asked, want) {
			t.Errorf("asked %+v, want %+v", asked, want)
		}
	})
}

// TestAPreviewThatNobodyAnswers, or that is refused.
func TestAPreviewThatNobodyAnswers(t *testing.T) {
	in(t, func(t *testing.T) {
		e := &executor{}
		p := begin(t, start(t, memory(), e), PlanSpec{})
		_, err := p.Preview(t.Context(), Part{})
		wantIs(t, err, ErrUnconfirmed)
		var answer any = api.Problem{Text: "sequence 7 is not folded yet", Behind: true}
		e.serve = map[string]func([]byte) any{api.PreviewSubject(tenant, "a1"): func([]byte) any { return answer }}
		_, err = p.Preview(t.Context(), Part{})
		wantIs(t, err, ErrUnconfirmed)
		answer = api.Problem{Text: "agent a1 has no plan p"}
		_, err = p.Preview(t.Context(), Part{})
		wantRefused(t, err, "plan")
		answer = api.PreviewAnswer{Preview: api.Preview{Plan: p.ID(), Refused: "plan p has no action z"}}
		_, err = p.Undoable(t.Context(), "z")
		wantRefused(t, err, "action.id")
		_, err = p.Undoable(t.Context(), "")
		wantRefused(t, err, "action.id")
		_, err = p.Preview(t.Context(), Part{Savepoint: "s1", Action: "a"})
		wantRefused(t, err, "part.action")
		_, err = begin(t, start(t, memory(), nil), PlanSpec{}).Preview(t.Context(), Part{})
		wantRefused(t, err, "config.conn")
	})
}
