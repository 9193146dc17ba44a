package jetstream_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// TestKeysAreThereUntilTheyAreDestroyedForGood: each plan gets one, which outlives the
// server; one that was destroyed is overwritten in the server's files, and never comes back.
func TestKeysAreThereUntilTheyAreDestroyedForGood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := []byte("wrapped-key-of-plan-p-0123456789")
	open := func() (*jetstream.Keys, func()) { return openKeys(t, dir) }
	found := func() int { return occurs(t, dir, secret) }
	keys, stop := open()
	if _, err := keys.Get(t.Context(), "p"); !errors.Is(err, jetstream.ErrNoKey) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(keys.Create(t.Context(), "p", secret),
		keys.Create(t.Context(), "q", []byte("other"))); err != nil {
		t.Fatal(err)
	}
	if err := keys.Create(t.Context(), "p", []byte("again")); !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("a second key: %v", err)
	}
	stop()
	if found() == 0 {
		t.Error("the key is not in the files of the server, so that this test shows nothing")
	}
	keys, stop = open()
	if value, err := keys.Get(t.Context(), "p"); err != nil || !bytes.Equal(value, secret) {
		t.Errorf("%q, %v", value, err)
	}
	for range 2 {
		if err := errors.Join(keys.Destroy(t.Context(), "p"), keys.Destroy(t.Context(), "never")); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if n := found(); n != 0 {
		t.Errorf("the key stands in the files of the server still, %d times", n)
	}
	keys, stop = open()
	defer stop()
	for _, plan := range []string{"p", "never"} {
		if _, err := keys.Get(t.Context(), plan); !errors.Is(err, jetstream.ErrKeyDestroyed) {
			t.Errorf("%s: %v", plan, err)
		}
		if err := keys.Create(t.Context(), plan, secret); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("%s gets a key anew: %v", plan, err)
		}
	}
	if value, err := keys.Get(t.Context(), "q"); err != nil || string(value) != "other" {
		t.Errorf("another plan's: %q, %v", value, err)
	}
	if _, err := keys.Get(t.Context(), "a.b"); !errors.Is(err, jetstream.ErrNoKey) ||
		keys.Create(t.Context(), "a.b", secret) == nil {
		t.Errorf("no plan: %v", err)
	}
}

// openKeys starts a server on a folder, with the keys of tenant t.
func openKeys(t *testing.T, dir string) (*jetstream.Keys, func()) {
	t.Helper()
	srv, err := embedded.Start(embedded.Config{Dir: dir, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := jetstream.OpenKeys(t.Context(), jetstream.Config{Conn: conn, Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	return keys, func() { conn.Close(); srv.Close() }
}

// occurs counts a text in all files of a folder.
func occurs(t *testing.T, dir string, text []byte) (count int) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		count += bytes.Count(content, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}
