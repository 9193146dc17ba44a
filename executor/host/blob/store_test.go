package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
)

// fake is a store of entries, the keys of plans, and their state, in memory.
type fake struct {
	entries  []jetstream.BlobEntry
	bytes    map[string][]byte // by plan and digest
	sequence uint64
	now      time.Time
	damaged  bool
	lost     bool // the stream of the entries; until they are opened
	plans    map[string]State
	named    map[string][]json.RawMessage
	walks    int // of all entries, or of a plan's
	dead     map[string]bool
	hasAll   time.Time // from when on it has what was stored
}

func newFake() *fake {
	return &fake{bytes: map[string][]byte{}, now: time.Unix(1e9, 0), plans: map[string]State{},
		named: map[string][]json.RawMessage{}, dead: map[string]bool{}}
}

func (f *fake) Put(_ context.Context, plan string, stored []byte) (string, error) {
	if f.lost {
		return "", jetstream.ErrNoBlobs
	}
	digest := seal.Digest(stored)
	f.drop(plan, digest, 0)
	f.sequence++
	f.entries = append(f.entries, jetstream.BlobEntry{Plan: plan, Digest: digest, Sequence: f.sequence, Stored: f.now})
	f.bytes[plan+"/"+digest] = stored
	return digest, nil
}

func (f *fake) drop(plan, digest string, sequence uint64) {
	f.entries = slices.DeleteFunc(f.entries, func(e jetstream.BlobEntry) bool {
		return e.Plan == plan && e.Digest == digest && (sequence == 0 || e.Sequence == sequence)
	})
}

func (f *fake) Get(_ context.Context, plan, digest string) ([]byte, error) {
	if f.lost {
		return nil, jetstream.ErrNoBlobs
	}
	if f.damaged {
		return nil, jetstream.ErrBlobDamaged
	}
	if time.Now().Before(f.hasAll) {
		return nil, jetstream.ErrNoBlob
	}
	for _, e := range f.entries {
		if e.Plan == plan && e.Digest == digest {
			return f.bytes[plan+"/"+digest], nil
		}
	}
	return nil, jetstream.ErrNoBlob
}

func (f *fake) Has(_ context.Context, plan, digest string) (bool, error) {
	if f.lost {
		return false, jetstream.ErrNoBlobs
	}
	return slices.ContainsFunc(f.entries, func(e jetstream.BlobEntry) bool {
		return e.Plan == plan && e.Digest == digest
	}), nil
}

func (f *fake) All(_ context.Context, plan string, from uint64) iter.Seq2[jetstream.BlobEntry, error] {
	f.walks++
	return func(yield func(jetstream.BlobEntry, error) bool) {
		for _, e := range slices.Clone(f.entries) {
			if e.Sequence >= from && (plan == "" || plan == e.Plan) && !yield(e, nil) {
				return
			}
		}
	}
}

func (f *fake) Remove(_ context.Context, e jetstream.BlobEntry) error {
	f.drop(e.Plan, e.Digest, e.Sequence)
	return nil
}

func (f *fake) Room(context.Context) (entries, used uint64, err error) {
	for _, e := range f.entries {
		used += uint64(len(f.bytes[e.Plan+"/"+e.Digest]))
	}
	return uint64(len(f.entries)), used, nil
}

func (f *fake) Issue(ctx context.Context, _, plan string) (seal.Key, error) { return f.Key(ctx, plan) }

func (f *fake) Key(_ context.Context, plan string) (seal.Key, error) {
	if f.dead[plan] {
		return seal.Key{}, jetstream.ErrKeyDestroyed
	}
	return seal.Key{1, byte(len(plan))}, nil
}

func (f *fake) Gone(err error) bool { return errors.Is(err, jetstream.ErrKeyDestroyed) }

func (f *fake) store() *Store {
	open := func(context.Context) (Entries, error) {
		if f.lost {
			f.lost, f.entries, f.sequence = false, nil, 0
		}
		return f, nil
	}
	find := func(context.Context) (Entries, error) {
		if f.lost {
			return nil, nil
		}
		return f, nil
	}
	return New(Config{Tenant: "t", Keys: f, Open: open, Find: find, Grace: time.Hour, Every: time.Millisecond,
		Most: 1 << 20, State: func(plan string) State { return f.plans[plan] },
		Named: func(plan string, each func(json.RawMessage)) error {
			for _, document := range f.named[plan] {
				each(document)
			}
			return nil
		},
		Log: slog.New(slog.DiscardHandler)})
}

