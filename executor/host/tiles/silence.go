package tiles

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// silenceMax is how long the next message of a stream is waited for where it is there: servers
// without a leader deliver none.
const silenceMax = 30 * time.Second

// readSpoken is store.Read for whoever reads no further than the stream has messages: it ends with
// an error where none comes for silenceMax, and does not wait until its servers answer again.
func readSpoken(ctx context.Context, store ledger.Store, from uint64) iter.Seq2[ledger.Message,
	error] {
	return func(yield func(ledger.Message, error) bool) {
		within, cancel := context.WithCancel(ctx)
		defer cancel()
		silent := time.AfterFunc(silenceMax, cancel)
		defer silent.Stop()
		for m, err := range store.Read(within, from) {
			silent.Stop() // what is done with it may take longer
			if err != nil && within.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("the ledger has said nothing for %s, when %d was to be read", silenceMax,
					from)
			}
			if !yield(m, err) || err != nil {
				return
			}
			from = m.Sequence + 1
			silent.Reset(silenceMax)
		}
	}
}
