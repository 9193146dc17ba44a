package executor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// saidAgain are the kinds that count once more when a copy of one without an id is stored after
// the server has forgotten that of its append: nothing else in them tells a copy from the same
// words said again (docs/reliability.md). compensation_progressed repeats an instant that is known already.
var saidAgain = []string{"fact_asserted", "fact_retracted", "verdict_given", "clock_confirmed", "evict_requested",
	"restore_requested", "compensation_progressed"}

// TestACopyOfANamedRecordChangesNothing, however late it comes: of every record in the golden
// ledgers that counted and that no holder wrote, one is stored again behind the last.
func TestACopyOfANamedRecordChangesNothing(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range goldenNames(t) {
		w := &world{t: t, log: readGolden(t, name)}
		s := Open(rows.NewMemoryKV(), "t", w)
		var counted []ledger.Message
		fold := func(m ledger.Message) (effective []string) {
			entries, err := ledger.Decode("t", m)
			if err != nil {
				return nil // of a later version
			}
			for _, e := range entries {
				if s.Apply(e).Verdict == Effective && e.Source.Class != ledger.ClassExecutor {
					effective = append(effective, ledger.KindOf(e.Record).Name)
				}
			}
			s.Flush()
			return effective
		}
		for _, m := range w.log {
			if len(fold(m)) > 0 {
				counted = append(counted, m)
			}
		}
		for _, m := range counted {
			at := m.Sequence
			m.Sequence = uint64(len(w.log) + 1)
			m.StampNs += int64(1e12)
			w.log = append(w.log, m)
			for _, kind := range fold(m) {
				if seen[kind] = true; !slices.Contains(saidAgain, kind) {
					t.Errorf("%s: a copy of record %d, a %s, counts once more", name, at, kind)
				}
			}
		}
	}
	if !seen["fact_asserted"] || !seen["verdict_given"] {
		t.Error("no copy of a fact or a verdict counted: nothing was stored again")
	}
}

// named gives a record an id that is made at an instant (unix ns).
func named(n byte, ns int64, r *pb.Record) *pb.Record {
	var id ulid.ULID
	if err := id.SetTime(uint64(ns / 1e6)); err != nil {
		panic(err)
	}
	id[15] = n
	r.Id = id.String()
	return r
}

// again stores the message at a sequence once more, hours later.
func (w *world) again(sequence int) Result {
	w.t.Helper()
	w.now += 3 * int64(time.Hour)
	m := w.log[sequence-1]
	return w.raw(m.Subject, m.ContentType, m.Data)[0]
}

// TestACopyOfARecordWithAnIDChangesNothing, however late it comes, whatever was said since.
func TestACopyOfARecordWithAnIDChangesNothing(t *testing.T) {
	contract := func(text string) *pb.Record {
		digest := ledger.ContractDigest([]byte(text))
		return &pb.Record{Kind: &pb.Record_ContractPublished{ContractPublished: &pb.ContractPublished{
			Capability: "do.a", Digest: digest[:], Contract: []byte(text)}}}
	}
	verdict := func(outcome pb.VerdictOutcome) *pb.Record {
		return &pb.Record{Plan: "p", Action: "a", Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{
			Outcome: outcome, Reason: "policy"}}}
	}
	retracted := &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "k"}}}
	for name, c := range map[string]struct {
		source ledger.Source
		first  *pb.Record
		then   *pb.Record // what is said of the same after it; nil: nothing
	}{
		"an assertion":             {sensor, asserted("k", "1"), nil},
		"one that was retracted":   {sensor, asserted("k", "1"), proto.CloneOf(retracted)},
		"one that another is over": {sensor, asserted("k", "1"), asserted("k", "2")},
		"a retraction":             {sensor, proto.CloneOf(retracted), asserted("k", "3")},
		"a contract":               {ops, contract(`{"capability":"do.a"}`), contract(`{"capability":"do.a","v":2}`)},
		"a clock": {ops, &pb.Record{Kind: &pb.Record_ClockConfirmed{
			ClockConfirmed: &pb.ClockConfirmed{Actor: "ann"}}}, nil},
		"a verdict": {ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "law"},
			verdict(pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW), verdict(pb.VerdictOutcome_VERDICT_OUTCOME_REDIRECT)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.do("p", "a")
			w.must(w.append(sensor, asserted("k", "0")))
			w.must(w.append(c.source, named(1, w.now, c.first)))
			first := len(w.log)
			if c.then != nil {
				w.must(w.append(c.source, named(2, w.now, c.then)))
			}
			before := rows.Differences(w.kv, rows.NewMemoryKV(), 1000)
			if r := w.again(first); r.Verdict != Repeated {
				t.Errorf("the copy is %+v, not repeated", r)
			}
			if after := rows.Differences(w.kv, rows.NewMemoryKV(), 1000); !slices.Equal(before, after) {
				t.Errorf("the copy has changed rows:\n%v\n%v", before, after)
			}
			other := named(1, w.now, asserted("k", "9"))
			other.Id = c.first.Id
			if r := w.append(sensor, other)[0]; (c.source == sensor) != (r.Verdict == Refused) {
				t.Errorf("a fact under its id is %+v", r)
			} else if c.source == sensor && !strings.Contains(r.Reason, ledger.IDTaken) {
				t.Errorf("another record under its id is %+v", r)
			}
			w.wantRefolded()
		})
	}
}

