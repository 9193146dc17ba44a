package cmdtest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// AsCommand makes a test binary behave as sagenbaum itself. Children inherit it.
const AsCommand = "SAGENBAUM_TEST_AS_COMMAND"

// acts says that this test binary is the command where AsCommand is set.
var acts bool

// Act makes the test binary of the command's own package serve as the command, so that its tests
// drive real processes without building a second binary. It is called first in TestMain; where the
// process was started as the command it runs main and does not return. Tests that call the command
// in their own process have none of the caller's contexts: one is found by the port of the server
// that has saved it, and a test's server may have that port now.
func Act(main func()) {
	if os.Getenv(AsCommand) != "" {
		main()
		os.Exit(0)
	}
	acts = true
	none := filepath.Join(os.TempDir(), "sagenbaum-tests-have-no-contexts")
	if err := os.Setenv("XDG_CONFIG_HOME", none); err != nil {
		panic(err)
	}
}

// Program is the path of the command under test: the test binary itself after Act, and otherwise
// the binary that `go build` makes of this checkout, as it is shipped. It stays what it is while
// the test runs, also when the checkout is built again.
func Program(t testing.TB) string {
	t.Helper()
	find := built
	if acts {
		find = os.Executable
	}
	path, err := find()
	if err != nil {
		t.Fatal(err)
	}
	if own := filepath.Join(t.TempDir(), "sagenbaum"); !acts && os.Link(path, own) == nil {
		return own
	}
	return path
}

// built is the command, built once by each process that asks. Its place stays the same from run to
// run, so that the go command links it only where something has changed.
var built = sync.OnceValues(func() (string, error) {
	folder, err := top()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	of := sha256.Sum256([]byte(folder))
	path := filepath.Join(cache, "sagenbaum-tests", fmt.Sprintf("command-%x", of[:6]), "sagenbaum")
	return path, build(path)
})

// Build builds the command of this checkout into a file, with flags of `go build`.
func Build(t testing.TB, file string, flags ...string) {
	t.Helper()
	if err := build(file, flags...); err != nil {
		t.Fatal(err)
	}
}

func build(file string, flags ...string) error {
	folder, err := top()
	if err != nil {
		return err
	}
	command := exec.Command(
		"go",
		slices.Concat([]string{"build", "-o", file}, flags, []string{"./cmd/sagenbaum"})...)
	command.Dir = folder
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the command: %w\n%s", err, out)
	}
	return nil
}

// top is the folder of this checkout, which has go.mod.
var top = sync.OnceValues(func() (string, error) {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find this module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(gomod))), nil
})

// InCheckout is the path of a file or folder of this checkout.
func InCheckout(t testing.TB, path ...string) string {
	t.Helper()
	folder, err := top()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{folder}, path...)...)
}

// Environment is what the command under test needs in its environment, and nothing of the caller's:
// home is its home and its folder of temporary files.
func Environment(home string) []string {
	return []string{AsCommand + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home,
		"USER=tester"}
}
