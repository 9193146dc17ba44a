package ask

import (
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Lists that the state alone gives, from one batch to the next. An empty list is [] in JSON.

func list[T any](items []T) []T { return append([]T{}, items...) }

func undos(r *view.Reader, q api.UndoQuery) (api.UndosAnswer, error) {
	items, next, err := r.Undos(q)
	return api.UndosAnswer{Undos: list(items), Next: next}, err
}

func contracts(r *view.Reader, q api.ContractQuery) (api.ContractsAnswer, error) {
	items, next := r.Contracts(q)
	return api.ContractsAnswer{Contracts: list(items), Next: next}, nil
}

func quarantined(r *view.Reader, q api.ListQuery) (api.PlansAnswer, error) {
	items, next := r.Quarantined(q)
	return api.PlansAnswer{Plans: list(items), Next: next}, nil
}

func refused(r *view.Reader, q api.ListQuery) (api.RefusedAnswer, error) {
	return api.RefusedAnswer{Refused: list(r.Refusals(q.AfterSequence, q.Limit))}, nil
}

func facts(r *view.Reader, q api.FactsQuery) (api.FactsAnswer, error) {
	items, next, err := r.Facts(q)
	return api.FactsAnswer{Facts: list(items), Next: next}, err
}

func capabilities(r *view.Reader, _ api.Nothing) (api.CapabilitiesAnswer, error) {
	return r.Capabilities(), nil
}
