package repair

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// scrubbedName says when the last full pass ended, beside the tiles.
const scrubbedName = "scrubbed.json"

// Bounds of scrubs.
const (
	scrubEvery = 24 * time.Hour // from the end of one full pass to the next
	scrubRetry = time.Minute    // after a pass that could not be finished
	scrubChunk = 2000           // messages that a scrub reads at once
	scrubShare = 20             // a scrub works one part in so many of the time
)

// Scrubber is guard G4 of one tenant: the whole stream is read again and held against the
// tiles. Its methods may be called from any goroutine.
type Scrubber struct {
	log    *slog.Logger
	alarms chan *ledger.Halted // buffered 1: where the two differ
	one    sync.Mutex          // one pass at a time

	mu    sync.Mutex // guards all below
	ended time.Time  // of the last full pass; zero: none yet
	next  time.Time
	at    uint64 // sequence that the pass under way has reached
}

// NewScrubber makes the scrubber of a tenant.
func NewScrubber(log *slog.Logger) *Scrubber {
	return &Scrubber{log: log, alarms: make(chan *ledger.Halted, 1)}
}

// Alarms has a value when a pass has found that the two differ. One is enough to halt the
// tenant; further ones are left out until it was taken.
func (s *Scrubber) Alarms() <-chan *ledger.Halted { return s.alarms }

type scrubbedFile struct {
	EndedNs int64 `json:"ended_ns"`
}

// Daily runs a pass a day, slowly, until ctx ends: the first one a day after
// the last that this or an earlier process has finished.
func (s *Scrubber) Daily(ctx context.Context, records ledger.Store, copies *tiles.Files) {
	var file scrubbedFile
	if data, err := os.ReadFile(copies.Path(scrubbedName)); err == nil {
		_ = json.Unmarshal(data, &file) // what cannot be read is no pass
	}
	next := time.Unix(0, file.EndedNs).Add(scrubEvery)
	if file.EndedNs == 0 {
		next = time.Now().Add(scrubEvery)
	}
	for {
		s.mu.Lock()
		if file.EndedNs != 0 {
			s.ended = time.Unix(0, file.EndedNs)
		}
		s.next = next
		s.mu.Unlock()
		if !pause.For(ctx, max(time.Until(next), time.Second)) {
			return
		}
		answer, err := s.Scrub(ctx, records, copies, true)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.Warn("scrub not finished; it is tried again", "error", err)
			next = time.Now().Add(scrubRetry)
			continue
		case answer.Differs != 0:
			return
		}
		file.EndedNs = time.Now().UnixNano()
		next = time.Now().Add(scrubEvery)
	}
}

// Scrub reads the stream against the tiles, up to where they end now. A difference is an
// alarm. Damaged tiles are an error: they are no witness.
func (s *Scrubber) Scrub(ctx context.Context, records ledger.Store, copies *tiles.Files,
	slowly bool) (answer api.ScrubAnswer, err error) {
	s.one.Lock()
	defer s.one.Unlock()
	if records == nil || copies == nil {
		return answer, errors.New("the ledger is not open yet")
	}
	start := time.Now()
	defer s.reached(0)
	head, err := records.Head(ctx)
	if err != nil {
		return answer, err
	}
	upTo, guard := copies.Last(), "G4"
	answer.Records = copies.Size()
	for from := uint64(1); from <= upTo; {
		began := time.Now()
		to := min(from+scrubChunk-1, upTo)
		err := tiles.CompareRange(ctx, records, copies, from, to)
		var halted *ledger.Halted
		var other *tiles.OtherRecord
		switch {
		case errors.As(err, &other):
			answer.Differs, answer.Problem = other.Sequence, other.Error()
			// What was folded here may be of a server that has forked, and a repair would have it take the
			// place of the ledger.
			if head.Replicas > 1 && !other.Missing {
				guard = "G5"
			}
		case errors.As(err, &halted):
			answer.Differs, answer.Problem = max(halted.Sequence, 1), halted.Error()
		case err != nil:
			return answer, err
		}
		if answer.Differs != 0 {
			select {
			case s.alarms <- &ledger.Halted{Guard: guard, Sequence: answer.Differs,
				Problem: answer.Problem}:
			default:
			}
			break
		}
		from = to + 1
		s.reached(from)
		if slowly && !pause.For(ctx, time.Since(began)*(scrubShare-1)) {
			return answer, ctx.Err()
		}
	}
	if head.First > 1 {
		answer.Alone = min(head.First-1, upTo)
	}
	answer.Compared = upTo - answer.Alone
	answer.TookMs = time.Since(start).Milliseconds()
	if answer.Differs == 0 {
		return answer, s.scrubbed(copies)
	}
	answer.Compared = max(answer.Differs-1, answer.Alone) - answer.Alone
	return answer, nil
}

func (s *Scrubber) reached(sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = sequence
}

// scrubbed notes the end of a full pass.
func (s *Scrubber) scrubbed(copies *tiles.Files) error {
	now := time.Now()
	s.mu.Lock()
	s.ended, s.next = now, now.Add(scrubEvery)
	s.mu.Unlock()
	data, err := json.Marshal(scrubbedFile{now.UnixNano()})
	if err != nil {
		return err
	}
	return store.WriteSynced(copies.Path(scrubbedName), data)
}

// View adds to what is shown of the tiles when they were scrubbed, and are to be.
func (s *Scrubber) View(v *api.Copy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Scrubbing = s.at
	if !s.ended.IsZero() {
		v.ScrubbedNs = s.ended.UnixNano()
	}
	if !s.next.IsZero() {
		v.NextScrubNs = s.next.UnixNano()
	}
}