// TestCopiesOfAFactDoNotAddUp to what a condition counts.
func TestCopiesOfAFactDoNotAddUp(t *testing.T) {
	w := newWorld(t)
	w.must(w.agent("p", &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Triggers: []*pb.Trigger{
		{Name: "failing", Condition: `at_least(3, "down", duration("48h"))`}}}}}))
	w.do("p", "a")
	for n := range byte(2) {
		w.must(w.append(sensor, named(n, w.now, asserted("down", "true"))))
	}
	w.again(len(w.log))
	w.again(len(w.log) - 1)
	w.turn()
	w.wantState("p", "open", "a=held")
	w.must(w.append(sensor, named(3, w.now, asserted("down", "true"))))
	w.turn()
	w.turn()
	if got := w.show("p").State; got == "open" {
		t.Error("three facts of their own do not undo the plan")
	}
}

// TestAnIDIsNothingToEarlierHolders: in JSON they have refused such a field, in protobuf they did
// not see it, whatever it is; what they decided stays.
func TestAnIDIsNothingToEarlierHolders(t *testing.T) {
	w := newWorld(t)
	w.underHolder(ledger.CopiesSince - 1)
	w.must(w.append(sensor, named(1, w.now, asserted("k", "1"))))
	at := len(w.log)
	for _, id := range []string{"x", strings.Repeat("7", 70)} {
		r := asserted("k", "2")
		r.Id = id
		w.must(w.append(sensor, r))
	}
	if r := w.again(at); r.Verdict != Effective {
		t.Errorf("a copy is %+v", r)
	}
	const text = `{"records":[{"id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","factAsserted":{"key":"k","value":"MQ=="}}]}`
	if r := w.raw(sensor.Subject(), ledger.ContentTypeJSON, []byte(text))[0]; r.Verdict != Refused {
		t.Errorf("in JSON it is %+v", r)
	}
	w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 3, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h2", FoldVersion: FoldVersion}}}))
	w.must(w.raw(sensor.Subject(), ledger.ContentTypeJSON, []byte(text)))
	if r := w.raw(sensor.Subject(), ledger.ContentTypeJSON, []byte(text))[0]; r.Verdict != Repeated {
		t.Errorf("under their successor a copy in JSON is %+v", r)
	}
	r := asserted("k", "2")
	r.Id = "x"
	if r := w.append(sensor, r)[0]; r.Verdict != Refused || !strings.Contains(r.Reason, "id: ") {
		t.Errorf("under their successor what is no id is %+v", r)
	}
	w.wantRefolded()
}

// TestAnIDOfAnAgentsRecordIsNothing: it is not read in protobuf, and refused in JSON as any field
// that is none.
func TestAnIDOfAnAgentsRecordIsNothing(t *testing.T) {
	w := newWorld(t)
	plan := opened(0)
	plan.Id = "x"
	w.must(w.agent("p", plan))
	act := pair("a")
	act[0].Id, act[1].Id = "x", "y"
	w.must(w.agent("p", act...))
	subject := ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: "q"}.Subject()
	r := w.raw(subject, ledger.ContentTypeJSON, []byte(`{"records":[{"plan":"q","id":"x","planOpened":{}}]}`))[0]
	if r.Verdict != Refused || !strings.Contains(r.Reason, "id: ") {
		t.Errorf("in JSON it is %+v", r)
	}
}

// TestAnIDIsOfItsTime: one from days to come, or from before those that are kept, is refused, and
// its record changes nothing.
func TestAnIDIsOfItsTime(t *testing.T) {
	w := newWorld(t)
	ahead := named(1, w.now+ledger.IDAheadMax.Nanoseconds()+1e9, asserted("k", "1"))
	if r := w.append(sensor, ahead)[0]; r.Verdict != Refused || !strings.HasPrefix(r.Reason, "id: made at ") {
		t.Errorf("an id from tomorrow is %+v", r)
	}
	w.must(w.append(sensor, named(2, w.now+ledger.IDAheadMax.Nanoseconds()-1e9, asserted("k", "1"))))
	w.must(w.append(sensor, named(3, w.now-int64(400*24*time.Hour), asserted("k", "2")))) // a clock that is wrong

	kv := rows.NewMemoryKV()
	id, _ := ledger.ParseRecordID(named(4, w.now, asserted("k", "1")).Id)
	rows.Head.Set(rows.Over(kv), struct{}{}, &rowspb.Meta{FoldVersion: FoldVersion, HolderFold: FoldVersion,
		TimeNs: w.now})
	rows.IDWindows.Set(rows.Over(kv), "fact sensor", &rowspb.IdWindow{Kept: ledger.IDsKept, Before: id[:]})
	s := Open(kv, "t", nil)
	for n, want := range map[byte]Verdict{3: Refused, 4: Refused, 5: Effective} {
		data, err := ledger.EncodeCommit([]*pb.Record{named(n, w.now, asserted("k", "1"))})
		if err != nil {
			t.Fatal(err)
		}
		r := foldMessage(t, s, ledger.Message{Sequence: uint64(n), StampNs: w.now, Subject: sensor.Subject(), Data: data})[0]
		if r.Verdict != want || want == Refused && !strings.HasPrefix(r.Reason, "id: made before the ") {
			t.Errorf("id %d beside %d is %+v", n, 4, r)
		}
	}
}
