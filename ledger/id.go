package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// A record of an agent, a worker or a holder is known by what it says: a plan, an action with its
// outcome, an attempt, a term. Facts, verdicts and what operators ask for may be said twice and
// meant twice, so that nothing but an id tells a copy of one from the same words said again.

// RecordID names a record: 128 bits, of which the first 48 are the time at which it was made, in
// unix ms. So ids sort by time, and what is kept of them can be bounded.
type RecordID [16]byte

// IDWanted is what a record's id must be.
const IDWanted = "a ULID or a UUID of version 7, of this record alone"

// IDTaken is in a fold's refusal of a record under whose id another one counted.
const IDTaken = "which says something else"

// ParseRecordID reads an id as a ULID (https://github.com/ulid/spec) or as a UUID of version 7
// (RFC 9562, 5.7). The error is a *Refused.
func ParseRecordID(s string) (id RecordID, err error) {
	if u, err := ulid.ParseStrict(s); err == nil {
		return RecordID(u), nil
	}
	plain := strings.ReplaceAll(s, "-", "")
	n, err := hex.Decode(id[:], []byte(plain[:min(len(plain), 2*len(id))]))
	dashed := len(s) == 36 && len(plain) == 32 && s[8] == '-' && s[13] == '-' && s[18] == '-' &&
		s[23] == '-'
	if err != nil || n != len(id) || !dashed || id[6]>>4 != 7 || id[8]>>6 != 2 {
		return RecordID{}, Refuse("id", fmt.Sprintf("%q", cut(s)), IDWanted)
	}
	return id, nil
}

// Ms is when the id was made, unix ms.
func (id RecordID) Ms() int64 {
	return int64(binary.BigEndian.Uint64(append([]byte{0, 0}, id[:6]...)))
}

// TakesID reports whether records on subjects of a class may have an id.
func TakesID(c Class) bool {
	return c == ClassFact || c == ClassVerdict || c == ClassOperator
}

// checkID refuses an id that is none, of a record that may have one.
func checkID(r *pb.Record, s Source) error {
	if r.Id == "" || !TakesID(s.Class) {
		return nil
	}
	_, err := ParseRecordID(r.Id)
	return err
}

// needlessID refuses an id of a record that needs none. In protobuf it is not read, as by earlier
// readers.
func needlessID(r *pb.Record, s Source) error {
	if r.Id == "" || TakesID(s.Class) {
		return nil
	}
	return Refuse("id", "set on a record of class "+s.Class.String(), "none: what it says is its name")
}

// hasUnknownID reports whether a record has an id that the holder with this version knows nothing
// of.
func (e Entry) hasUnknownID(fold uint32) bool {
	return fold < CopiesSince && e.Record.GetId() != "" && TakesID(e.Source.Class)
}

// withoutID is the entry as holders read it that know of no id: in JSON such a field is refused, in
// protobuf it is as if it were not there.
func (e Entry) withoutID() Entry {
	if e.json {
		e.Err = firstOf(e.Err, Refuse("id", "the holder of this tenant does not know of it",
			"a record without it, or a holder of a later version"))
		return e
	}
	e.Record = proto.CloneOf(e.Record)
	e.Record.Id = ""
	if r, ok := e.Err.(*Refused); ok && r.Field == "id" {
		e.Err = wellFormed(e.Record, e.Source)
	}
	return e
}

// BodyDigest tells a copy of a record from another one with the same id.
func (e Entry) BodyDigest() []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", e.Source.Subject())
	h.Write(e.Body)
	return h.Sum(nil)[:16]
}
