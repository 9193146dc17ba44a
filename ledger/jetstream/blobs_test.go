package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
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

// TestWhatIsStoredInAClusterIsThereAtOnce, whichever server is asked: what is missing counts for
// ever. A store of one replica that any may answer for, as earlier versions made it, is mended.
func TestWhatIsStoredInAClusterIsThereAtOnce(t *testing.T) {
	c := sharedCluster(t)
	ctx := within(t, 2*time.Minute)
	subject := "blobs.t.*.*"
	var stream js.Stream
	for i, server := range c.servers {
		conn, err := nats.Connect(server.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client, err := js.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			until(t, ctx, "an old store", func() error {
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				stream, err = client.CreateStream(ctx, js.StreamConfig{Name: jetstream.BlobsStreamName("t"),
					Subjects: []string{subject}, MaxMsgsPerSubject: 1, AllowDirect: true})
				return err
			})
			defer func() { _ = client.DeleteStream(context.Background(), jetstream.BlobsStreamName("t")) }()
		}
		var blobs *jetstream.Blobs
		until(t, ctx, "open", func() error {
			blobs, err = jetstream.OpenBlobs(ctx, jetstream.Config{Conn: conn, Tenant: "t", Replicas: 3})
			return err
		})
		if i == 0 {
			until(t, ctx, "its replicas", func() error {
				info, err := stream.Info(ctx)
				if err == nil && (info.Cluster == nil || len(info.Cluster.Replicas) != 2 || info.Config.AllowDirect) {
					err = fmt.Errorf("%+v, %+v", info.Config, info.Cluster)
				}
				return err
			})
		}
		for n := range 100 {
			digest, err := blobs.Put(ctx, "p", append(make([]byte, 17<<10), fmt.Sprint(i, n)...))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = blobs.Get(ctx, "p", digest); err != nil {
				t.Errorf("server %d, entry %d: %v", i, n, err)
			}
		}
	}
}

// TestAStoreThatIsDamagedOrLostIsSaidToBe: that it is lost by each question, and not the entry alone.
func TestAStoreThatIsDamagedOrLostIsSaidToBe(t *testing.T) {
	t.Parallel()
	conn := connect(t, startServer(t, embedded.Config{Dir: t.TempDir()}))
	blobs, err := jetstream.OpenBlobs(t.Context(), jetstream.Config{Conn: conn, Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Request("blobs.t.p.0a", []byte("of another digest"), testenv.Patience); err != nil {
		t.Fatal(err)
	}
	if _, err := blobs.Get(t.Context(), "p", "0a"); !errors.Is(err, jetstream.ErrBlobDamaged) {
		t.Errorf("other bytes under a digest: %v", err)
	}
	client, err := js.New(conn)
	if err != nil || client.DeleteStream(t.Context(), jetstream.BlobsStreamName("t")) != nil {
		t.Fatal("cannot delete it")
	}
	_, put := blobs.Put(t.Context(), "p", []byte("x"))
	_, get := blobs.Get(t.Context(), "p", "0a")
	_, has := blobs.Has(t.Context(), "p", "0a")
	_, _, room := blobs.Room(t.Context())
	var all error
	for _, err := range blobs.All(t.Context(), "", 0) {
		all = err
	}
	for what, err := range map[string]error{"put": put, "get": get, "has": has, "room": room, "all": all} {
		if !errors.Is(err, jetstream.ErrNoBlobs) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestATenantWithoutBlobsMakesNoRequestThatIsRefused, however often its store is looked for.
func TestATenantWithoutBlobsMakesNoRequestThatIsRefused(t *testing.T) {
	t.Parallel()
	conn := connect(t, startServer(t, embedded.Config{Dir: t.TempDir()}))
	for range 3 {
		found, err := jetstream.FindBlobs(t.Context(), jetstream.Config{Conn: conn, Tenant: "t"})
		if found != nil || err != nil {
			t.Errorf("%v, %v", found, err)
		}
	}
	client, err := js.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := client.AccountInfo(t.Context()); err != nil || info.API.Errors != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}
