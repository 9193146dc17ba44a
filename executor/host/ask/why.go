package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// What one story may cost: messages that are read on the way from a plan's opening to
// its last record, records that it tells, and the time that both take.
const (
	storyScanMax  = 20_000
	storyLinesMax = 300
	storyBytesMax = 256 << 10 // of JSON
	storyTime     = 4 * time.Second
)

// why tells what led to an unwind: from the state what turned and what waits, from
// the ledger every record of it.
func (d *Desk) why(q api.WhyQuery) (answer api.WhyAnswer, err error) {
	var trail view.Trail
	told, err := looked(d, func(r *view.Reader) (api.Why, error) {
		shown, err := r.Why(q)
		if err == nil {
			trail = r.Trail(q)
		}
		var refused *ledger.Refused
		if errors.As(err, &refused) {
			err = errors.New(refused.Problem)
		}
		return shown, err
	})
	if err != nil {
		return answer, err
	}
	story := &story{tenant: d.Tenant, store: d.Board.Records(), trail: trail,
		entries: map[rows.Place]ledger.Entry{}, read: map[rows.Place]bool{}, plan: q.Plan}
	err = story.gather()
	d.look(func(r *view.Reader) { told.Records = story.tell(r) })
	told.Left = story.left
	if err != nil {
		told.Left = "what the ledger did not give: " + err.Error()
	}
	return api.WhyAnswer{Why: told}, nil
}

// story gathers the records that a plan's story is told from. It belongs to one
// goroutine.
type story struct {
	tenant  string
	store   ledger.Store
	trail   view.Trail
	entries map[rows.Place]ledger.Entry
	read    map[rows.Place]bool // causes that were looked for
	plan    string
	left    string // what was not looked at, for people
}

// gather reads the places that the state knows, then what lies between the opening of
// the plan and its last record, or as much of it as one question may read, and then
// what caused all that.
func (s *story) gather() error {
	if s.store == nil {
		return errors.New("the ledger is not open yet")
	}
	ctx, cancel := context.WithTimeout(context.Background(), storyTime)
	defer cancel()
	for _, at := range s.trail.Places {
		if err := s.take(ctx, at); err != nil {
			return err
		}
	}
	if err := s.scan(ctx); err != nil {
		return err
	}
	return s.causes(ctx)
}

// take reads one place.
func (s *story) take(ctx context.Context, at rows.Place) error {
	if _, ok := s.entries[at]; ok {
		return nil
	}
	m, err := s.store.Get(ctx, at.Sequence)
	var halted *ledger.Halted
	if errors.As(err, &halted) { // after a repair only the tiles have it
		s.left = fmt.Sprintf(
			"what is before the stream's beginning; sequence %d is in the tiles only", at.Sequence)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read sequence %d: %v", at.Sequence, err)
	}
	entries, err := ledger.Decode(s.tenant, m)
	if err != nil {
		return err
	}
	if int(at.Index) < len(entries) {
		s.entries[at] = entries[at.Index]
	}
	return nil
}

// scan reads from the opening on, or from where the unwind began when that is too far.
func (s *story) scan(ctx context.Context) error {
	head, err := s.store.Head(ctx)
	if err != nil {
		return err
	}
	from := max(s.trail.From, head.First)
	if s.trail.Turned > from && head.Last-from >= storyScanMax {
		from = s.trail.Turned
	}
	if head.Last == 0 || from > head.Last {
		return nil
	}
	scanned, furthest := 0, s.furthest()
	for m, err := range s.store.Read(ctx, from) {
		switch {
		case ctx.Err() != nil:
			s.left = fmt.Sprintf("what came after sequence %d: reading took too long; sagenbaum ledger "+
				"tail --since %d --plan %s has it", m.Sequence, m.Sequence, s.plan)
			return nil
		case err != nil:
			return err
		case m.StampNs > s.trail.UntilNs && m.Sequence > furthest:
			return nil
		}
		entries, err := ledger.Decode(s.tenant, m)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if s.trail.Wants(e.Record) {
				s.entries[rows.Place{Sequence: e.Address.Sequence, Index: e.Address.Index}] = e
			}
		}
		if scanned++; m.Sequence >= head.Last {
			return nil
		}
		if scanned == storyScanMax {
			s.left = fmt.Sprintf("some records after sequence %d; sagenbaum ledger tail --since %d "+
				"--plan %s has them", m.Sequence, m.Sequence, s.plan)
			return nil
		}
	}
	return nil
}

// furthest is the last place that the state knows.
func (s *story) furthest() (last uint64) {
	for _, at := range s.trail.Places {
		last = max(last, at.Sequence)
	}
	return last
}

// causes follows references back, so that every because is told itself.
func (s *story) causes(ctx context.Context) error {
	for range storyLinesMax {
		var missing []rows.Place
		for _, e := range s.entries {
			if c := ledger.CauseOf(e); c != nil && e.Record != nil {
				if at := (rows.Place{Sequence: c.Sequence, Index: c.Index}); !s.known(at) &&
					!slices.Contains(missing, at) {
					missing = append(missing, at)
				}
			}
		}
		if len(missing) == 0 || len(s.entries) > storyLinesMax {
			return nil
		}
		for _, at := range missing {
			s.read[at] = true
			if err := s.take(ctx, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *story) known(at rows.Place) bool {
	_, ok := s.entries[at]
	return ok || s.read[at]
}

// tell orders and words what was gathered, as much as fits into one answer.
func (s *story) tell(r *view.Reader) []api.StoryLine {
	records := make([]ledger.Told, 0, len(s.entries))
	for _, e := range s.entries {
		records = append(records, r.Told(e))
	}
	lines := ledger.Story(records)
	size := 0
	for i := range lines {
		text, err := json.Marshal(lines[i])
		if size += len(text); err != nil || size > storyBytesMax || i == storyLinesMax {
			s.left = fmt.Sprintf("%d further records; name an action, or read them: sagenbaum ledger tail "+
				"--since %d --plan %s", len(lines)-i, lines[i].Sequence, lines[i].Plan)
			return append([]api.StoryLine{}, lines[:i]...)
		}
	}
	return append([]api.StoryLine{}, lines...)
}
