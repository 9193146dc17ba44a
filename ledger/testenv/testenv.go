// Package testenv is what the tests of this module share: how much work a run does, and a
// process of its own for a test that has to change its process.
//
// A plain run, `go test ./...`, asserts everything over a fixed part of the random cases. A
// long run, SAGENBAUM_LONG=1, does all of them.
package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	longVariable  = "SAGENBAUM_LONG"
	aloneVariable = "SAGENBAUM_TEST_ALONE"

	// aloneMargin is what a child process has less than the test that started it, so that
	// its own report of a test that hangs comes first.
	aloneMargin = 5 * time.Second
)

// Patience is how long a test waits for what has to happen, before it fails. Nothing is ever waited
// out: it only has to be longer than a machine takes that does much else. What has to happen soon
// is measured in processor time (CPU), or with a clock of its own (testing/synctest).
const Patience = 2 * time.Minute

// Long reports whether this is a long run: SAGENBAUM_LONG is set, and not to 0.
func Long() bool {
	asked := os.Getenv(longVariable)
	return asked != "" && asked != "0"
}

// Cases returns how many cases a test runs: plain in a plain run, all in a long one.
func Cases(plain, all int) int {
	if Long() {
		return all
	}
	return plain
}

// Alone runs the body of a test in a process of its own, so that limits, signals and
// whatever else belongs to a whole process meet no other test. The child is the same test
// binary and runs this test only; its failures and its skip are the test's. The test must
// be no subtest; what it does beside Alone happens in both processes.
func Alone(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if isAlone(t.Name()) {
		body(t)
		return
	}
	if strings.Contains(t.Name(), "/") {
		t.Fatal("testenv.Alone is for tests, not for subtests")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^" + regexp.QuoteMeta(t.Name()) + "$", "-test.v=true", "-test.count=1"}
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		left := time.Until(deadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
		args = append(args, "-test.timeout="+max(left-aloneMargin, time.Second).String())
	}
	command := exec.CommandContext(ctx, self, args...)
	command.Env = append(os.Environ(), aloneVariable+"="+t.Name())
	out, err := command.CombinedOutput()
	said := "\n" + string(out)
	switch {
	case err != nil:
		t.Errorf("in a process of its own: %v\n%s", err, out)
	case strings.Contains(said, fmt.Sprintf("\n--- SKIP: %s (", t.Name())):
		t.Skip(string(out))
	case !strings.Contains(said, fmt.Sprintf("\n--- PASS: %s (", t.Name())):
		t.Errorf("the process of its own did not run the test:\n%s", out)
	default:
		t.Logf("in a process of its own:\n%s", out)
	}
}

// isAlone reports whether this process was started for a test of this name.
func isAlone(name string) bool { return os.Getenv(aloneVariable) == name }

// mustBeAlone ends a test that is about to change a process that it shares with others.
func mustBeAlone(t *testing.T, what string) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if !isAlone(name) {
		t.Fatalf("%s changes the whole process: call it inside testenv.Alone", what)
	}
}
