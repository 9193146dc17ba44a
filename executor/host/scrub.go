package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// scrubbedName says when the last full pass ended, beside the tiles.
const scrubbedName = "scrubbed.json"

// scrubs is what is known of a tenant's scrubs. A scrub is guard G4: the whole
// stream is read again and held against the tiles.
type scrubs struct {
	one sync.Mutex // one pass at a time

	mu    sync.Mutex // guards all below
	ended time.Time  // of the last full pass; zero: none yet
	next  time.Time
	at    uint64 // sequence that the pass under way has reached
}

type scrubbedFile struct {
	EndedNs int64 `json:"ended_ns"`
}

// scrubDaily runs a pass a day, slowly, until ctx ends: the first one a day after
// the last that this or an earlier process has finished.
func (a *actor) scrubDaily(ctx context.Context) {
	var file scrubbedFile
	if data, err := os.ReadFile(a.copiesSeen().Path(scrubbedName)); err == nil {
		_ = json.Unmarshal(data, &file) // what cannot be read is no pass
	}
	next := time.Unix(0, file.EndedNs).Add(scrubEvery)
	if file.EndedNs == 0 {
		next = time.Now().Add(scrubEvery)
	}
	for {
		a.scrubs.mu.Lock()
		if file.EndedNs != 0 {
			a.scrubs.ended = time.Unix(0, file.EndedNs)
		}
		a.scrubs.next = next
		a.scrubs.mu.Unlock()
		if !pause.For(ctx, max(time.Until(next), time.Second)) {
			return
		}
		answer, err := a.scrub(ctx, true)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.log.Warn("scrub not finished; it is tried again", "error", err)
			next = time.Now().Add(scrubRetry)
			continue
		case answer.Differs != 0:
			return
		}
		file.EndedNs = time.Now().UnixNano()
		next = time.Now().Add(scrubEvery)
	}
}

// askScrub runs a pass now, at full speed.
func (a *actor) askScrub(ctx context.Context) any {
	answer, err := a.scrub(ctx, false)
	if err != nil {
		return view.ErrorAnswer{Error: "cannot scrub: " + err.Error()}
	}
	if answer.Differs != 0 {
		a.awaitHalt(ctx)
	}
	return answer
}

// awaitHalt waits, not for ever, until the tenant is halted: who hears that it is
// asks for its repair next.
func (a *actor) awaitHalt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	for pause.For(ctx, alarmPoll) {
		a.mu.Lock()
		mode := a.mode
		a.mu.Unlock()
		if mode == view.ModeHalted {
			return
		}
	}
}

// scrub reads the stream against the tiles, up to where they end now. A difference
// halts the tenant. Damaged tiles are an error: they are no witness.
func (a *actor) scrub(ctx context.Context, slowly bool) (answer view.ScrubAnswer, err error) {
	a.scrubs.one.Lock()
	defer a.scrubs.one.Unlock()
	store, copies := a.ledgerSeen(), a.copiesSeen()
	if store == nil || copies == nil {
		return answer, errors.New("the ledger is not open yet")
	}
	start := time.Now()
	defer a.scrubAt(0)
	head, err := store.Head(ctx)
	if err != nil {
		return answer, err
	}
	upTo := copies.Last()
	answer.Records = copies.Size()
	for from := uint64(1); from <= upTo; {
		began := time.Now()
		to := min(from+scrubChunk-1, upTo)
		differs, err := tiles.CompareRange(ctx, store, copies, from, to)
		var halted *ledger.Halted
		if errors.As(err, &halted) {
			answer.Differs, answer.Problem = max(halted.Sequence, 1), halted.Error()
		} else if err != nil {
			return answer, err
		} else if differs != 0 {
			answer.Differs, answer.Problem = differs, "the stream has another record here than the tiles"
		}
		if answer.Differs != 0 {
			a.alarm(&ledger.Halted{Guard: "G4", Sequence: answer.Differs, Problem: answer.Problem})
			break
		}
		from = to + 1
		a.scrubAt(from)
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
		return answer, a.scrubbed(copies)
	}
	answer.Compared = max(answer.Differs-1, answer.Alone) - answer.Alone
	return answer, nil
}

// alarm halts the session; one that is halted already stays so.
func (a *actor) alarm(halted *ledger.Halted) {
	select {
	case a.alarms <- halted:
	default:
	}
}

func (a *actor) scrubAt(sequence uint64) {
	a.scrubs.mu.Lock()
	defer a.scrubs.mu.Unlock()
	a.scrubs.at = sequence
}

// scrubbed notes the end of a full pass.
func (a *actor) scrubbed(copies *tiles.Files) error {
	now := time.Now()
	a.scrubs.mu.Lock()
	a.scrubs.ended, a.scrubs.next = now, now.Add(scrubEvery)
	a.scrubs.mu.Unlock()
	data, err := json.Marshal(scrubbedFile{now.UnixNano()})
	if err != nil {
		return err
	}
	return store.WriteSynced(copies.Path(scrubbedName), data)
}

// copiesSeen are the tiles as others than the actor read them; nil before they are open.
func (a *actor) copiesSeen() *tiles.Files {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.copies
}

// showCopy is what status says of the tiles.
func (a *actor) showCopy(shown *view.Status) {
	tiles := a.copiesSeen()
	if tiles == nil {
		return
	}
	copies := view.Copy{Records: tiles.Size(), Last: tiles.Last()}
	a.look(func(r *executor.Reader) { copies.Repairs = r.Repairs() })
	a.scrubs.mu.Lock()
	defer a.scrubs.mu.Unlock()
	copies.Scrubbing = a.scrubs.at
	if !a.scrubs.ended.IsZero() {
		copies.ScrubbedNs = a.scrubs.ended.UnixNano()
	}
	if !a.scrubs.next.IsZero() {
		copies.NextScrubNs = a.scrubs.next.UnixNano()
	}
	shown.Copy = &copies
}
