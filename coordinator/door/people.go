package door

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func count(n int) string { return strconv.Itoa(n) }

// write appends one record under the caller's name. A request with an id has the same commit id
// each time, so that the ledger keeps its first record; one that says anything else is refused.
// keep is called once the record has had an effect, and has the id remembered.
func (d *Door) write(ctx context.Context, who Caller, class ledger.Class, id string,
	record *pb.Record) (sequence uint64, keep func(), err error) {
	source := ledger.Source{Tenant: who.Tenant, Class: class, Name: who.Name}
	if id != "" && !ledger.ValidToken(id) {
		return 0, nil, ledger.Refuse("id", "no name", ledger.TokenWanted)
	}
	if err := ledger.Check(record, source); err != nil {
		return 0, nil, err
	}
	said, err := ledger.EncodeCommit([]*pb.Record{record})
	if err != nil {
		return 0, nil, err
	}
	if _, err := ledger.ParseRecordID(id); err == nil {
		record.Id = id // also the fold knows it then, for longer than this door
	}
	a, err := jetstream.NewAppend(source, record)
	if err != nil {
		return 0, nil, err
	}
	t, err := d.tenant(who.Tenant)
	if err != nil {
		return 0, nil, err
	}
	if id == "" {
		sequence, _, err = appendOnce(ctx, t, a)
		return sequence, func() {}, err
	}
	sum := sha256.Sum256([]byte(a.Subject + "\n" + id))
	a.ID = hex.EncodeToString(sum[:ledger.IDLen/2])
	one, known := d.given.find(a.Subject, id)
	digest := sha256.Sum256(said)
	again := false
	if !known {
		one.data = digest
		one.sequence, again, err = appendOnce(ctx, t, a)
	}
	if err == nil && (again || one.data != digest) {
		err = d.sameGiven(ctx, who, id, one.sequence, a, record)
	}
	if errors.Is(err, errOthers) {
		a.ID = d.given.secretID(a.Subject, id)
		if one.sequence, again, err = appendOnce(ctx, t, a); err == nil && again {
			err = d.sameGiven(ctx, who, id, one.sequence, a, record)
		}
	}
	return one.sequence, func() { d.given.keep(a.Subject, id, one) }, err
}

// appendOnce appends until it is known to be stored.
func appendOnce(ctx context.Context, t *tenant, a ledger.Append) (sequence uint64, again bool,
	err error) {
	sequence, again, err = t.append.AppendOnce(ctx, a)
	for errors.Is(err, ledger.ErrInDoubt) && ctx.Err() == nil && !t.conn.IsClosed() {
		pause(ctx, askPause)
		doubt := err
		sequence, again, err = t.append.AppendOnce(ctx, a)
		if errors.Is(err, jetstream.ErrConnectionClosed) && !errors.Is(err, ledger.ErrInDoubt) {
			return 0, false, doubt // this one was not sent
		}
	}
	return sequence, again, err
}

// factSaid is an api.FactAnswer with the fact as it came.
type factSaid struct {
	Fact    Raw      `json:"fact"`
	Refused []string `json:"refused"`
}

// fact writes a record about a fact, and says what is so then.
func (d *Door) fact(ctx context.Context, who Caller, id, key string, record *pb.Record) (Fact,
	error) {
	if record.Action != "" && record.Plan == "" {
		return Fact{}, ledger.Refuse("plan", "missing beside action", "the plan of the action")
	}
	sequence, keep, err := d.write(ctx, who, ledger.ClassFact, id, record)
	if err != nil {
		return Fact{}, err
	}
	reply, err := asRaw(ctx, d, who, api.FactGet, api.FactQuery{Key: key, Sequence: sequence})
	var answer factSaid
	if err == nil {
		err = readReply(reply, &answer)
	}
	var problem *api.Problem
	switch {
	case err != nil && !errors.As(err, &problem):
		e := explain(err)
		e.Stored = StoredAll
		return Fact{}, e
	case len(answer.Refused) > 0:
		if limit := ledger.TenantRefusal(answer.Refused[0]); limit != nil {
			return Fact{}, limit
		}
		wrong := wrongID(id, answer.Refused[0])
		if wrong == nil {
			wrong = ledger.Refuse("action", strings.Join(answer.Refused, "; "),
				"an action that is registered, or none")
		}
		return Fact{}, withoutEffect(wrong)
	case problem != nil:
		return Fact{}, ledger.Refuse("key", problem.Text, "the key of a fact")
	}
	keep()
	return Fact{Sequence: int(sequence), Fact: answer.Fact}, nil
}

// withoutEffect is a refusal of what is in the ledger: the fold has refused its record.
func withoutEffect(err error) *Error {
	e := explain(err)
	e.Stored = StoredAll
	return e
}

// wrongID is a fold's refusal of the id of a request as an error; nil: it refuses something else.
func wrongID(id, refusal string) error {
	why, ok := strings.CutPrefix(refusal, "id: ")
	if !ok {
		return nil
	}
	why, _, _ = strings.Cut(why, ": want ")
	if strings.Contains(why, ledger.IDTaken) {
		return repeated("id", id, "record")
	}
	return ledger.Refuse("id", why, ledger.IDWanted+", made now")
}

