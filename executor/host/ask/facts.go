package ask

import (
	"errors"
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Bounds of an answer about facts.
const (
	eventsSizeMax = 512 << 10 // bytes of records
	eventSizeMin  = 512       // that one event takes beside its value
)

func (d *Desk) fact(q api.FactQuery) any {
	var answer api.FactAnswer
	if answer.Error = d.Board.unfolded(q.Sequence, sequenceWait); answer.Error != "" {
		return answer
	}
	d.look(func(r *view.Reader) {
		if q.Sequence > 0 {
			for _, refused := range r.RefusedAt(q.Sequence) {
				answer.Refused = append(answer.Refused, refused.Reason)
			}
		}
		var ok bool
		if answer.Fact, ok = r.Fact(q.Key); !ok && q.Sequence == 0 {
			answer.Error = fmt.Sprintf("there is no fact %q", q.Key)
		}
	})
	return answer
}

func (d *Desk) history(q api.FactQuery) any {
	answer := api.FactHistoryAnswer{Events: []api.FactEvent{}}
	var places []rows.Place
	d.look(func(r *view.Reader) { places, answer.More = r.Chronicle(q.Key, q.Limit) })
	if len(places) == 0 {
		answer.Error = fmt.Sprintf("there is no fact %q", q.Key)
		return answer
	}
	events, omitted, err := eventsAt(d.Tenant, d.Board.Records(), places)
	if err != nil {
		return api.ErrorAnswer{Error: err.Error()}
	}
	answer.Events, answer.More = append(answer.Events, events...), answer.More || omitted
	return answer
}

// eventsAt reads what is at places of a ledger, the latest of them as far as they fit into one
// answer.
func eventsAt(tenant string, records ledger.Store, places []rows.Place) (events []api.FactEvent,
	omitted bool, err error) {
	if records == nil {
		return nil, false, errors.New("the ledger is not open yet")
	}
	size := 0
	for i := len(places) - 1; i >= 0; i-- {
		at := places[i]
		m, err := store.ReadBack(records, at.Sequence)
		if err != nil {
			return nil, false, err
		}
		entries, err := ledger.Decode(tenant, m)
		if err != nil {
			return nil, false, err
		}
		if int(at.Index) >= len(entries) {
			continue
		}
		event, ok := view.Event(entries[at.Index])
		if size += len(event.Value) + eventSizeMin; size > eventsSizeMax {
			omitted = true
			break
		}
		if ok {
			events = append([]api.FactEvent{event}, events...)
		}
	}
	return events, omitted, nil
}

func (d *Desk) memory() any {
	var answer api.MemoryAnswer
	d.look(func(r *view.Reader) { answer.Memory = r.Memory(d.MemoryBytes) })
	return answer
}

func (d *Desk) queue(q api.QueueQuery) any {
	answer := api.QueueAnswer{Next: []api.Fact{}, Latest: []api.FactEvent{}}
	var places []rows.Place
	d.look(func(r *view.Reader) {
		next, latest := r.Queue(q, d.MemoryBytes)
		answer.Memory, answer.Next, places = r.Memory(d.MemoryBytes),
			append(answer.Next, next...), latest
	})
	events, _, err := eventsAt(d.Tenant, d.Board.Records(), places)
	if err != nil {
		return api.ErrorAnswer{Error: err.Error()}
	}
	answer.Latest = append(answer.Latest, events...)
	return answer
}
