package door

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// given are the requests with ids of sources and supervisors that had an effect, the latest of
// each: JetStream knows an id for two minutes only.
type given struct {
	mu sync.Mutex
	of map[string]*givenBy // by the subject of their records
	by []string            // these subjects, the one that was used last at the end

	secret [sha256.Size]byte
}

// errOthers: what JetStream has under the id of a record is not its source's. Ids are those of all
// subjects of a stream, and those of requests can be guessed.
var errOthers = errors.New("the id is taken by a message of another subject")

// secretID is the id of the commit of a request that no other client of this tenant can guess. Only
// this door knows it: doors of other hosts have the same ids otherwise.
func (g *given) secretID(subject, id string) string {
	sum := hmac.New(sha256.New, g.secret[:])
	sum.Write([]byte(subject + "\n" + id))
	return hex.EncodeToString(sum.Sum(nil)[:ledger.IDLen/2])
}

// givenBy are those of one source or supervisor.
type givenBy struct {
	ids    map[string]givenOne
	oldest []string
}

// givenOne is the record of a request.
type givenOne struct {
	data     [sha256.Size]byte // SHA-256 of its commit
	sequence uint64
}

// find finds the record of an id.
func (g *given) find(subject, id string) (one givenOne, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if by := g.of[subject]; by != nil {
		one, ok = by.ids[id]
	}
	return one, ok
}

// keep remembers the record of an id, and forgets those of long ago.
func (g *given) keep(subject, id string, one givenOne) {
	g.mu.Lock()
	defer g.mu.Unlock()
	by := g.of[subject]
	switch {
	case by == nil:
		by = &givenBy{ids: map[string]givenOne{}}
		if g.of == nil {
			g.of = map[string]*givenBy{}
		}
		g.of[subject] = by
		if g.by = append(g.by, subject); len(g.by) > givenByMax {
			delete(g.of, g.by[0])
			g.by = slices.Delete(g.by, 0, 1)
		}
	case g.by[len(g.by)-1] != subject:
		g.by = append(slices.DeleteFunc(g.by, func(s string) bool { return s == subject }), subject)
	}
	if _, known := by.ids[id]; known {
		return
	}
	by.ids[id] = one
	if by.oldest = append(by.oldest, id); len(by.oldest) > givenMax {
		delete(by.ids, by.oldest[0])
		by.oldest = slices.Delete(by.oldest, 0, 1)
	}
}

// sameGiven refuses a request under the id of an earlier one, whose record is at a sequence, if
// it says something else. The error is errOthers where the record is not the caller's.
func (d *Door) sameGiven(ctx context.Context, who Caller, id string, sequence uint64,
	a ledger.Append, record *pb.Record) error {
	answer, err := ask(ctx, d, who, api.LedgerRead, api.ReadQuery{From: sequence, Limit: 1,
		WaitMs: (askMax / 2).Milliseconds()})
	if err != nil || len(answer.Messages) == 0 || answer.Messages[0].Sequence != sequence {
		return unavailable("what was given before with this id cannot be read", sameAgain, StoredUnknown)
	}
	was := answer.Messages[0]
	if was.Subject != a.Subject {
		return errOthers
	}
	entries, err := ledger.Decode(who.Tenant, ledger.Message{Sequence: sequence,
		Subject: was.Subject, ContentType: was.ContentType, Data: was.Data})
	if err != nil || len(entries) != 1 {
		return repeated("id", id, "record")
	}
	before := proto.CloneOf(entries[0].Record)
	if before.Id = record.Id; proto.Equal(before, record) { // its id may be this try's
		return nil
	}
	return repeated("id", id, otherThan(before, record))
}

// otherThan names what a record says otherwise than another one.
func otherThan(was, now *pb.Record) string {
	fact, verdict := was.GetFactAsserted(), was.GetVerdictGiven()
	switch {
	case ledger.KindOf(was).Name != ledger.KindOf(now).Name:
		return "verb"
	case was.Plan != now.Plan:
		return "plan"
	case was.Action != now.Action:
		return "action"
	case fact.GetKey() != now.GetFactAsserted().GetKey(),
		was.GetFactRetracted().GetKey() != now.GetFactRetracted().GetKey():
		return "key"
	case fact != nil:
		return "value"
	case verdict.GetOutcome() != now.GetVerdictGiven().GetOutcome():
		return "verdict"
	case verdict.GetReason() != now.GetVerdictGiven().GetReason():
		return "reason"
	}
	return "scope"
}
