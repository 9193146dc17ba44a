// Package blob has the values of plans that are too large for a record: [Store] seals them under
// the key of their plan, keeps them by their digest and gives them back, [Store.Collect] removes
// those that nothing refers to. It holds a chunk in memory for each request that it works on, and
// nothing in between.
package blob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
)

// Keys has the keys of plans: *vault.Keyring.
type Keys interface {
	Issue(ctx context.Context, agent, plan string) (seal.Key, error)
	Key(ctx context.Context, plan string) (seal.Key, error)
	Gone(err error) bool
}

// Entries keeps bytes by their digest: *jetstream.Blobs.
type Entries interface {
	Put(ctx context.Context, plan string, stored []byte) (digest string, err error)
	Get(ctx context.Context, plan, digest string) ([]byte, error)
	Has(ctx context.Context, plan, digest string) (bool, error)
	All(ctx context.Context, plan string, from uint64) iter.Seq2[jetstream.BlobEntry, error]
	Remove(ctx context.Context, entry jetstream.BlobEntry) error
	Room(ctx context.Context) (entries, used uint64, err error)
}

// ErrFull: the blobs of the tenant take as much as they may.
var ErrFull = errors.New("the blobs of the tenant take all that they may")

// Room is what the blobs of a tenant take, and may take, in bytes.
type Room struct{ Entries, Used, Most uint64 }

// State is that of a plan that blobs are stored for.
type State struct {
	Known  bool // the ledger has it
	Ended  bool // nothing more is to come of it, but what comes late
	Erased bool
}

// Config says whose blobs a Store has. All fields are required.
type Config struct {
	Tenant string
	Keys   Keys
	// Open opens the entries, which it makes where they are missing. Find does not: nil.
	Open, Find func(context.Context) (Entries, error)
	// State looks a plan up, and Named passes what of it may refer to blobs.
	State func(plan string) State
	Named func(plan string, each func(json.RawMessage)) error
	// Grace is how old what no one refers to must be before it is removed; Every is how often that
	// is looked for.
	Grace, Every time.Duration
	// Again is for how long Check looks for what it does not find, every second: a server that has
	// just become the leader of the store may not have read all of it yet.
	Again time.Duration
	Most  uint64 // bytes that they may take
	Log   *slog.Logger
}

// Store has the blobs of one tenant. It is safe for concurrent use.
type Store struct {
	Config
	mu      sync.Mutex
	entries Entries
	used    uint64 // bytes at most, since it was asked last
	asked   bool   // how much that is

	shown sync.Mutex // room; it is never held for long
	room  Room

	// Collect's own.
	plans  map[string]*seen
	looked uint64 // last entry that it has seen
	seenIn Entries
}

// New makes the store of a tenant, which is opened the first time that something is asked of it.
func New(cfg Config) *Store {
	return &Store{Config: cfg, plans: map[string]*seen{}, room: Room{Most: cfg.Most}}
}

// Gone is why a blob cannot be had, now and ever.
type Gone struct {
	Blob string // plan and digest
	Why  error
}

// Error says which blob, and why.
func (g *Gone) Error() string { return fmt.Sprintf("the blob %s is missing: %v", g.Blob, g.Why) }

// Unwrap is why.
func (g *Gone) Unwrap() error { return g.Why }

func (s *Store) opened(ctx context.Context, open func(context.Context) (Entries, error)) (Entries,
	error) {
	if entries := s.made(); entries != nil {
		return entries, nil
	}
	entries, err := open(ctx)
	if err != nil || entries == nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = entries
	}
	return s.entries, nil
}

// made are the entries if they were opened; nil: no one knows of any.
func (s *Store) made() Entries {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries
}

// using does something with the entries; once more, if they were lost since they were opened. Where
// they are not there, and open does not make them, nothing is in the store.
func (s *Store) using(ctx context.Context, open func(context.Context) (Entries, error),
	do func(Entries) error) error {
	for again := true; ; again = false {
		entries, err := s.opened(ctx, open)
		if err != nil {
			return err
		}
		if entries == nil {
			return jetstream.ErrNoBlob
		}
		if err = do(entries); !s.lost(entries, err) || !again {
			return err
		}
	}
}

// lost forgets entries that an error says are not there.
func (s *Store) lost(entries Entries, err error) bool {
	if !errors.Is(err, jetstream.ErrNoBlobs) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == entries {
		s.entries, s.asked = nil, false
	}
	return true
}

