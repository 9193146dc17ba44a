package ledger

import (
	"context"
	"fmt"
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

// IDLen is the length of an append's ID: 32 lower-case hex digits.
const IDLen = 32

// Check reports what every store refuses before it stores a byte: a subject or
// fence that is none of the tenant's, an ID that is no ID, an empty or too large
// commit. The error is a *Refused.
func (a Append) Check(tenant string) error {
	if s, ok := ParseSubject(a.Subject); !ok || s.Tenant != tenant {
		return Refuse("subject", fmt.Sprintf("%q is none of tenant %q", a.Subject, tenant),
			"saga."+tenant+".<class>...")
	}
	if a.FenceSubject != "" {
		if s, ok := ParseSubject(a.FenceSubject); !ok || s.Tenant != tenant {
			return Refuse("fence_subject", fmt.Sprintf("%q is none of tenant %q", a.FenceSubject, tenant),
				"saga."+tenant+".<class>...")
		}
	}
	if !validID(a.ID) {
		return Refuse("id", fmt.Sprintf("%q", a.ID),
			fmt.Sprintf("%d lower-case hex digits of randomness", IDLen))
	}
	if len(a.Data) == 0 || len(a.Data) > CommitSizeMax {
		return Refuse("records", fmt.Sprintf("a commit of %d bytes", len(a.Data)),
			fmt.Sprintf("1 to %d bytes; pass larger arguments by reference", CommitSizeMax))
	}
	return nil
}

func validID(id string) bool {
	if len(id) != IDLen {
		return false
	}
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Head is the far end of a stream.
type Head struct {
	First, Last uint64 // sequences; Last is First-1 when empty
	Deleted     uint64 // interior records that are missing: anything but 0 halts the tenant
	CreatedNs   int64  // when the stream was made, unix ns
	Replicas    int    // servers that keep it; 0: not known
}

// Readable is guard G1 before a read from a sequence: nothing is missing, and
// the sequence is in First..Last+1. The error is a *Halted, or a *Refused for 0.
func (h Head) Readable(from uint64) error {
	switch {
	case from == 0:
		return Refuse("from", "sequence 0", "sequences count from 1")
	case h.Deleted != 0:
		return &Halted{Guard: "G1", Sequence: h.Last,
			Problem: fmt.Sprintf("%d records are missing before here", h.Deleted)}
	case from < h.First:
		return &Halted{Guard: "G1", Sequence: from,
			Problem: fmt.Sprintf("the stream starts at %d", h.First)}
	case from > h.Last+1:
		return &Halted{Guard: "G1", Sequence: h.Last,
			Problem: fmt.Sprintf("the stream ends here, and %d was read before", from-1)}
	}
	return nil
}

// Holds reports whether a sequence is between the ends. The error is a *Halted
// before the first (it was there once) and a *Refused after the last.
func (h Head) Holds(sequence uint64) error {
	switch {
	case sequence == 0 || sequence > h.Last:
		return Refuse("sequence", fmt.Sprintf("%d, and the last is %d", sequence, h.Last),
			"a sequence that was appended")
	case sequence < h.First:
		return &Halted{Guard: "G1", Sequence: sequence,
			Problem: fmt.Sprintf("the stream starts at %d", h.First)}
	}
	return nil
}

// Store is a tenant's ledger as bytes. It has two implementations, Memory and
// ledger/jetstream; one contract test holds both, and the server that Memory models.
//
// What a crash means: an Append that returned nil survives it whole; one that
// did not return, or returned ErrInDoubt, is stored whole or not at all.
type Store interface {
	// Append stores one commit and returns its sequence. Errors: *Refused,
	// ErrConflict (a *Fenced where the store says where the fence is) or ErrBusy, of
	// which ErrFull is one (not stored by this call), ErrInDoubt (unknown).
	// A commit whose ID the store still remembers is not stored again; its first
	// sequence is returned, wherever its fence has moved. A retry after ErrInDoubt that
	// gets ErrConflict may have been stored the first time, and forgotten: who is fenced
	// stops and reads. While the commit is the last of its subject, the store sees it.
	Append(ctx context.Context, a Append) (uint64, error)

	// Read yields the stream from sequence `from` (1 or more) on, in order, and
	// follows it until ctx ends (the last error is then ctx's). It never skips: a
	// missing sequence, or a `from` outside First..Last+1, ends it with *Halted
	// (guard G1). The bytes of a message belong to the store: do not change them.
	Read(ctx context.Context, from uint64) iter.Seq2[Message, error]

	// Get returns the message at one sequence: *Halted when it should be there
	// and is not, *Refused when the sequence is after the last.
	Get(ctx context.Context, sequence uint64) (Message, error)

	// Head returns the stream's ends.
	Head(ctx context.Context) (Head, error)
}
