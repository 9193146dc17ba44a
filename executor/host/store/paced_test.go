package store

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/rows"
)

// TestASnapshotRestsBetweenParts: the digest is that of all rows, and each quarter of a MB is
// followed by a pause; the end of the host ends it.
func TestASnapshotRestsBetweenParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := rows.NewMemoryKV()
		for i := range 1000 {
			kv.Set(fmt.Appendf(nil, "k%03d", i), make([]byte, 1020)) // 1 KB with its key
		}
		start := time.Now()
		if rows.Digest(paced{kv, t.Context()}) != rows.Digest(kv) {
			t.Error("another digest")
		}
		if took, want := time.Since(start), 3*pacePause; took != want {
			t.Errorf("rested %s, want %s", took, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n := 0
		for range (paced{kv, ctx}).Scan([]byte{0}, []byte{0xff}) {
			n++
		}
		if n == 0 || n >= 1000 {
			t.Errorf("%d rows after the end", n)
		}
	})
}
