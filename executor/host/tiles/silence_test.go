package tiles

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// silent is a stream that delivers what it has and then nothing, as one without a leader.
type silent struct {
	ledger.Store
	has uint64
}

func (s silent) Read(ctx context.Context, from uint64) iter.Seq2[ledger.Message, error] {
	return func(yield func(ledger.Message, error) bool) {
		for ; from <= s.has && ctx.Err() == nil; from++ {
			if !yield(ledger.Message{Sequence: from}, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(ledger.Message{}, ctx.Err())
	}
}

// TestALedgerThatSaysNothingIsNotWaitedFor: whoever reads learns where it fell silent. One who waits no
// longer learns that, and one who has read enough learns nothing, however slowly.
func TestALedgerThatSaysNothingIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		read := func(ctx context.Context, upTo uint64) (last uint64, err error) {
			for m, err := range readSpoken(ctx, silent{has: 3}, 1) {
				if err != nil {
					return last, err
				}
				if last = m.Sequence; last == upTo {
					break
				}
				<-time.After(2 * silenceMax)
			}
			return last, nil
		}
		if last, err := read(t.Context(), 4); last != 3 || err == nil ||
			!strings.Contains(err.Error(), "nothing for 30s, when 4 was to be read") {
			t.Error(last, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		time.AfterFunc(6*silenceMax+silenceMax/2, cancel) // while it waits for a fourth
		if last, err := read(ended, 4); last != 3 || !errors.Is(err, context.Canceled) {
			t.Error(last, err)
		}
		if last, err := read(t.Context(), 3); last != 3 || err != nil {
			t.Error(last, err)
		}
	})
}
