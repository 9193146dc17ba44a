package tiles

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
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
		for ; from <= s.has; from++ {
			if !yield(ledger.Message{Sequence: from}, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(ledger.Message{}, ctx.Err())
	}
}

// TestALedgerThatSaysNothingIsNotWaitedFor: whoever reads learns where it fell silent. One who waits no
// longer learns that, and one who has read enough learns nothing.
func TestALedgerThatSaysNothingIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	read := func(ctx context.Context, silence time.Duration, upTo uint64) (last uint64, err error) {
		for m, err := range readSpoken(ctx, silent{has: 3}, 1, silence) {
			if err != nil {
				return last, err
			}
			if last = m.Sequence; last == upTo {
				break
			}
		}
		return last, nil
	}
	if last, err := read(t.Context(), time.Millisecond, 4); last != 3 ||
		!strings.Contains(err.Error(), "nothing for 1ms, when 4 was to be read") {
		t.Error(last, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if last, err := read(ended, time.Hour, 4); last != 3 || !errors.Is(err, context.Canceled) {
		t.Error(last, err)
	}
	if last, err := read(t.Context(), time.Hour, 3); last != 3 || err != nil {
		t.Error(last, err)
	}
}
