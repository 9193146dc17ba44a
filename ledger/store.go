package ledger

import (
	"context"
	"iter"
)

// Message is one stored commit as a store hands it out.
type Message struct {
	Sequence    uint64 // position in the stream, from 1, without gaps
	StampNs     int64  // the store's stamp, unix ns; goes backwards with its clock
	Subject     string
	ContentType string // the only header that is read; empty means protobuf
	Data        []byte // as received
}

// ContentTypeJSON marks a commit in protojson instead of protobuf.
const ContentTypeJSON = "application/json"

// Append is one commit to be stored.
type Append struct {
	Subject string
	// ID is 32 hex digits of randomness, kept over retries. Stores may use it to
	// drop a second copy; nothing depends on that (the fold keeps the first).
	ID   string
	Data []byte // EncodeCommit
	// Fence, when FenceSubject is set, is the sequence that the last record of
	// FenceSubject must have for the append to be stored (0: there is none).
	FenceSubject string
	Fence        uint64
}

// Head is the far end of a stream.
type Head struct {
	First, Last uint64 // sequences; Last is First-1 when empty
	Deleted     uint64 // interior records that are missing: anything but 0 halts the tenant
	CreatedNs   int64  // when the stream was made, unix ns
}

// Store is a tenant's ledger as bytes. It has two implementations, Memory (below)
// and ledger/jetstream; one contract test holds both.
//
// What a crash means: an Append that returned nil survives it whole; one that
// did not return, or returned ErrInDoubt, is stored whole or not at all.
type Store interface {
	// Append stores one commit and returns its sequence. Errors: *Refused,
	// ErrConflict or ErrBusy (nothing stored), ErrInDoubt (unknown).
	// A commit whose ID the store still remembers is not stored again; its first
	// sequence is returned.
	Append(ctx context.Context, a Append) (uint64, error)

	// Read yields the stream from sequence `from` on, in order, and follows it
	// until ctx ends (the last error is then ctx's). It never skips: a missing
	// sequence ends it with *Halted (guard G1).
	Read(ctx context.Context, from uint64) iter.Seq2[Message, error]

	// Get returns the message at one sequence; *Halted when it should be there
	// and is not.
	Get(ctx context.Context, sequence uint64) (Message, error)

	// Head returns the stream's ends.
	Head(ctx context.Context) (Head, error)
}
