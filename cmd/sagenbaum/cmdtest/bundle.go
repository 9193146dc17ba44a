package cmdtest

import (
	"os"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/verify"
)

// CheckedFile is the report on a bundle.
func CheckedFile(t *testing.T, file string, o verify.Options) *verify.Report {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := verify.Check(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