// doPut is fact.put.
func (d *Door) doPut(ctx context.Context, who Caller, q *Put) (Fact, error) {
	return d.fact(ctx, who, q.ID, q.Key, &pb.Record{Plan: q.Plan, Action: q.Action,
		Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: q.Key, Value: q.Value}}})
}

// doRetract is fact.retract.
func (d *Door) doRetract(ctx context.Context, who Caller, q *Retract) (Fact, error) {
	return d.fact(ctx, who, q.ID, q.Key, &pb.Record{Plan: q.Plan, Action: q.Action,
		Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: q.Key}}})
}

// scopesOf are the scopes of verdict.give.
var scopesOf = map[string]pb.Scope{"action": pb.Scope_SCOPE_ACTION, "plan": pb.Scope_SCOPE_PLAN}

// doGive is verdict.give.
func (d *Door) doGive(ctx context.Context, who Caller, q *Give) (Given, error) {
	if q.Scope != "" && q.Verdict == verdictAllow {
		return Given{}, ledger.Refuse("scope", "given for what undoes nothing",
			"none, or verdict block or redirect")
	}
	if q.Verdict != verdictAllow && ledger.IsBlank(q.Reason) {
		return Given{}, ledger.Refuse("reason", "none, of what keeps an action from being done",
			"why, or what to do instead: the agent is told")
	}
	outcome, _ := ledger.VerdictOf(q.Verdict) // of none the record is refused
	sequence, keep, err := d.write(ctx, who, ledger.ClassVerdict, q.ID, &pb.Record{Plan: q.Plan,
		Action: q.Action, Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{
			Outcome: outcome, Reason: q.Reason, Scope: scopesOf[q.Scope]}}})
	if err != nil {
		return Given{}, err
	}
	answer, err := ask(ctx, d, who, api.PlanOutcome, api.OutcomeQuery{Plan: q.Plan,
		Sequence: sequence, Action: q.Action})
	var problem *api.Problem
	switch {
	case err != nil && !errors.As(err, &problem):
		e := explain(err)
		e.Stored = StoredAll
		return Given{}, e
	case len(answer.Refused) > 0:
		return Given{}, withoutEffect(notJudged(q, answer, problem != nil))
	case problem != nil:
		return Given{}, ledger.Refuse("plan", problem.Text, "the id of a plan")
	}
	keep()
	given := Given{Plan: q.Plan, Action: q.Action, Verdict: q.Verdict, Sequence: int(sequence),
		State: answer.State, UndoneAs: answer.UndoneAs, UndoneIn: answer.UndoneIn}
	if q.Verdict == verdictAllow && answer.Outcome == api.OutcomeFailed {
		given.Note = fmt.Sprintf("the verdict allows nothing: action %s has failed, and its agent waits "+
			"no more for one", q.Action)
	}
	if q.Verdict != verdictAllow && answer.State == ledger.StateCommitted && answer.UndoneAs == "" {
		given.Note = committedNote(q, answer)
	}
	return given, nil
}

// committedNote says what a block of an action of a committed plan does, where no plan undoes it.
func committedNote(q *Give, answer api.OutcomeAnswer) string {
	switch {
	case answer.UndoneIn != "":
		return fmt.Sprintf("action %s %s", q.Action, answer.UndoneWithChild())
	case answer.Undo == ledger.StateDelivering:
		return fmt.Sprintf("plan %s is committed, and the verdict stops its deliveries: what was not "+
			"sent is dropped, and what was is waited for", q.Plan)
	case answer.Undo == "dropped":
		return fmt.Sprintf("plan %s is committed, and action %s was dropped: nothing was sent for it",
			q.Plan, q.Action)
	}
	return fmt.Sprintf("plan %s is committed, and the verdict has undone nothing: action %s has "+
		"nothing to undo", q.Plan, q.Action)
}

// notJudged is why the fold has refused a verdict, with the field that is wrong.
func notJudged(q *Give, answer api.OutcomeAnswer, noPlan bool) error {
	if wrong := wrongID(q.ID, answer.Refused[0]); wrong != nil {
		return wrong
	}
	field, want := "verdict", "none: the action takes this one no more; plan why of the plan "+
		"tells what became of it"
	switch {
	case noPlan:
		field, want = "plan", "the id of a plan"
	case answer.Undo == "":
		field, want = "action", "an action of the plan that is registered"
	}
	return ledger.Refuse(field, strings.Join(answer.Refused, "; "), want)
}

// doReviews is review.list.
func (d *Door) doReviews(ctx context.Context, who Caller, q *Reviews) (Raw, error) {
	if err := checkLimit(q.Limit); err != nil {
		return nil, err
	}
	field, question := "after", api.ReviewQuery{After: q.After, Limit: limitOf(q.Limit)}
	if q.Plan != "" || q.Action != "" {
		field, question = "action", api.ReviewQuery{Plan: q.Plan, Action: api.ByID(q.Action)}
		switch {
		case q.Plan == "":
			return nil, ledger.Refuse("plan", "none", "the plan of the action")
		case q.Action == "":
			return nil, ledger.Refuse("action", "none", "an action of the plan")
		case q.After != "":
			return nil, ledger.Refuse("after", "given with one action", "none")
		}
	}
	answer, err := asRaw(ctx, d, who, api.ReviewLs, question)
	if err != nil {
		return nil, err
	}
	return answer, refusedAnswer(field, answer)
}
