package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Entry is one record of a message with its address, or what is in its
// place when the bytes are no record.
type Entry struct {
	Address  *pb.Address
	Source   Source
	StampNs  int64
	Count    uint32     // records in the message; 0 when it is no commit
	Reader   uint32     // its min_reader; 0 when it is no commit
	Record   *pb.Record // what it says; where Err is set what could be read of it, or nil
	Pair     *pb.Record // the other half of its pair, of the same commit; nil: it is none
	Body     []byte     // the bytes the leaf was taken over
	Err      error      // why it cannot be folded; the record is refused
	json     bool       // it is a record in JSON
	strict   *earlier   // what holders of before TextsSince read instead; nil: the same
	unheld   *earlier   // and those of before AfterCommitSince
	unstaged *earlier   // and those of before StagedSince
	first    *earlier   // and whoever reads it before there is a holder, where strict is not nil
	// Partial says of a worker's record that Err is about a field that does not say what was done:
	// Record is without it, and counts under a holder of PartialSince.
	Partial bool
}

// Field numbers of Commit.
const (
	fieldMinReader = 1
	fieldRecords   = 2
)

// EncodeCommit returns the canonical bytes of one commit. The texts of its records that people
// read it cuts to what a record keeps (Text). It refuses an empty commit, one of more than
// CommitLenMax records or CommitSizeMax bytes.
func EncodeCommit(records []*pb.Record) ([]byte, error) {
	if len(records) == 0 || len(records) > CommitLenMax {
		return nil, Refuse("records", fmt.Sprintf("%d records in a commit", len(records)),
			fmt.Sprintf("1 to %d", CommitLenMax))
	}
	size := 0
	for _, r := range records {
		CutTexts(r)
		size += 8 + r.SizeVT()
	}
	buf := make([]byte, 0, size)
	buf = protowire.AppendTag(buf, fieldMinReader, protowire.VarintType)
	buf = protowire.AppendVarint(buf, readerOf(records))
	for _, r := range records {
		n := r.SizeVT()
		buf = protowire.AppendTag(buf, fieldRecords, protowire.BytesType)
		buf = protowire.AppendVarint(buf, uint64(n))
		at := len(buf)
		buf = append(buf, make([]byte, n)...)
		if _, err := r.MarshalToSizedBufferVT(buf[at:]); err != nil {
			return nil, Refuse("records", err.Error(), "records that protobuf can encode")
		}
	}
	if len(buf) > CommitSizeMax {
		return nil, Refuse("records", fmt.Sprintf("a commit of %d bytes", len(buf)),
			fmt.Sprintf("at most %d bytes; pass larger arguments by reference", CommitSizeMax))
	}
	return buf, nil
}

// The first readers that know of what a record says.
const (
	readerOfAhead   = 2  // a dispatch is ahead of its turn
	readerOfTenants = 3  // what a tenant may do
	readerOfScope   = 4  // a condition, a verdict or a request says what it undoes
	readerOfKeys    = 8  // an owner asks for a new key; else it is a retry under the same key
	readerOfChanges = 9  // an undo is asked first whether someone else has changed something
	readerOfHeld    = 11 // a condition is held after the commit; an effect is reported
	readerOfStaged  = 15 // an act is made once its plan has committed, and not by its caller
	readerOfMoved   = 16 // a deadline is moved
	readerOfAdopted = 17 // a plan is handed to another agent
)

// readersOfTerms are the first readers that know of the rules of a holder, by the version of its
// fold from which on it has them; the newest first.
var readersOfTerms = []struct {
	since  uint32
	reader uint64
}{
	{AnytimeSince, 24}, {AllFoundSince, 23}, {WholeSince, 22}, {OwnerFirstSince, 21},
	{DoubtedSince, 20}, {GivenUpSince, 19}, {OthersSince, 18}, {AdoptedSince, 17}, {MovedSince, 16},
	{StagedSince, 15}, {ThereSince, 14}, {SeenSince, 13}, {LeftOutSince, 12}, {AfterCommitSince, 11},
	{AskedOnSince, 10}, {AskedSince, 9}, {CopiesSince, 8}, {TextsSince, 7}, {FollowsSince, 6},
	{BoundedSince, 5}, {ScopedSince, 4},
}

