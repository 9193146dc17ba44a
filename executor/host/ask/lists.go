package ask

import (
	"github.com/sagenbaum/sagenbaum/executor/view"
)

// Lists that the state alone gives, from one batch to the next. An empty list is [] in JSON.

func list[T any](items []T) []T { return append([]T{}, items...) }

func plans(r *view.Reader, f view.Filter) any {
	answer, err := r.List(f)
	if err != nil {
		answer = view.PlansAnswer{Plans: []view.Plan{}, Error: err.Error()}
	}
	return answer
}

func undos(r *view.Reader, q view.UndoQuery) any {
	items, next, err := r.Undos(q)
	if err != nil {
		return view.UndosAnswer{Undos: []view.Undo{}, Error: err.Error()}
	}
	return view.UndosAnswer{Undos: list(items), Next: next}
}

func contracts(r *view.Reader, q view.ContractQuery) any {
	items, next := r.Contracts(q)
	return view.ContractsAnswer{Contracts: list(items), Next: next}
}

func quarantined(r *view.Reader, q view.ListQuery) any {
	items, next := r.Quarantined(q)
	return view.PlansAnswer{Plans: list(items), Next: next}
}

func refused(r *view.Reader, q view.ListQuery) any {
	return view.RefusedAnswer{Refused: list(r.Refusals(q.AfterSequence, q.Limit))}
}

func facts(r *view.Reader, q view.FactsQuery) any {
	items, next, err := r.Facts(q)
	if err != nil {
		return view.FactsAnswer{Facts: []view.Fact{}, Error: err.Error()}
	}
	return view.FactsAnswer{Facts: list(items), Next: next}
}

func find(r *view.Reader, q view.FindQuery) any {
	answer, err := r.Find(q)
	if err != nil {
		answer = view.FindAnswer{Error: err.Error()}
	}
	if answer.Plans == nil {
		answer.Plans = []view.Plan{}
	}
	return answer
}

func capabilities(r *view.Reader, _ struct{}) any { return r.Capabilities() }

func reviews(r *view.Reader, q view.ReviewQuery) any {
	answer, err := r.Reviews(q)
	if err != nil {
		answer = view.ReviewAnswer{Error: err.Error()}
	}
	return answer
}
