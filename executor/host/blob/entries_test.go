package blob

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/ledger/testenv/served"
)

// entriesOf are the entries of a server.
func entriesOf(t *testing.T) Entries {
	t.Helper()
	_, conn := served.NATS(t)
	entries, err := jetstream.OpenBlobs(t.Context(), jetstream.Config{Conn: conn, Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// TestTheEntriesOfAServerAndOfTestsDoTheSame.
func TestTheEntriesOfAServerAndOfTestsDoTheSame(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string]Entries{"tests": newFake(), "a server": entriesOf(t)} {
		t.Run(name, func(t *testing.T) {
			put := func(plan, value string) string {
				digest, err := entries.Put(t.Context(), plan, []byte(value))
				if err != nil || digest != seal.Digest([]byte(value)) {
					t.Fatalf("%s, %v", digest, err)
				}
				return digest
			}
			list := func(plan string, from uint64) (digests []string, last jetstream.BlobEntry) {
				for entry, err := range entries.All(t.Context(), plan, from) {
					if err != nil {
						t.Fatal(err)
					}
					digests, last = append(digests, entry.Plan+"/"+entry.Digest), entry
				}
				return digests, last
			}
			want := func(what string, got []string, want ...string) {
				t.Helper()
				if !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			one, two := put("p", "one"), put("q", "two")
			_, first := list("p", 0)
			put("p", "one")
			all, last := list("", 0)
			want("what was stored again is the last", all, "q/"+two, "p/"+one)
			if last.Sequence <= first.Sequence || last.Stored.Before(first.Stored) {
				t.Errorf("it was stored at %+v, and at %+v again", first, last)
			}
			news, _ := list("", last.Sequence)
			want("from a sequence on", news, "p/"+one)
			none, _ := list("", last.Sequence+1)
			want("after the last", none)
			if err := entries.Remove(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			for plan, digest := range map[string]string{"p": one, "q": two} {
				got, err := entries.Get(t.Context(), plan, digest)
				if there, problem := entries.Has(t.Context(), plan, digest); err != nil || !there || problem != nil ||
					!bytes.Equal(got, []byte(map[string]string{"p": "one", "q": "two"}[plan])) {
					t.Errorf("%s: %q, %v, there %v, %v", plan, got, err, there, problem)
				}
			}
			if err := entries.Remove(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			_, err := entries.Get(t.Context(), "p", one)
			there, problem := entries.Has(t.Context(), "p", one)
			if !errors.Is(err, jetstream.ErrNoBlob) || there || problem != nil {
				t.Errorf("what was removed: %v, there %v, %v", err, there, problem)
			}
			if count, used, err := entries.Room(t.Context()); count != 1 || used < 3 || err != nil {
				t.Errorf("%d entries of %d bytes, %v", count, used, err)
			}
		})
	}
}

// TestAServersEntriesAreCollected: of an ended plan what no record names, and of an erased one all.
func TestAServersEntriesAreCollected(t *testing.T) {
	t.Parallel()
	f, entries := newFake(), entriesOf(t)
	open := func(context.Context) (Entries, error) { return entries, nil }
	config := f.store().Config
	config.Open, config.Find, config.Log = open, open, slog.New(slog.DiscardHandler)
	s := New(config)
	kept, loose, erased := stored(t, s, "ended", "kept"), stored(t, s, "ended", "loose"), stored(t, s, "erased", "e")
	f.plans["ended"], f.named["ended"] = State{Known: true, Ended: true}, named(kept)
	f.plans["erased"] = State{Known: true, Ended: true, Erased: true}
	for _, after := range []time.Duration{0, 2 * time.Hour} { // a chunk and a manifest each
		if removed, err := s.collect(t.Context(), time.Now().Add(after)); err != nil || removed != 2 {
			t.Errorf("after %v: %d removed, %v", after, removed, err)
		}
	}
	for what, c := range map[string]struct {
		blob  seal.Blob
		there bool
	}{"kept": {kept, true}, "loose": {loose, false}, "erased": {erased, false}} {
		if _, err := s.Read(t.Context(), c.blob.Plan, c.blob.Digest, 0); (err == nil) != c.there {
			t.Errorf("%s: %v", what, err)
		}
	}
}
