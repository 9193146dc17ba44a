package ask

import (
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Lists that the state alone gives, from one batch to the next. An empty list is [] in JSON.

func list[T any](items []T) []T { return append([]T{}, items...) }

func plans(r *view.Reader, f api.Filter) any {
	answer, err := r.List(f)
	if err != nil {
		answer = api.PlansAnswer{Plans: []api.Plan{}, Error: err.Error()}
	}
	return answer
}

func undos(r *view.Reader, q api.UndoQuery) any {
	items, next, err := r.Undos(q)
	if err != nil {
		return api.UndosAnswer{Undos: []api.Undo{}, Error: err.Error()}
	}
	return api.UndosAnswer{Undos: list(items), Next: next}
}

func contracts(r *view.Reader, q api.ContractQuery) any {
	items, next := r.Contracts(q)
	return api.ContractsAnswer{Contracts: list(items), Next: next}
}

func quarantined(r *view.Reader, q api.ListQuery) any {
	items, next := r.Quarantined(q)
	return api.PlansAnswer{Plans: list(items), Next: next}
}

func refused(r *view.Reader, q api.ListQuery) any {
	return api.RefusedAnswer{Refused: list(r.Refusals(q.AfterSequence, q.Limit))}
}

func facts(r *view.Reader, q api.FactsQuery) any {
	items, next, err := r.Facts(q)
	if err != nil {
		return api.FactsAnswer{Facts: []api.Fact{}, Error: err.Error()}
	}
	return api.FactsAnswer{Facts: list(items), Next: next}
}

func find(r *view.Reader, q api.FindQuery) any {
	answer, err := r.Find(q)
	if err != nil {
		answer = api.FindAnswer{Error: err.Error()}
	}
	if answer.Plans == nil {
		answer.Plans = []api.Plan{}
	}
	return answer
}

func capabilities(r *view.Reader, _ struct{}) any { return r.Capabilities() }

func reviews(r *view.Reader, q api.ReviewQuery) any {
	answer, err := r.Reviews(q)
	if err != nil {
		answer = api.ReviewAnswer{Error: err.Error()}
	}
	return answer
}
