package jetstream_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
)

// TestBlobsAreThereUntilTheyAreRemoved: what was stored again since it was listed stays, the store
// outlives the server, and looking for one makes none.
func TestBlobsAreThereUntilTheyAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blobs, stop := openBlobs(t, dir)
	large := bytes.Repeat([]byte("x"), jetstream.BlobEntryMax)
	first, err := blobs.Put(t.Context(), "p", large)
	if err != nil {
		t.Fatal(err)
	}
	second, err := blobs.Put(t.Context(), "p", []byte("small"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blobs.Put(t.Context(), "q", []byte("small")); err != nil {
		t.Fatal(err)
	}
	if _, err := blobs.Put(t.Context(), "q.r", []byte("small")); err == nil {
		t.Error("no plan has such an id")
	}
	stop()
	blobs, stop = openBlobs(t, dir)
	defer stop()
	if got, err := blobs.Get(t.Context(), "p", first); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, digest := range []string{"x", "a.b", ">"} {
		if _, err := blobs.Get(t.Context(), "p", digest); !errors.Is(err, jetstream.ErrNoBlob) {
			t.Errorf("%q: %v", digest, err)
		}
	}
	entries := listed(t, blobs, "p")
	if len(entries) != 2 || len(listed(t, blobs, "")) != 3 || entries[0].Digest != first || entries[1].Plan != "p" {
		t.Fatalf("%+v", entries)
	}
	if _, err := blobs.Put(t.Context(), "p", []byte("small")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, entry := range entries {
			if err := blobs.Remove(t.Context(), entry); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := listed(t, blobs, "p"); len(left) != 1 || left[0].Digest != second {
		t.Errorf("%+v", left)
	}
	if _, err := blobs.Get(t.Context(), "p", first); !errors.Is(err, jetstream.ErrNoBlob) {
		t.Errorf("%v", err)
	}
	if entries, used, err := blobs.Room(t.Context()); err != nil || entries != 2 || used == 0 || used > 1<<10 {
		t.Errorf("%d entries of %d bytes, %v", entries, used, err)
	}
}

func listed(t *testing.T, blobs *jetstream.Blobs, plan string) (list []jetstream.BlobEntry) {
	t.Helper()
	for entry, err := range blobs.All(t.Context(), plan, 0) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, entry)
	}
	return list
}

func openBlobs(t *testing.T, dir string) (*jetstream.Blobs, func()) {
	t.Helper()
	srv, err := embedded.Start(embedded.Config{Dir: dir, Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := srv.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if found, err := jetstream.FindBlobs(t.Context(), jetstream.Config{Conn: conn, Tenant: "other"}); found != nil ||
		err != nil {
		t.Errorf("%v, %v", found, err)
	}
	blobs, err := jetstream.OpenBlobs(t.Context(), jetstream.Config{Conn: conn, Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	return blobs, func() { conn.Close(); srv.Close() }
}
