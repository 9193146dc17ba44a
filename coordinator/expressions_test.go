package coordinator

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestCheckedConditionsAreBoundedInBytes: an agent that never writes the same condition
// twice keeps a few of them compiled.
func TestCheckedConditionsAreBoundedInBytes(t *testing.T) {
	const conditions, most = 2000, 10 << 20
	x := newExpressions()
	before := heapInUse()
	for i := range conditions {
		var terms []string
		for k := range 24 {
			terms = append(terms, fmt.Sprintf(`facts["k%d"].f%d == %d`, k, i, k))
		}
		if _, err := x.triggers("plan", map[string]string{"t": strings.Join(terms, " || ")}); err != nil {
			t.Fatal(err)
		}
	}
	if took := heapInUse() - before; took > most {
		t.Errorf("%d conditions keep %d bytes, want at most %d", conditions, took, most)
	}
	runtime.KeepAlive(x)
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
