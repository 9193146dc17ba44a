//go:build unix

package mcp

import (
	"path/filepath"
	"testing"
)

// A gateway that closes does not wait for each call: one gives its lock back later, and none takes
// it any more.
func TestALockIsGivenBackAfterItIsClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	guard, err := newLock(path)
	if err != nil {
		t.Fatal(err)
	}
	release, err := guard.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	guard.close()
	other, err := newLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	free, err := other.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	release()
	if _, err := guard.take(t.Context()); err == nil {
		t.Error("a lock that is closed is taken")
	}
}
