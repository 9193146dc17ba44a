package masterkey

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// TestAFolderThatCannotBeReadIsNoKeyThatIsToBeMoved: as one of another user, or here a file.
func TestAFolderThatCannotBeReadIsNoKeyThatIsToBeMoved(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Default(data+".keys", data)
	f, ok := err.(*cli.Failure)
	if !ok || !strings.HasPrefix(f.Text, "cannot read the folder "+data+": ") ||
		!strings.HasPrefix(f.Hint, "chown -R ") {
		t.Errorf("%+v", err)
	}
}
