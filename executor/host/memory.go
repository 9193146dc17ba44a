package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// archive reads the values of evicted facts back from the ledger. It belongs to one
// goroutine.
type archive struct {
	tenant string
	store  ledger.Store
	values map[string]json.RawMessage // by leaf; a leaf never has another value
	bytes  int
}

func newArchive(tenant string, store ledger.Store) *archive {
	return &archive{tenant: tenant, store: store, values: map[string]json.RawMessage{}}
}

// Value implements executor.Archive.
func (a *archive) Value(at *pb.Address, key string) (json.RawMessage, error) {
	if value, ok := a.values[string(at.Leaf)]; ok {
		return value, nil
	}
	if a.store == nil {
		return nil, errors.New("the ledger is not open yet")
	}
	m, err := message(a.store, at.Sequence)
	if err != nil {
		return nil, err
	}
	value, err := executor.FactAt(a.tenant, m, at, key)
	if err != nil {
		return nil, err
	}
	if a.bytes += len(value); a.bytes > archiveBytesMax {
		clear(a.values)
		a.bytes = len(value)
	}
	a.values[string(at.Leaf)] = value
	return value, nil
}

// message reads one message. Only a *ledger.Halted keeps its type: whatever else
// goes wrong may pass.
func message(store ledger.Store, sequence uint64) (ledger.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), archiveTimeout)
	defer cancel()
	m, err := store.Get(ctx, sequence)
	var halted *ledger.Halted
	if err != nil && !errors.As(err, &halted) {
		err = fmt.Errorf("cannot read sequence %d: %v", sequence, err)
	}
	return m, err
}

