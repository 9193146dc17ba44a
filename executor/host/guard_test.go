package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// factAt is a message with one fact.
func factAt(t *testing.T, sequence uint64) ledger.Message {
	t.Helper()
	data, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_FactAsserted{
		FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte("1")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return ledger.Message{Sequence: sequence, Subject: "saga.t.fact.src", Data: data}
}

// TestOnlyTheNextMessageIsFolded: one that is missing, or comes again, halts the tenant
// (G1), whatever the reader of the stream has made of it.
func TestOnlyTheNextMessageIsFolded(t *testing.T) {
	t.Parallel()
	a := foldingActor(t)
	for sequence := uint64(1); sequence <= 3; sequence++ {
		if err := a.foldAndWrite(a.decode(factAt(t, sequence)), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range []uint64{1, 3, 5, 900} {
		err := a.fold(a.decode(factAt(t, wrong)))
		var halted *ledger.Halted
		if !errors.As(err, &halted) || halted.Guard != "G1" || halted.Sequence != 4 {
			t.Errorf("message %d behind 3: %v", wrong, err)
		}
	}
	if a.cursor() != 3 || a.tiles.Last() != 3 {
		t.Errorf("folded up to %d, and the tiles to %d", a.cursor(), a.tiles.Last())
	}
	if err := a.foldAndWrite(a.decode(factAt(t, 4)), nil); err != nil {
		t.Error(err)
	}
}

// TestAMessageIsTheSameInEveryPart: what a guard compares is all that a record's address is
// made of.
func TestAMessageIsTheSameInEveryPart(t *testing.T) {
	t.Parallel()
	m := factAt(t, 7)
	m.StampNs, m.ContentType = 5, ledger.ContentTypeJSON
	if !tiles.SameMessage(m, m) {
		t.Fatal("a message is not the same as itself")
	}
	for name, change := range map[string]func(*ledger.Message){
		"sequence":     func(m *ledger.Message) { m.Sequence++ },
		"stamp":        func(m *ledger.Message) { m.StampNs++ },
		"subject":      func(m *ledger.Message) { m.Subject += "x" },
		"content type": func(m *ledger.Message) { m.ContentType = "" },
		"data":         func(m *ledger.Message) { m.Data = append([]byte("x"), m.Data...) },
	} {
		other := m
		if change(&other); tiles.SameMessage(m, other) {
			t.Errorf("another %s makes no other message", name)
		}
	}
}

// oneMessage is a store that has one message, at any place, or says why not.
type oneMessage struct {
	ledger.Store
	m   ledger.Message
	err error
}

func (s oneMessage) Get(context.Context, uint64) (ledger.Message, error) { return s.m, s.err }

// guardOf is the guard that an error comes from; empty: none.
func guardOf(err error) string {
	var halted *ledger.Halted
	if errors.As(err, &halted) {
		return halted.Guard
	}
	return ""
}

// TestAStreamThatBeginsLateBeginsWithItsRepair: one that has lost its first records begins
// late, too, where the tiles end just before.
func TestAStreamThatBeginsLateBeginsWithItsRepair(t *testing.T) {
	t.Parallel()
	a := foldingActor(t)
	for sequence := uint64(1); sequence <= 4; sequence++ {
		if err := a.foldAndWrite(a.decode(factAt(t, sequence)), nil); err != nil {
			t.Fatal(err)
		}
	}
	repair := func(through uint64) ledger.Message {
		data, err := ledger.EncodeCommit([]*pb.Record{{Term: 1, Kind: &pb.Record_LedgerRepaired{
			LedgerRepaired: &pb.LedgerRepaired{
				Through: through, Size: through, Root: make([]byte, ledger.LeafSize), Reason: "disk", Actor: "eve",
			},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		source := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}
		return ledger.Message{Sequence: 5, Subject: source.Subject(), Data: data}
	}
	head := ledger.Head{First: 5, Last: 9}
	for name, c := range map[string]struct {
		first ledger.Message
		want  string
	}{
		"its repair": {repair(4), ""}, "another repair": {repair(3), "G1"}, "no repair": {factAt(t, 5), "G1"},
	} {
		a.store = oneMessage{m: c.first}
		if err := a.guards().Stream(t.Context(), head); guardOf(err) != c.want || c.want == "" && err != nil {
			t.Errorf("a stream that begins with %s: %v", name, err)
		}
	}
}

// TestAClaimThatIsRefusedAsksWhetherItsTermIsStillThere: it was beaten by another one, or the
// stream has lost the record that it is fenced on, which no claim would ever get past.
func TestAClaimThatIsRefusedAsksWhetherItsTermIsStillThere(t *testing.T) {
	t.Parallel()
	a := foldingActor(t)
	if err := a.foldAndWrite(a.decode(factAt(t, 1)), nil); err != nil {
		t.Fatal(err)
	}
	other := factAt(t, 1)
	other.StampNs++
	for name, c := range map[string]struct {
		store oneMessage
		want  string
	}{
		"there":          {oneMessage{m: factAt(t, 1)}, ""},
		"another record": {oneMessage{m: other}, "G3"},
		"gone":           {oneMessage{err: &ledger.Halted{Guard: "G1", Sequence: 1}}, "G1"},
		"not known":      {oneMessage{err: errors.New("no answer")}, ""},
	} {
		a.store = c.store
		err := a.guards().Fence(t.Context(), 1, ledger.ErrConflict)
		if guardOf(err) != c.want || c.want == "" && err != nil {
			t.Errorf("its fence is %s: %v", name, err)
		}
	}
}

// TestAClaimThatIsRefusedForATermThatWasNotFolded: servers of one stream that were started with
// stores of different moments answer reads from different histories.
func TestAClaimThatIsRefusedForATermThatWasNotFolded(t *testing.T) {
	t.Parallel()
	a := foldingActor(t)
	data, err := ledger.EncodeCommit([]*pb.Record{{Term: 1, Kind: &pb.Record_TermStarted{
		TermStarted: &pb.TermStarted{Holder: "h"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	source := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}
	term := ledger.Message{Sequence: 2, Subject: source.Subject(), Data: data}
	for _, m := range []ledger.Message{factAt(t, 1), term, factAt(t, 3)} {
		if err := a.foldAndWrite(a.decode(m), nil); err != nil {
			t.Fatal(err)
		}
	}
	a.store = oneMessage{err: errors.New("no answer")}
	for last, want := range map[uint64]string{0: "", 2: "", 3: "G5", 4: ""} { // 4 is on its way
		refused := fmt.Errorf("cannot append: %w", &ledger.Fenced{Last: last})
		for _, fence := range []uint64{0, 1} {
			if err := a.guards().Fence(t.Context(), fence, refused); guardOf(err) != want {
				t.Errorf("a claim fenced on %d, refused at %d: %v", fence, last, err)
			}
		}
	}
}

// TestStateAndTilesAreOfOneLedger: a state that was folded from other records than the tiles
// have halts the tenant, though both are right in themselves.
func TestStateAndTilesAreOfOneLedger(t *testing.T) {
	t.Parallel()
	a := foldingActor(t)
	b := foldingActor(t)
	for sequence := uint64(1); sequence <= 3; sequence++ {
		m := factAt(t, sequence)
		if err := a.foldAndWrite(a.decode(m), nil); err != nil {
			t.Fatal(err)
		}
		m.StampNs += int64(sequence) / 3 // the last one differs
		if err := b.foldAndWrite(b.decode(m), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.guards().State(t.Context(), a.state.Meta()); err != nil {
		t.Fatal(err)
	}
	a.tiles, b.tiles = b.tiles, a.tiles
	for _, x := range []*actor{a, b} {
		if err := x.guards().State(t.Context(), x.state.Meta()); guardOf(err) != "G3" {
			t.Errorf("tiles of another ledger: %v", err)
		}
	}
	a.tiles, b.tiles = b.tiles, a.tiles
}

// TestAStateOfOtherRulesIsFoldedAgain: what an earlier version has folded is not believed.
func TestAStateOfOtherRulesIsFoldedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, stop := r.host("h1")
	r.plan("p", 2, 0)
	r.caughtUp()
	held := r.status().Held
	stop()
	h, err := New(Config{Conn: new(nats.Conn), Tenants: []string{"t"}, Dir: filepath.Join(r.dir, "h1")})
	if err != nil {
		t.Fatal(err)
	}
	kv, key, meta := h.roster.order[0].kv, []byte("m"), new(rowspb.Meta)
	row, ok := kv.Get(key)
	if err := meta.UnmarshalVT(row); err != nil || !ok || meta.FoldVersion != executor.FoldVersion || held != 2 {
		t.Fatalf("%v: version %d, %d held", err, meta.FoldVersion, held)
	}
	meta.FoldVersion, meta.Held = executor.FoldVersion-1, 77
	if row, err = meta.MarshalVT(); err != nil {
		t.Fatal(err)
	}
	kv.Set(key, row)
	kv.Commit()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	r.host("h1")
	r.caughtUp()
	if now := r.status().Held; now != held {
		t.Errorf("%d registrations are held, want %d", now, held)
	}
}

// TestARecordIsInTheTilesBeforeItIsState: where the tiles cannot be written, nothing of the
// turn is kept as state.
func TestARecordIsInTheTilesBeforeItIsState(t *testing.T) {
	t.Parallel()
	a := foldingActor(t)
	for _, broken := range []bool{false, true} {
		data, err := ledger.EncodeCommit([]*pb.Record{{Kind: &pb.Record_FactAsserted{
			FactAsserted: &pb.FactAsserted{Key: "k", Value: []byte("1")},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		sequence := a.cursor() + 1
		if broken {
			a.tiles.Entries.Close()
		}
		m := ledger.Message{Sequence: sequence, Subject: "saga.t.fact.src", Data: data}
		if err := a.foldAndWrite(a.decode(m), nil); (err != nil) != broken {
			t.Fatalf("broken=%v: %v", broken, err)
		}
		a.kv.Forget()
		kept := executor.Open(a.kv, "t", nil).Meta().GetApplied().GetSequence()
		if kept != 1 || a.tiles.Last() != 1 {
			t.Errorf("broken=%v: the state is that of %d, and the tiles have %d", broken, kept, a.tiles.Last())
		}
	}
	var err error
	if a.tiles.Entries, err = os.OpenFile(a.tiles.Entries.Name(), os.O_RDWR, 0o600); err != nil {
		t.Fatal(err)
	}
}

// foldAndWrite folds messages, and writes them at once.
func (a *actor) foldAndWrite(m decoded, messages <-chan decoded) error {
	if err := a.foldBatch(m, messages); err != nil {
		return err
	}
	return a.write(true)
}