// Put seals and stores a chunk of an agent's plan, and returns the digest that it is stored under.
func (s *Store) Put(ctx context.Context, agent, plan string, chunk []byte) (string, error) {
	if len(chunk) == 0 || len(chunk) > seal.BlobChunk {
		return "", ledger.Refuse("body", fmt.Sprintf("a chunk of %d bytes", len(chunk)),
			fmt.Sprintf("1 to %d bytes", seal.BlobChunk))
	}
	key, err := s.Keys.Issue(ctx, agent, plan)
	if err != nil {
		return "", err
	}
	return s.put(ctx, plan, seal.SealChunk(key, s.Tenant, plan, chunk))
}

// put stores an entry, if there is room for it.
func (s *Store) put(ctx context.Context, plan string, stored []byte) (digest string, err error) {
	err = s.using(ctx, s.Open, func(entries Entries) (err error) {
		if err = s.admit(ctx, entries, len(stored)); err == nil {
			digest, err = entries.Put(ctx, plan, stored)
		}
		return err
	})
	return digest, err
}

// admit refuses what there is no room for. What is removed, or stored again, is found out when the
// room seems to be used up.
func (s *Store) admit(ctx context.Context, entries Entries, size int) error {
	if s.takes(size, false) {
		return nil
	}
	used, err := s.look(ctx, entries)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.asked, s.used = true, used
	s.mu.Unlock()
	if !s.takes(size, true) {
		return ErrFull
	}
	return nil
}

// takes counts what is stored, if there is room for it as far as it is known.
func (s *Store) takes(size int, now bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked && !now || s.used+uint64(size) > s.Most {
		return false
	}
	s.used += uint64(size)
	s.shown.Lock()
	defer s.shown.Unlock()
	s.room.Entries, s.room.Used = s.room.Entries+1, s.used
	return true
}

// End makes a blob of chunks of an agent's plan that are stored. Each was acknowledged, and must
// still be there. None is read: the server keeps a block of its file in memory for 10 s after what
// was just written to it is read, and so the whole of a fast upload. What the owner says of them,
// their size and their digest, is held against them when they are read.
func (s *Store) End(ctx context.Context, agent, plan, kind string,
	m seal.Manifest) (seal.Blob, error) {
	switch err := m.Check(); {
	case m.Bytes > seal.BlobMax:
		return seal.Blob{}, ledger.Refuse("request.bytes", fmt.Sprintf("%d bytes", m.Bytes),
			fmt.Sprintf("at most %d bytes", int64(seal.BlobMax)))
	case err != nil:
		return seal.Blob{}, ledger.Refuse("request.chunks", err.Error(),
			"the digests that the chunks were stored under, in order")
	case len(kind) > seal.BlobTypeMax || !ledger.ExactText(kind):
		return seal.Blob{}, ledger.Refuse("request.type", fmt.Sprintf("%.80q", kind),
			fmt.Sprintf("a media type of at most %d bytes", seal.BlobTypeMax))
	}
	key, err := s.Keys.Issue(ctx, agent, plan)
	if err != nil {
		return seal.Blob{}, err
	}
	missing, err := s.missing(ctx, s.Open, plan, m.Chunks)
	if err != nil {
		return seal.Blob{}, err
	}
	if missing >= 0 {
		return seal.Blob{}, ledger.Refuse(fmt.Sprintf("request.chunks[%d]", missing),
			jetstream.ErrNoBlob.Error(), "a chunk that was stored just now; store it again")
	}
	digest, err := s.put(ctx, plan, m.Format(key, s.Tenant, plan))
	return seal.Blob{Plan: plan, Digest: digest, Bytes: m.Bytes, Type: kind}, err
}

// missing is the number of the first chunk that is not stored; -1: each is.
func (s *Store) missing(ctx context.Context, open func(context.Context) (Entries, error),
	plan string, chunks []string) (int, error) {
	for i, digest := range chunks {
		there := false
		ctx, done := context.WithTimeout(ctx, lookMax)
		err := s.using(ctx, open, func(entries Entries) (err error) {
			there, err = entries.Has(ctx, plan, digest)
			return err
		})
		if done(); err != nil && !errors.Is(err, jetstream.ErrNoBlob) {
			return 0, err
		}
		if !there {
			return i, nil
		}
	}
	return -1, nil
}

// get returns an entry.
func (s *Store) get(ctx context.Context, plan, digest string) (stored []byte, err error) {
	err = s.using(ctx, s.Find, func(entries Entries) (err error) {
		stored, err = entries.Get(ctx, plan, digest)
		return err
	})
	return stored, err
}

// Manifest says what a blob is made of. The error is a *Gone, or passes.
func (s *Store) Manifest(ctx context.Context, plan, digest string) (seal.Manifest, error) {
	m, _, err := s.manifest(ctx, plan, digest)
	return m, s.gone(plan, digest, err)
}

