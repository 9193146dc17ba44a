package tiles

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// replicated is a stream whose replica answers readers with another history than the leader has.
type replicated struct {
	ledger.Store
	read, led []ledger.Message
}

func (r replicated) Read(_ context.Context, from uint64) iter.Seq2[ledger.Message, error] {
	return func(yield func(ledger.Message, error) bool) {
		for _, m := range r.read[from-1:] {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (r replicated) Get(_ context.Context, sequence uint64) (ledger.Message, error) {
	return r.led[sequence-1], nil
}

// TestAScrubBelievesTheLeader: a server that answers with another history halts no one; where the
// leader has something else than the tiles, that is a difference.
func TestAScrubBelievesTheLeader(t *testing.T) {
	t.Parallel()
	messages := ledgerOf(t, 20)
	tl := openTestTiles(t, t.TempDir())
	addAll(t, tl, messages, 1)
	other := append([]ledger.Message(nil), messages...)
	other[11].StampNs++
	for name, c := range map[string]struct {
		store   replicated
		differs uint64
		says    string
	}{
		"the same":  {replicated{read: messages, led: messages}, 0, ""},
		"a replica": {replicated{read: other, led: messages}, 0, "another record at 12 than its leader"},
		"both":      {replicated{read: other, led: other}, 12, ""},
	} {
		differs, err := uint64(0), CompareRange(t.Context(), c.store, tl.Files, 1, 20)
		if other := new(OtherRecord); errors.As(err, &other) {
			differs, err = other.Sequence, nil
		}
		if differs != c.differs || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d, %v", name, differs, err)
		}
	}
	if err := tl.Close(); err != nil {
		t.Fatal(err)
	}
}
