package render

import (
	"testing"
)

func TestSizesAreSaidByTheirLargestUnit(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 30: "5.0 GiB",
		1 << 63: "8.0 EiB"} {
		if got := BytesText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
