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
	// State looks a plan up, and Named gives what of it may refer to blobs.
	State func(plan string) State
	Named func(plan string) ([]json.RawMessage, error)
	// Grace is how old what no one refers to must be before it is removed; Every is how often that
	// is looked for.
	Grace, Every time.Duration
	Most         uint64 // bytes that they may take
	Log          *slog.Logger
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries != nil {
		return s.entries, nil
	}
	entries, err := open(ctx)
	if err == nil {
		s.entries = entries
	}
	return entries, err
}

// made are the entries if they were opened; nil: no one knows of any.
func (s *Store) made() Entries {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries
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
	entries, err := s.opened(ctx, s.Open)
	if err != nil {
		return "", err
	}
	stored := seal.SealChunk(key, s.Tenant, plan, chunk)
	if err := s.admit(ctx, entries, len(stored)); err != nil {
		return "", err
	}
	return entries.Put(ctx, plan, stored)
}

// admit refuses what there is no room for. What is removed, or stored again, is found out when the
// room seems to be used up.
func (s *Store) admit(ctx context.Context, entries Entries, size int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked || s.used+uint64(size) > s.Most {
		used, err := s.look(ctx, entries)
		if err != nil {
			return err
		}
		s.asked, s.used = true, used
	}
	if s.used+uint64(size) > s.Most {
		return ErrFull
	}
	s.used += uint64(size)
	s.shown.Lock()
	defer s.shown.Unlock()
	s.room.Entries, s.room.Used = s.room.Entries+1, s.used
	return nil
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
	entries, err := s.opened(ctx, s.Open)
	if err != nil {
		return seal.Blob{}, err
	}
	for i, digest := range m.Chunks {
		there, err := entries.Has(ctx, plan, digest)
		if err != nil {
			return seal.Blob{}, err
		}
		if !there {
			return seal.Blob{}, ledger.Refuse(fmt.Sprintf("request.chunks[%d]", i),
				jetstream.ErrNoBlob.Error(), "a chunk that was stored just now; store it again")
		}
	}
	digest, err := entries.Put(ctx, plan, m.Format(key, s.Tenant, plan))
	return seal.Blob{Plan: plan, Digest: digest, Bytes: m.Bytes, Type: kind}, err
}

// Manifest says what a blob is made of. The error is a *Gone, or passes.
func (s *Store) Manifest(ctx context.Context, plan, digest string) (seal.Manifest, error) {
	m, _, _, err := s.manifest(ctx, plan, digest)
	return m, s.gone(plan, digest, err)
}

func (s *Store) manifest(ctx context.Context, plan, digest string) (m seal.Manifest, key seal.Key,
	entries Entries, err error) {
	if key, err = s.Keys.Key(ctx, plan); err != nil {
		return m, key, nil, err
	}
	if entries, err = s.opened(ctx, s.Open); err != nil {
		return m, key, nil, err
	}
	stored, err := entries.Get(ctx, plan, digest)
	if err == nil {
		m, err = seal.ParseManifest(key, s.Tenant, plan, stored)
	}
	return m, key, entries, err
}

// Read returns a chunk of a blob, by its number. The error is a *Gone, a *ledger.Refused, or
// passes.
func (s *Store) Read(ctx context.Context, plan, digest string, number int) ([]byte, error) {
	m, key, entries, err := s.manifest(ctx, plan, digest)
	if err != nil {
		return nil, s.gone(plan, digest, err)
	}
	if number < 0 || number >= len(m.Chunks) {
		return nil, ledger.Refuse("request.chunk", fmt.Sprint(number),
			fmt.Sprintf("the number of one of %d chunks, from 0", len(m.Chunks)))
	}
	stored, err := entries.Get(ctx, plan, m.Chunks[number])
	if err != nil {
		return nil, s.gone(plan, digest, err)
	}
	chunk, err := seal.OpenChunk(key, s.Tenant, plan, stored)
	if err == nil && len(chunk) != m.ChunkSize(number) {
		err = jetstream.ErrBlobDamaged
	}
	return chunk, s.gone(plan, digest, err)
}

// Check says whether the blobs of a command are there: those that it refers to must belong to its
// plan. The error is a *Gone, or passes. Their chunks are not read: who reads them finds out.
func (s *Store) Check(ctx context.Context, plan string, arguments json.RawMessage) error {
	blobs := seal.Blobs(arguments)
	if len(blobs) > seal.BlobsNamed {
		return &Gone{plan, fmt.Errorf("%d blobs in one command, at most %d", len(blobs),
			seal.BlobsNamed)}
	}
	for _, b := range blobs {
		if b.Plan != plan {
			return &Gone{b.Text(), fmt.Errorf("it belongs to another plan than %s", plan)}
		}
		m, err := s.Manifest(ctx, b.Plan, b.Digest)
		if err != nil {
			return err
		}
		if m.Bytes != b.Bytes {
			return &Gone{b.Text(), fmt.Errorf("it has %d bytes, and the reference says %d",
				m.Bytes, b.Bytes)}
		}
	}
	return nil
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
