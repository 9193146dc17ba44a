//go:build unix

package mcp

import (
	"context"
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

// Servers whose folders overlap wait for each other, whatever their names, and no others do.
func TestServersWithFoldersInCommonWaitForEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	locks := map[string]*lock{}
	for _, name := range []string{"one", "other"} {
		l, err := newLock(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		locks[name] = l
	}
	for _, c := range []struct {
		one, other []string
		waits      bool
	}{
		{[]string{"/a/b"}, []string{"/a/b"}, true},
		{[]string{"/a/b"}, []string{"/a"}, true},
		{[]string{"/a"}, []string{"/x", "/a/b/c"}, true},
		{[]string{"/"}, []string{"/a"}, true},
		{[]string{"/a/b"}, []string{"/a/bc"}, false},
		{[]string{"/a/b", "/a/c"}, []string{"/a/d"}, false},
		{[]string{"/a"}, nil, false},
	} {
		for _, order := range [][2][]string{{c.one, c.other}, {c.other, c.one}} {
			release, err := locks["one"].take(t.Context(), order[0]...)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*lockPause)
			free, err := locks["other"].take(ctx, order[1]...)
			cancel()
			if waits := err != nil; waits != c.waits {
				t.Errorf("%v beside %v: waits %v, %v", order[1], order[0], waits, err)
			}
			if err == nil {
				free()
			}
			release()
			if free, err = locks["other"].take(t.Context(), order[1]...); err != nil {
				t.Fatal(err)
			}
			free()
		}
	}
}
