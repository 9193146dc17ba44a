package testenv

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var npmMu sync.Mutex

// NPM is a folder in which packages from npm, each with its version, are installed in
// node_modules. They are installed once, into the user's cache. Without node and npm, or without a
// network at the first time, the test is skipped, which its output says: what it proves is not
// proven then.
func NPM(t testing.TB, packages ...string) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIPPED: there is no %s, so that nothing is tested against %v", program, packages)
		}
	}
	npmMu.Lock()
	defer npmMu.Unlock()
	dir, err := installed(packages)
	if err != nil {
		t.Skipf(
			"SKIPPED: cannot install from npm, so that nothing is tested against %v: %v",
			packages,
			err,
		)
	}
	return dir
}

// installed makes the folder under another name first, so that two processes do not meet.
func installed(packages []string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(packages, " ")))
	dir := filepath.Join(cache, "sagenbaum-tests", fmt.Sprintf("npm-%x", sum[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	draft, err := os.MkdirTemp(filepath.Dir(dir), "draft-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(draft)
	ctx, cancel := context.WithTimeout(context.Background(), Patience) // a network may say nothing
	defer cancel()
	npm := exec.CommandContext(ctx, "npm",
		append([]string{"install", "--prefix", draft, "--no-audit", "--no-fund"}, packages...)...)
	npm.WaitDelay = aloneMargin
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w\n%s", err, out)
	}
	if err := os.Rename(draft, dir); err != nil {
		if _, there := os.Stat(dir); there == nil {
			return dir, nil // another process was faster
		}
		return "", err
	}
	return dir, nil
}