// readerOf is the version of the reader that a commit needs.
func readerOf(records []*pb.Record) uint64 {
	version := uint64(1)
	for _, r := range records {
		version = max(version, ReaderOfTerm(r.GetTermStarted().GetFoldVersion()), readerOfRecord(r))
	}
	return version
}

// ReaderOfTerm is the first reader that knows of the rules of a holder with this version of the
// fold.
func ReaderOfTerm(fold uint32) uint64 {
	for _, known := range readersOfTerms {
		if fold >= known.since {
			return known.reader
		}
	}
	return 1
}

// readerOfRecord is the first reader that knows of what a record says.
func readerOfRecord(r *pb.Record) uint64 {
	switch {
	case r.GetPlanAdopted() != nil:
		return readerOfAdopted
	case r.GetDeadlineMoved() != nil:
		return readerOfMoved
	case isStaged(r):
		return readerOfStaged
	case holdsAfter(r), r.GetEffectReported() != nil:
		return readerOfHeld
	case saysUnchanged(r):
		return readerOfChanges
	case r.GetRetryRequested().GetNewKey(), r.GetTenantChanged().GetRequireNames():
		return readerOfKeys
	case isScoped(r):
		return readerOfScope
	case r.GetTermStarted().GetTenant() != nil, r.GetTenantChanged() != nil:
		return readerOfTenants
	case r.GetCompensationDispatched().GetBehind() != nil:
		return readerOfAhead
	default:
		return 1
	}
}

// isScoped reports whether a record says what is undone, where earlier readers know of whole
// plans only.
func isScoped(r *pb.Record) bool {
	switch k := r.Kind.(type) {
	case *pb.Record_PlanOpened:
		return anyScope(k.PlanOpened.Triggers)
	case *pb.Record_CompensationRegistered:
		return anyScope(k.CompensationRegistered.Triggers)
	case *pb.Record_VerdictGiven:
		return k.VerdictGiven.Scope != pb.Scope_SCOPE_UNSPECIFIED
	case *pb.Record_CompensationRequested:
		return k.CompensationRequested.FromAction != ""
	case *pb.Record_UnwindStarted:
		return k.UnwindStarted.FromAction != ""
	case *pb.Record_PlanRewound:
		return k.PlanRewound.FromAction != ""
	default:
		return false
	}
}

func anyScope(triggers []*pb.Trigger) bool {
	return slices.ContainsFunc(triggers,
		func(t *pb.Trigger) bool { return t.Scope != pb.Scope_SCOPE_UNSPECIFIED })
}

// RecordSize is what a record adds to a commit, in bytes.
func RecordSize(r *pb.Record) int {
	n := r.SizeVT()
	return 1 + protowire.SizeBytes(n)
}

// Decode splits a message into its entries. It is total: any message gives at
// least one entry, and an entry that is no record says why in Err. Only a
// commit of the holder that needs a newer reader, or has a record of a kind that this
// one does not know, is an error of Decode itself, a *Halted: the tenant must halt and
// nothing may be skipped.
func Decode(tenant string, m Message) ([]Entry, error) {
	source, ok := ParseSubject(m.Subject)
	if !ok || source.Tenant != tenant {
		return opaque(tenant, m, source, Refuse("subject", fmt.Sprintf("%q is none of this tenant's",
			m.Subject), "saga."+tenant+".<class>...")), nil
	}
	if len(m.Data) > CommitSizeMax {
		return opaque(tenant, m, source, Refuse("commit", "too large", fmt.Sprintf("at most %d bytes",
			CommitSizeMax))), nil
	}
	switch m.ContentType {
	case "":
		return decodeProto(tenant, m, source)
	case ContentTypeJSON:
		return decodeJSON(tenant, m, source)
	default:
		return opaque(tenant, m, source,
			Refuse("Content-Type", fmt.Sprintf("%q is not read", m.ContentType),
				"none (protobuf) or "+ContentTypeJSON)), nil
	}
}