func (s *Store) manifest(ctx context.Context, plan, digest string) (m seal.Manifest, key seal.Key,
	err error) {
	if key, err = s.Keys.Key(ctx, plan); err != nil {
		return m, key, err
	}
	stored, err := s.get(ctx, plan, digest)
	if err == nil {
		m, err = seal.ParseManifest(key, s.Tenant, plan, stored)
	}
	return m, key, err
}

// Read returns a chunk of a blob, by its number. The error is a *Gone, a *ledger.Refused, or
// passes.
func (s *Store) Read(ctx context.Context, plan, digest string, number int) ([]byte, error) {
	m, key, err := s.manifest(ctx, plan, digest)
	if err != nil {
		return nil, s.gone(plan, digest, err)
	}
	if number < 0 || number >= len(m.Chunks) {
		return nil, ledger.Refuse("request.chunk", fmt.Sprint(number),
			fmt.Sprintf("the number of one of %d chunks, from 0", len(m.Chunks)))
	}
	stored, err := s.get(ctx, plan, m.Chunks[number])
	if err != nil {
		return nil, s.gone(plan, digest, err)
	}
	chunk, err := seal.OpenChunk(key, s.Tenant, plan, stored)
	if err == nil && len(chunk) != m.ChunkSize(number) {
		err = jetstream.ErrBlobDamaged
	}
	return chunk, s.gone(plan, digest, err)
}

// lookMax bounds the look for one entry: a command may bring many, and they have time by their
// number.
const lookMax = 5 * time.Second

// lookAgain is the time between two looks for what was not found.
const lookAgain = time.Second

// Check says whether the blobs of a command are there, with all their chunks: those that it refers
// to must belong to its plan. The error is a *Gone, or passes. No chunk is read: who reads it finds
// out whether it is whole.
func (s *Store) Check(ctx context.Context, plan string, arguments json.RawMessage) error {
	found := seal.Blobs(arguments)
	if found.Wrong != nil {
		return &Gone{plan, found.Wrong}
	}
	blobs := found.Distinct()
	if len(blobs) > seal.BlobsBrought {
		return &Gone{plan, fmt.Errorf("%d blobs in one command, at most %d", len(blobs),
			seal.BlobsBrought)}
	}
	for _, b := range blobs {
		if b.Plan != plan {
			return &Gone{b.Text(), fmt.Errorf("it belongs to another plan than %s", plan)}
		}
		if err := s.found(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// found is check, again where the blob is not found.
func (s *Store) found(ctx context.Context, b seal.Blob) error {
	for until := time.Now().Add(s.Again); ; {
		err := s.check(ctx, b)
		if !errors.Is(err, jetstream.ErrNoBlob) || time.Now().Add(lookAgain).After(until) {
			return err
		}
		if !pause.For(ctx, lookAgain) {
			return ctx.Err()
		}
	}
}

func (s *Store) check(ctx context.Context, b seal.Blob) error {
	looking, done := context.WithTimeout(ctx, lookMax)
	defer done()
	m, err := s.Manifest(looking, b.Plan, b.Digest)
	if err != nil {
		return err
	}
	if m.Bytes != b.Bytes {
		return &Gone{b.Text(), fmt.Errorf("it has %d bytes, and the reference says %d", m.Bytes,
			b.Bytes)}
	}
	missing, err := s.missing(ctx, s.Find, b.Plan, m.Chunks)
	if err == nil && missing >= 0 {
		err = &Gone{b.Text(), fmt.Errorf("of its chunk %d: %w", missing, jetstream.ErrNoBlob)}
	}
	return err
}

// gone makes a *Gone of what will never pass.
func (s *Store) gone(plan, digest string, err error) error {
	if err == nil || !errors.Is(err, jetstream.ErrNoBlob) &&
		!errors.Is(err, jetstream.ErrBlobDamaged) && !s.Keys.Gone(err) {
		return err
	}
	return &Gone{plan + "/" + digest, err}
}

// Room says what the blobs take, at most, and may take. It asks no one.
func (s *Store) Room() Room {
	s.shown.Lock()
	defer s.shown.Unlock()
	return s.room
}

// look asks what the blobs take.
func (s *Store) look(ctx context.Context, entries Entries) (used uint64, err error) {
	count, used, err := entries.Room(ctx)
	if err == nil {
		s.shown.Lock()
		defer s.shown.Unlock()
		s.room.Entries, s.room.Used = count, used
	}
	return used, err
}
