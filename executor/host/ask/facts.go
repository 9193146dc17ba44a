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

func (d *Desk) fact(q api.FactQuery) (answer api.FactAnswer, err error) {
	if err := d.unfolded(q.Sequence, sequenceWait); err != nil {
		return answer, err
	}
	d.look(func(r *view.Reader) {
		if q.Sequence > 0 {
			for _, refused := range r.RefusedAt(q.Sequence) {
				answer.Refused = append(answer.Refused, refused.Reason)
			}
		}
		var ok bool
		if answer.Fact, ok = r.Fact(q.Key); !ok && q.Sequence == 0 {
			err = fmt.Errorf("there is no fact %q", q.Key)
		}
	})
	return answer, err
}

func (d *Desk) history(q api.FactQuery) (answer api.FactHistoryAnswer, err error) {
	answer.Events = []api.FactEvent{}
	var places []rows.Place
	d.look(func(r *view.Reader) { places, answer.More = r.Chronicle(q.Key, q.Limit) })
	if len(places) == 0 {
		return answer, fmt.Errorf("there is no fact %q", q.Key)
	}
	events, omitted, err := eventsAt(d.Tenant, d.Board.Records(), places)
	if err != nil {
		return answer, alone{err}
	}
	answer.Events, answer.More = append(answer.Events, events...), answer.More || omitted
	return answer, nil
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

func (d *Desk) memory() (answer api.MemoryAnswer, err error) {
	d.look(func(r *view.Reader) { answer.Memory = r.Memory(d.MemoryBytes) })
	return answer, nil
}

func (d *Desk) queue(q api.QueueQuery) (answer api.QueueAnswer, err error) {
	answer.Next, answer.Latest = []api.Fact{}, []api.FactEvent{}
	var places []rows.Place
	d.look(func(r *view.Reader) {
		next, latest := r.Queue(q, d.MemoryBytes)
		answer.Memory, answer.Next, places = r.Memory(d.MemoryBytes),
			append(answer.Next, next...), latest
	})
	events, _, err := eventsAt(d.Tenant, d.Board.Records(), places)
	if err != nil {
		return answer, alone{err}
	}
	answer.Latest = append(answer.Latest, events...)
	return answer, nil
}