// opaque returns the one entry of a message that is no commit.
func opaque(tenant string, m Message, source Source, err error) []Entry {
	leaf := Leaf(tenant, m, 0, 0, 0, m.Data)
	return []Entry{{
		Address: &pb.Address{Sequence: m.Sequence, Leaf: leaf[:]},
		Source:  source, StampNs: m.StampNs, Body: m.Data, Err: err,
	}}
}

// newerReader handles a commit that a newer reader is asked for. Only the
// holder raises the version of a ledger: its commit halts a reader that is too
// old. Anybody else's is refused, or two bytes of one agent would stop the
// tenant for good (ADR 0007).
func newerReader(tenant string, m Message, source Source, version uint64) ([]Entry, error) {
	if source.Class == ClassExecutor {
		return nil, &Halted{Guard: "reader", Sequence: m.Sequence,
			Problem: fmt.Sprintf("the commit needs version %d of the reader, this is version %d", version,
				ReaderVersion)}
	}
	problem := fmt.Sprintf("needs a reader of version %d, this is %d", version, ReaderVersion)
	return opaque(tenant, m, source, Refuse("commit.min_reader", problem,
		fmt.Sprintf("at most %d: the holder raises it, then the others", ReaderVersion))), nil
}

// addressed is an address with its leaf, which are made together.
type addressed struct {
	address pb.Address
	leaf    [LeafSize]byte
}

func decodeProto(tenant string, m Message, source Source) ([]Entry, error) {
	minReader, bodies, err := splitCommit(m.Data)
	if err != nil {
		return opaque(tenant, m, source, err), nil
	}
	if minReader > ReaderVersion {
		return newerReader(tenant, m, source, minReader)
	}
	entries := make([]Entry, len(bodies))
	var buf []byte
	for i, body := range bodies {
		at := new(addressed)
		at.leaf, buf = leafIn(buf, tenant, m, uint32(i), uint32(len(bodies)), uint32(minReader), body)
		at.address.Sequence, at.address.Index, at.address.Leaf = m.Sequence, uint32(i), at.leaf[:]
		e := &entries[i]
		e.Address = &at.address
		e.Source, e.StampNs = source, m.StampNs
		e.Count, e.Reader, e.Body = uint32(len(bodies)), uint32(minReader), body
		record := new(pb.Record)
		if err := record.UnmarshalVT(body); err != nil {
			e.Err = Refuse(fmt.Sprintf("records[%d]", i), "not a record in protobuf",
				"a record of sagenbaum.v1")
			continue
		}
		if number := newerKind(record); number != 0 && source.Class == ClassExecutor {
			return nil, &Halted{Guard: "reader", Sequence: m.Sequence,
				Problem: fmt.Sprintf("records[%d] is of kind %d, which needs a later version of the reader, "+
					"this is version %d", i, number, ReaderVersion)}
		}
		e.Record = record
		e.judge()
		e.readPartly(nil)
	}
	pairUp(entries)
	return entries, nil
}

// fieldKinds is the first field number of Record that is a kind.
const fieldKinds = 20

// newerKind returns the number of the kind of a record that a later version has
// written; 0: it has a kind, or none at all. A holder that writes one asks for its
// reader with min_reader, too; this is the second lock on the same door.
func newerKind(r *pb.Record) protowire.Number {
	if r.Kind != nil {
		return 0
	}
	for unknown := r.ProtoReflect().GetUnknown(); len(unknown) > 0; {
		number, _, n := protowire.ConsumeField(unknown)
		if n < 0 {
			return 0
		}
		if number >= fieldKinds {
			return number
		}
		unknown = unknown[n:]
	}
	return 0
}

