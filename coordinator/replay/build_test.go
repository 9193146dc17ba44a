package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// TestS40ABuildVersionIsThatOfTheProgram, fits into a record, and is another one for each program.
func TestS40ABuildVersionIsThatOfTheProgram(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	version, err := BuildVersion()
	if err != nil || version != hex.EncodeToString(sum[:6]) || !ledger.ValidToken(version) {
		t.Errorf("%q, %v", version, err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, append(program, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	if of, err := fileVersion(other); err != nil || of == version || len(of) != versionMax {
		t.Errorf("another program: %q, %v", of, err)
	}
	if of, err := fileVersion(t.TempDir()); err == nil {
		t.Errorf("of a folder: %q", of)
	}
}
