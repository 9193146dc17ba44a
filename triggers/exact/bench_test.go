package exact_test

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/triggers/exact"
)

// BenchmarkSame is of a fact that changes: a source reports a step, or a price.
func BenchmarkSame(b *testing.B) {
	for name, c := range map[string][2]string{
		"number": {"100", "101"}, "text": {`"open"`, `"cancelled"`},
		"object": {`{"id":"o7","status":"open","price":100.5}`, `{"id":"o7","status":"open","price":101.5}`},
		"order":  {`{"id":"o7","status":"open","price":100.5}`, `{"status":"open","id":"o7","price":100.50}`},
	} {
		b.Run(name, func(b *testing.B) {
			x, y := []byte(c[0]), []byte(c[1])
			b.ReportAllocs()
			for b.Loop() {
				exact.Same(x, y)
			}
		})
	}
}