// stored stores a value in chunks, as a client does.
func stored(t *testing.T, s *Store, plan, value string) seal.Blob {
	t.Helper()
	m := seal.Manifest{Bytes: int64(len(value))}
	for chunk := range slices.Chunk([]byte(value), seal.BlobChunk) {
		digest, err := s.Put(t.Context(), "a", plan, chunk)
		if err != nil {
			t.Fatal(err)
		}
		m.Chunks = append(m.Chunks, digest)
	}
	sum := sha256.Sum256([]byte(value))
	m.SHA256 = hex.EncodeToString(sum[:])
	b, err := s.End(t.Context(), "a", plan, "", m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func named(b seal.Blob) []json.RawMessage {
	text, _ := json.Marshal(map[string]any{"x": b})
	return []json.RawMessage{text}
}

// TestOnlyWhatNothingRefersToIsRemoved: of plans that have ended, and only what is old.
func TestOnlyWhatNothingRefersToIsRemoved(t *testing.T) {
	f := newFake()
	s := f.store()
	long := strings.Repeat("y", seal.BlobChunk) + "z"
	kept, loose := stored(t, s, "ended", long), stored(t, s, "ended", "loose")
	open, unknown, erased := stored(t, s, "open", "o"), stored(t, s, "unknown", "u"), stored(t, s, "erased", "e")
	f.plans["open"] = State{Known: true}
	f.plans["ended"], f.named["ended"] = State{Known: true, Ended: true}, named(kept)
	f.plans["erased"], f.named["erased"] = State{Known: true, Ended: true, Erased: true}, named(erased)
	has := func(what string, want bool, b seal.Blob) {
		t.Helper()
		_, err := s.Read(t.Context(), b.Plan, b.Digest, 0)
		if gone := errors.As(err, new(*Gone)); gone == want || err != nil && !gone {
			t.Errorf("%s: %v", what, err)
		}
	}
	sweep := func(after time.Duration) {
		t.Helper()
		if _, err := s.collect(t.Context(), f.now.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	sweep(59 * time.Minute)
	has("what is young", true, loose)
	has("what was erased", false, erased)
	f.damaged = true
	if n, err := s.collect(t.Context(), f.now.Add(2*time.Hour)); !errors.Is(err, jetstream.ErrBlobDamaged) || n != 2 {
		t.Errorf("of a plan whose manifest cannot be read, and one that is unknown: %d removed, %v", n, err)
	}
	f.damaged = false
	f.now = f.now.Add(30 * time.Minute)
	again := stored(t, s, "ended", "loose")
	sweep(45 * time.Minute)
	has("what was stored again", true, again)
	sweep(2 * time.Hour)
	has("what no record names", false, loose)
	has("what no plan has", false, unknown)
	has("what an open plan has", true, open)
	has("what a record names", true, kept)
	if chunk, err := s.Read(t.Context(), "ended", kept.Digest, 1); err != nil || string(chunk) != "z" {
		t.Errorf("its last chunk: %q, %v", chunk, err)
	}
	if entries, _, _ := f.Room(t.Context()); entries != 5 {
		t.Errorf("%d entries are left: %+v", entries, f.entries)
	}
	f.walks = 0
	sweep(3 * time.Hour)
	if f.walks != 1 {
		t.Errorf("%d walks where nothing happened; the entries that are new are listed, and no others", f.walks)
	}
	f.plans["ended"] = State{Known: true, Ended: true, Erased: true}
	sweep(3 * time.Hour)
	has("what was erased since", false, kept)
}

// TestABlobIsMadeOfWhatIsStoredOnly: what is wrong at once is refused by its field, and what its
// owner says of its chunks is held against them when they are read.
func TestABlobIsMadeOfWhatIsStoredOnly(t *testing.T) {
	f := newFake()
	s := f.store()
	short, err := s.Put(t.Context(), "a", "p", []byte("short"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("short"))
	right := hex.EncodeToString(sum[:])
	for field, m := range map[string]seal.Manifest{
		"request.chunks[0]": {Bytes: 5, SHA256: right, Chunks: []string{right}},
		"request.chunks[1]": {Bytes: seal.BlobChunk + 5, SHA256: right, Chunks: []string{short, right}},
		"request.chunks":    {Bytes: 5, SHA256: right},
		"request.bytes":     {Bytes: seal.BlobMax + 1, SHA256: right, Chunks: []string{short}},
	} {
		_, err := s.End(t.Context(), "a", "p", "", m)
		if refused := new(ledger.Refused); !errors.As(err, &refused) || refused.Field != field || refused.Want == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	for what, m := range map[string]seal.Manifest{
		"fewer bytes":                   {Bytes: 4, SHA256: right, Chunks: []string{short}},
		"more bytes":                    {Bytes: 6, SHA256: right, Chunks: []string{short}},
		"a short chunk before the last": {Bytes: seal.BlobChunk + 5, SHA256: right, Chunks: []string{short, short}},
	} {
		b, err := s.End(t.Context(), "a", "p", "", m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context(), "p", b.Digest, 0); !errors.As(err, new(*Gone)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, size := range []int{0, seal.BlobChunk + 1} {
		if _, err := s.Put(t.Context(), "a", "p", make([]byte, size)); err == nil {
			t.Errorf("a chunk of %d bytes is taken", size)
		}
	}
	b := stored(t, s, "p", "short")
	if _, err := s.Read(t.Context(), "p", b.Digest, 1); !errors.As(err, new(*ledger.Refused)) {
		t.Errorf("a chunk that it does not have: %v", err)
	}
	if err := s.Check(t.Context(), "p", named(b)[0]); err != nil {
		t.Error(err)
	}
	again := strings.Repeat(string(named(b)[0])+",", 2*seal.BlobsBrought)
	if err := s.Check(t.Context(), "p", json.RawMessage("["+strings.TrimSuffix(again, ",")+"]")); err != nil {
		t.Errorf("one blob, many times: %v", err)
	}
	many := []json.RawMessage{}
	for n := range seal.BlobsBrought + 1 {
		many = append(many, named(seal.Blob{Plan: "p", Digest: seal.Digest([]byte{byte(n), byte(n >> 8)})})[0])
	}
	list, _ := json.Marshal(many)
	var gone *Gone
	if err := s.Check(t.Context(), "p", list); !errors.As(err, &gone) || !strings.Contains(err.Error(), "at most") {
		t.Errorf("many blobs: %v", err)
	}
	for _, document := range []string{strings.Replace(string(named(b)[0]), `"bytes":5`, `"bytes":6`, 1)} {
		if err := s.Check(t.Context(), "p", json.RawMessage(document)); !errors.As(err, new(*Gone)) {
			t.Errorf("%.90s: %v", document, err)
		}
	}
	f.dead["p"] = true
	if err := s.Check(t.Context(), "p", named(b)[0]); !errors.As(err, new(*Gone)) {
		t.Errorf("after its key was destroyed: %v", err)
	}
}

// TestATenantsBlobsHaveABound, and what was removed makes room.
func TestATenantsBlobsHaveABound(t *testing.T) {
	f := newFake()
	s := f.store()
	chunk := func(n int) error {
		_, err := s.Put(t.Context(), "a", "p", append(make([]byte, seal.BlobChunk-1), byte(n)))
		return err
	}
	for n := range 3 {
		if err := chunk(n); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := chunk(3); !errors.Is(err, ErrFull) {
			t.Errorf("over the bound: %v", err)
		}
	}
	f.entries = f.entries[:1]
	if err := chunk(3); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if _, err := s.collect(t.Context(), f.now); err != nil {
		t.Fatal(err)
	}
	if room := s.Room(); room.Entries != 2 || room.Used < 2*seal.BlobChunk || room.Most != 1<<20 {
		t.Errorf("%+v", room)
	}
}

// TestWhatHasTheMarkIsNeverLeftOut: what is no reference keeps what it names, and goes to no worker;
// one that is written in another way is one.
func TestWhatHasTheMarkIsNeverLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		change func(string) string
		good   bool
	}{
		"escaped": {func(d string) string { return strings.ReplaceAll(d, "/", `\/`) }, true},
		"letters escaped": {func(d string) string {
			return strings.Replace(d, "sagenbaum", `\u0073agenbaum`, 1)
		}, true},
		"a fraction": {func(d string) string { return strings.Replace(d, `"bytes":4`, `"bytes":4.0`, 1) }, false},
		"one more":   {func(d string) string { return strings.Replace(d, `"bytes":4`, `"bytes":4,"n":[1]`, 1) }, false},
		"twice": {func(d string) string {
			return strings.Replace(d, `"bytes"`, `"sagenbaum/blob/v1":"q/0","bytes"`, 1)
		}, false},
		"another case": {func(d string) string {
			return strings.Replace(d, `"bytes"`, `"Sagenbaum/blob/v1":"q/0","bytes"`, 1)
		}, false},
	} {
		f := newFake()
		s := f.store()
		b := stored(t, s, "p", "kept")
		document := json.RawMessage(c.change(string(named(b)[0])))
		f.plans["p"], f.named["p"] = State{Known: true, Ended: true}, []json.RawMessage{document}
		if _, err := s.collect(t.Context(), f.now.Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(t.Context(), "p", b.Digest, 0); err != nil {
			t.Errorf("%s: it was removed: %v", name, err)
		}
		if err := s.Check(t.Context(), "p", document); c.good != (err == nil) || !c.good && !errors.As(err, new(*Gone)) {
			t.Errorf("%s: %s: %v", name, document, err)
		}
		never := strings.ReplaceAll(string(document), b.Digest, strings.Repeat("0", 64))
		if err := s.Check(t.Context(), "p", json.RawMessage(never)); !errors.As(err, new(*Gone)) {
			t.Errorf("%s, never stored: %v", name, err)
		}
	}
}

// TestACommandNeedsEachChunk of its blobs, and all that was lost is missing.
func TestACommandNeedsEachChunk(t *testing.T) {
	f := newFake()
	s := f.store()
	b := stored(t, s, "p", strings.Repeat("y", seal.BlobChunk)+"z")
	m, err := s.Manifest(t.Context(), "p", b.Digest)
	if err != nil {
		t.Fatal(err)
	}
	entries := slices.Clone(f.entries)
	for _, chunk := range m.Chunks {
		f.drop("p", chunk, 0)
		if err := s.Check(t.Context(), "p", named(b)[0]); !errors.As(err, new(*Gone)) {
			t.Errorf("without a chunk: %v", err)
		}
		f.entries = slices.Clone(entries)
	}
	if err := s.Check(t.Context(), "p", named(b)[0]); err != nil {
		t.Error(err)
	}
	if _, err := s.collect(t.Context(), f.now); err != nil {
		t.Fatal(err)
	}
	f.lost = true
	if err := s.Check(t.Context(), "p", named(b)[0]); !errors.As(err, new(*Gone)) {
		t.Errorf("of a store that was lost: %v", err)
	}
	f.plans["p"] = State{Known: true, Ended: true}
	stored(t, s, "p", "loose")
	if n, err := s.collect(t.Context(), f.now.Add(2*time.Hour)); err != nil || n != 2 {
		t.Errorf("of the one that was made again: %d removed, %v", n, err)
	}
}

// TestARecordThatNamesAChunkEndsNoCollection of its plan.
func TestARecordThatNamesAChunkEndsNoCollection(t *testing.T) {
	f := newFake()
	s := f.store()
	loose := stored(t, s, "p", "loose")
	chunk, err := s.Put(t.Context(), "a", "p", []byte("chunk"))
	if err != nil {
		t.Fatal(err)
	}
	f.plans["p"] = State{Known: true, Ended: true}
	f.named["p"] = named(seal.Blob{Plan: "p", Digest: chunk, Bytes: 5})
	if n, err := s.collect(t.Context(), f.now.Add(2*time.Hour)); n != 2 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
	if _, err := s.Manifest(t.Context(), "p", loose.Digest); !errors.As(err, new(*Gone)) {
		t.Errorf("%v", err)
	}
	if there, _ := f.Has(t.Context(), "p", chunk); !there {
		t.Error("what a record names was removed")
	}
}

// TestManifestsCount in what the blobs of a tenant take.
func TestManifestsCount(t *testing.T) {
	f := newFake()
	s := f.store()
	chunk, err := s.Put(t.Context(), "a", "p", make([]byte, seal.BlobChunk))
	for n := 0; err == nil && n < 1000; n++ {
		_, err = s.End(t.Context(), "a", "p", "", seal.Manifest{Bytes: seal.BlobMax, SHA256: fmt.Sprintf("%064x", n),
			Chunks: slices.Repeat([]string{chunk}, seal.BlobMax/seal.BlobChunk)})
	}
	if _, used, _ := f.Room(t.Context()); !errors.Is(err, ErrFull) || used > s.Most {
		t.Errorf("%d bytes of at most %d, %v", used, s.Most, err)
	}
}

// TestWhatANewLeaderHasNotReadYetIsLookedForAgain for as long as the host was told, and not longer.
func TestWhatANewLeaderHasNotReadYetIsLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.store()
		b := stored(t, s, "p", "here soon")
		s.Again = 10 * time.Second
		for _, c := range []struct {
			lag, took time.Duration
			found     bool
		}{{0, 0, true}, {2500 * time.Millisecond, 3 * time.Second, true}, {time.Minute, 10 * time.Second, false}} {
			start := time.Now()
			f.hasAll = start.Add(c.lag)
			err := s.Check(t.Context(), "p", named(b)[0])
			if c.found != (err == nil) || !c.found && !errors.As(err, new(*Gone)) || time.Since(start) != c.took {
				t.Errorf("%v late: %v after %v", c.lag, err, time.Since(start))
			}
		}
		f.hasAll, f.damaged = time.Time{}, true
		if start, err := time.Now(), s.Check(t.Context(), "p", named(b)[0]); !errors.As(err, new(*Gone)) ||
			time.Since(start) != 0 {
			t.Errorf("one that is damaged: %v after %v", err, time.Since(start))
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second/2)
		defer stop()
		f.hasAll, f.damaged = time.Now().Add(time.Minute), false
		if err := s.Check(ctx, "p", named(b)[0]); errors.As(err, new(*Gone)) || err == nil {
			t.Errorf("a host that ends: %v", err)
		}
	})
}
