package tiles

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// spanned is a ledger whose stream begins after a repair: what comes before is in
// the tiles. Everything else is the stream's.
type spanned struct {
	ledger.Store
	first uint64 // of the stream
	tiles *Files
}

// Span puts the tiles in front of a stream that begins after its first sequence.
func Span(store ledger.Store, head ledger.Head, tiles *Files) ledger.Store {
	if head.First <= 1 {
		return store
	}
	return &spanned{store, head.First, tiles}
}

// Get is as in ledger.Store.
func (s *spanned) Get(ctx context.Context, sequence uint64) (ledger.Message, error) {
	if sequence == 0 || sequence >= s.first {
		return s.Store.Get(ctx, sequence)
	}
	m, err := s.tiles.message(sequence)
	return m, haltOnTiles(err, sequence)
}

// Read is as in ledger.Store.
func (s *spanned) Read(ctx context.Context, from uint64) iter.Seq2[ledger.Message, error] {
	if from == 0 || from >= s.first {
		return s.Store.Read(ctx, from)
	}
	return func(yield func(ledger.Message, error) bool) {
		for m, err := range s.tiles.Messages(from) {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			if m.Sequence == s.first {
				break // from here on the stream has it
			}
			if !yield(m, haltOnTiles(err, from)) || err != nil {
				return
			}
			from++
		}
		if from != s.first {
			yield(ledger.Message{},
				&ledger.Halted{Guard: "G1", Sequence: from,
					Problem: fmt.Sprintf("the tiles end here, and the stream starts at %d", s.first)})
			return
		}
		for m, err := range s.Store.Read(ctx, from) {
			if !yield(m, err) {
				return
			}
		}
	}
}

// haltOnTiles says of damaged tiles that nothing can go on without them.
func haltOnTiles(err error, sequence uint64) error {
	var damaged *ReadError
	if errors.As(err, &damaged) {
		return &ledger.Halted{Guard: "G3", Sequence: sequence, Problem: damaged.Error()}
	}
	return err
}