// ledgerSeen is the ledger as questions read it; nil before it is open.
func (a *actor) ledgerSeen() ledger.Store {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

func (a *actor) askFact(q view.FactQuery) any {
	var answer view.FactAnswer
	if q.Sequence > 0 && !a.await(&waiter{sequence: q.Sequence}, 5*time.Second) {
		answer.Error = fmt.Sprintf("sequence %d is not folded yet", q.Sequence)
		return answer
	}
	a.look(func(r *executor.Reader) {
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

func (a *actor) askFacts(q view.FactsQuery) any {
	answer := view.FactsAnswer{Facts: []view.Fact{}}
	a.look(func(r *executor.Reader) {
		facts, next, err := r.Facts(q)
		if err != nil {
			answer.Error = err.Error()
			return
		}
		answer.Facts, answer.Next = append(answer.Facts, facts...), next
	})
	return answer
}

func (a *actor) askHistory(q view.FactQuery) any {
	answer := view.HistoryAnswer{Events: []view.FactEvent{}}
	var places []executor.Place
	a.look(func(r *executor.Reader) { places, answer.More = r.Chronicle(q.Key, q.Limit) })
	if len(places) == 0 {
		answer.Error = fmt.Sprintf("there is no fact %q", q.Key)
		return answer
	}
	events, omitted, err := a.events(places)
	if err != nil {
		return view.ErrorAnswer{Error: err.Error()}
	}
	answer.Events, answer.More = append(answer.Events, events...), answer.More || omitted
	return answer
}

// events reads what stands at places of the ledger, the latest of them as far as
// they fit into one answer.
func (a *actor) events(places []executor.Place) (events []view.FactEvent, omitted bool, err error) {
	store := a.ledgerSeen()
	if store == nil {
		return nil, false, errors.New("the ledger is not open yet")
	}
	size := 0
	for i := len(places) - 1; i >= 0; i-- {
		at := places[i]
		m, err := message(store, at.Sequence)
		if err != nil {
			return nil, false, err
		}
		entries, err := ledger.Decode(a.tenant, m)
		if err != nil {
			return nil, false, err
		}
		if int(at.Index) >= len(entries) {
			continue
		}
		event, ok := executor.Event(entries[at.Index])
		if size += len(event.Value) + eventSizeMin; size > eventsSizeMax {
			omitted = true
			break
		}
		if ok {
			events = append([]view.FactEvent{event}, events...)
		}
	}
	return events, omitted, nil
}

func (a *actor) askMemory() any {
	var answer view.MemoryAnswer
	a.look(func(r *executor.Reader) { answer.Memory = r.Memory(a.host.cfg.MemoryBytes) })
	return answer
}

func (a *actor) askQueue(q view.QueueQuery) any {
	answer := view.QueueAnswer{Next: []view.Fact{}, Latest: []view.FactEvent{}}
	var places []executor.Place
	a.look(func(r *executor.Reader) {
		next, latest := r.Queue(q, a.host.cfg.MemoryBytes)
		answer.Memory, answer.Next, places = r.Memory(a.host.cfg.MemoryBytes),
			append(answer.Next, next...), latest
	})
	events, _, err := a.events(places)
	if err != nil {
		return view.ErrorAnswer{Error: err.Error()}
	}
	answer.Latest = append(answer.Latest, events...)
	return answer
}

// rebuildPrefix is what the folders of rebuilds begin with.
const rebuildPrefix = "rebuild-"

// dropRebuilds removes what a killed process has left of its rebuilds.
func dropRebuilds(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, rebuildPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// askRebuild folds the ledger again beside the running actor, up to where a snapshot
// of its state stands, and compares the two (S80). It changes nothing; one at a
// time.
func (a *actor) askRebuild() any {
	if !a.host.rebuilding.CompareAndSwap(false, true) {
		return view.ErrorAnswer{Error: "another rebuild is under way"}
	}
	defer a.host.rebuilding.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), rebuildMax)
	defer cancel()
	go func() { // ends with the rebuild, or ends it with the host
		select {
		case <-a.asking.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	start := time.Now()
	answer, err := a.rebuild(ctx)
	if err != nil {
		return view.ErrorAnswer{Error: "cannot rebuild: " + err.Error()}
	}
	answer.TookMs = time.Since(start).Milliseconds()
	return answer
}

func (a *actor) rebuild(ctx context.Context) (answer view.RebuildAnswer, err error) {
	records := a.ledgerSeen()
	if records == nil {
		return answer, errors.New("the ledger is not open yet")
	}
	dir, err := os.MkdirTemp(a.host.cfg.Dir, rebuildPrefix)
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := store.Open(filepath.Join(dir, "state"), a.log, ctx.Done())
	if err != nil {
		return answer, err
	}
	anew := store.NewFolder(db, a.tenant, newArchive(a.tenant, records))
	defer func() { err = errors.Join(err, anew.Close()) }()
	snapshot := a.host.db.NewSnapshot()
	defer func() { _ = snapshot.Close() }()
	had := store.NewView(snapshot, a.tenant)
	answer.Applied = executor.NewReader(had, a.tenant, nil).Applied()
	if err := refold(ctx, anew, a.tenant, records, answer.Applied); err != nil {
		return answer, err
	}
	state, rebuilt := rows.Digest(had), anew.Digest()
	facts, count := executor.FactsDigest(had)
	refolded, _ := executor.FactsDigest(anew.Rows())
	answer.Equal, answer.Rows = state == rebuilt, count
	answer.State, answer.Rebuilt = rows.FormatDigest(state), rows.FormatDigest(rebuilt)
	answer.Facts, answer.Refolded = rows.FormatDigest(facts), rows.FormatDigest(refolded)
	if !answer.Equal {
		answer.Differ = executor.Differences(had, anew.Rows(), differencesMax)
	}
	return answer, nil
}

// refold folds a ledger into an empty folder, up to a sequence.
func refold(ctx context.Context, f *store.Folder, tenant string, store ledger.Store,
	upTo uint64) error {
	if upTo == 0 {
		return nil
	}
	turn := 0
	for m, err := range store.Read(ctx, 1) {
		if err != nil {
			return err
		}
		entries, err := ledger.Decode(tenant, m)
		if err != nil {
			return err
		}
		for _, e := range entries {
			f.State().Apply(e)
		}
		if turn += len(m.Data); turn > turnBytesMax || m.Sequence == upTo {
			f.Flush()
			turn = 0
		}
		if m.Sequence == upTo {
			return nil
		}
	}
	return ctx.Err()
}