// splitCommit finds the records' bytes. Only the canonical envelope is a
// commit (what EncodeCommit writes), because the leaves do not cover it.
func splitCommit(data []byte) (minReader uint64, bodies [][]byte, err error) {
	want := "min_reader, then 1 to 1024 records, in canonical protobuf"
	num, typ, n := protowire.ConsumeTag(data)
	if n != 1 || num != fieldMinReader || typ != protowire.VarintType {
		return 0, nil, Refuse("commit", "does not start with min_reader", want)
	}
	rest := data[n:]
	minReader, n = protowire.ConsumeVarint(rest)
	if n <= 0 || n != protowire.SizeVarint(minReader) || minReader == 0 || minReader >= 1<<32 {
		return 0, nil, Refuse("commit.min_reader", "not a canonical number", want)
	}
	if minReader > ReaderVersion {
		return minReader, nil, nil // whatever follows is for a newer reader to judge
	}
	rest = rest[n:]
	for len(rest) > 0 {
		num, typ, n = protowire.ConsumeTag(rest)
		if n != 1 || num != fieldRecords || typ != protowire.BytesType {
			return 0, nil, Refuse("commit", "unknown field in the envelope", want)
		}
		body, n := protowire.ConsumeBytes(rest[1:])
		if n < 0 || n != protowire.SizeBytes(len(body)) {
			return 0, nil, Refuse("commit.records", "bad length", want)
		}
		bodies = append(bodies, body)
		rest = rest[1+n:]
	}
	if len(bodies) == 0 || len(bodies) > CommitLenMax {
		return 0, nil, Refuse("commit.records", fmt.Sprintf("%d records", len(bodies)), want)
	}
	return minReader, bodies, nil
}

// jsonCommit is a Commit in JSON, its records still raw.
type jsonCommit struct {
	jsonVersion
	Records []json.RawMessage `json:"records"`
}

// jsonVersion is its version, in either spelling of protojson.
type jsonVersion struct {
	MinReader      uint32 `json:"minReader"`
	MinReaderSnake uint32 `json:"min_reader"`
}

func decodeJSON(tenant string, m Message, source Source) ([]Entry, error) {
	// A commit for a newer reader may have fields that this one does not know.
	var version jsonVersion
	if json.Unmarshal(m.Data, &version) == nil {
		if newest := max(version.MinReader, version.MinReaderSnake); newest > ReaderVersion {
			return newerReader(tenant, m, source, uint64(newest))
		}
	}
	var c jsonCommit
	d := json.NewDecoder(bytes.NewReader(m.Data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return opaque(tenant, m, source, envelopeFault(m.Data)), nil
	}
	if _, err := d.Token(); err != io.EOF || len(c.Records) == 0 || len(c.Records) > CommitLenMax {
		return opaque(tenant, m, source,
			Refuse("commit.records", fmt.Sprintf("%d records", len(c.Records)),
				"1 to 1024 records and nothing behind them")), nil
	}
	minReader := max(c.MinReader, c.MinReaderSnake, 1)
	whole := sha256.Sum256(m.Data)
	fault := envelopeNames(m.Data) // it is a commit all the same: its leaves stay as they were
	entries := make([]Entry, len(c.Records))
	for i, raw := range c.Records {
		body := whole[:]
		if i == 0 {
			body = m.Data
		}
		leaf := Leaf(tenant, m, uint32(i), uint32(len(c.Records)), minReader, body)
		e := &entries[i]
		e.Address = &pb.Address{Sequence: m.Sequence, Index: uint32(i), Leaf: leaf[:]}
		e.Source, e.StampNs = source, m.StampNs
		e.Count, e.Reader, e.Body = uint32(len(c.Records)), minReader, body
		e.json = true
		e.Record, e.Err = readJSON(raw, fmt.Sprintf("records[%d]", i))
		switch {
		case fault != nil:
			e.Err = fault
			continue
		case e.Err == nil:
			e.judge()
		default:
			e.mend(raw)
		}
		if e.Err == nil {
			e.Err = needlessID(e.Record, source) // in JSON no field is passed over
		}
		e.readPartly(raw)
	}
	pairUp(entries)
	return entries, nil
}
