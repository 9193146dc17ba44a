package verify_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// lies are golden ledgers of which one thing was changed by somebody who has the key,
// so that every reference and signature is right and only the rules can tell.
var lies = []struct {
	name, golden string
	rule         string
	sequence     uint64 // of the record that the verifier names first
	make         func(f *forger)
}{
	{"an unwind without a firing", "S100-1", "I11", 10, func(f *forger) {
		f.record(10, 1).Cause = proto.CloneOf(f.record(10, 0).Cause)
		f.record(10, 2).Cause.Index = 0
		f.drop(10, 0)
	}},
	{"an undo without its trigger", "S100-1", "I11", 9, func(f *forger) { f.drop(9, 0); f.instead(9, 0, 8, 0) }},
	{"a trigger that was true earlier", "S93-1", "I12", 16, func(f *forger) {
		again := proto.CloneOf(f.record(14, 0))
		f.insert(15, f.at(14).message.Subject, again)
		f.log[15].records[0].Cause = nil
		f.places[again] = [2]uint64{999, 0}
		f.log[15].records[0].Cause = &pb.Address{Sequence: 999, Leaf: make([]byte, 32)}
	}},
	{"a deadline that fires early", "clock-and-checkpoint", "I16", 9, func(f *forger) {
		for _, sequence := range []uint64{9, 10, 11} {
			f.at(sequence).message.StampNs = f.at(1).message.StampNs
			for _, r := range f.at(sequence).records {
				r.EpochNs = f.at(1).message.StampNs
			}
		}
	}},
	{"the wrong order", "S100-1", "I21", 10, func(f *forger) {
		f.at(10).records[2], f.at(11).records[2] = f.record(11, 2), f.record(10, 2)
	}},
	{"an undo of what never crossed", "S100-1", "I20", 11, func(f *forger) {
		r := proto.CloneOf(f.record(11, 2))
		r.Action, r.About = "b", proto.CloneOf(f.record(11, 1).About)
		r.GetCompensationDispatched().Key = ledger.Key("t", "p", "b", ledger.PurposeUndo)
		r.GetCompensationDispatched().Capability = "undo.b"
		f.at(11).records[1] = r
	}},
	{"a second success", "S100-1", "I22", 12, func(f *forger) {
		f.at(12).records = slices.Insert(f.at(12).records, 1,
			proto.CloneOf(f.record(12, 0)))
	}},
	{"a second success in another message", "S100-1", "I15", 13, func(f *forger) {
		again := proto.CloneOf(f.record(12, 0))
		again.EpochNs++
		f.insert(13, f.at(12).message.Subject, again)
	}},
	{"a success without its dispatch", "S100-1", "I18", 12,
		func(f *forger) { f.drop(11, 2); f.record(12, 0).Cause = nil }},
	{"a missing owed undo", "S100-1", "I22", 12, func(f *forger) { f.drop(11, 2); f.drop(12, 0) }},
	{"a missing owed undo, and no end", "S100-1", "L1", 2,
		func(f *forger) { f.drop(11, 2); f.drop(12, 0, 1); f.atRest = true }},
	{"a success without its end", "S100-1", "L1", 2, func(f *forger) { f.drop(12, 1); f.atRest = true }},
	{"a commit after the unwind", "S100-1", "I24", 13, func(f *forger) {
		committed := &pb.Record{Plan: "p", Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}}
		retired := &pb.Record{Plan: "p", Term: 1, EpochNs: f.record(12, 0).EpochNs,
			Kind: &pb.Record_HeldSetRetired{HeldSetRetired: &pb.HeldSetRetired{Count: 3}}}
		f.insert(11, f.at(9).message.Subject, committed)
		f.insert(13, f.at(12).message.Subject, retired)
	}},
	{"a verdict that was never given", "S77-1", "I14", 8, func(f *forger) {
		f.append("saga.t.executor", &pb.Record{Plan: "p", Action: "a", Term: 1, EpochNs: f.at(7).message.StampNs,
			Cause: nil, Kind: &pb.Record_LeaseFired{LeaseFired: &pb.LeaseFired{
				Lease: "action.verdict", Depth: 1,
				Condition: `verdict.outcome in ["block", "redirect"] && action.outcome in ["completed", "in_doubt"]`}}})
	}},
	{"a verdict on what never crossed", "S77-1", "I11", 8, func(f *forger) {
		f.append("saga.t.executor", &pb.Record{Plan: "p", Action: "b", Term: 1, EpochNs: f.at(7).message.StampNs,
			Kind: &pb.Record_LeaseFired{LeaseFired: &pb.LeaseFired{
				Lease: "action.verdict", Depth: 1,
				Condition: `verdict.outcome in ["block", "redirect"] && action.outcome in ["completed", "in_doubt"]`}}})
	}},
	{"a clock that was moved", "clock-and-checkpoint", "I16", 9, func(f *forger) {
		for _, r := range f.at(9).records {
			r.EpochNs -= int64(5e9)
		}
		f.at(9).message.StampNs = f.at(8).message.StampNs
	}},
	{"a term that never began", "S100-1", "I26", 10, func(f *forger) {
		for _, r := range f.at(10).records {
			r.Term = 7
		}
	}},
	{"a holder that was replaced", "S100-1", "I26", 11, func(f *forger) {
		r := proto.CloneOf(f.record(1, 0))
		r.Term = 2
		f.insert(10, f.at(1).message.Subject, r)
	}},
	{"a term that goes back", "cancelled", "I26", 21, func(f *forger) {
		f.append("saga.t.executor.term", proto.CloneOf(f.record(1, 0)))
		f.log[20].records[0].EpochNs++
	}},
	{"another tenant's message", "S100-1", "I27", 5,
		func(f *forger) { f.insert(5, "saga.other.agent.a1.p", proto.CloneOf(f.record(9, 0))) }},
	{"another key", "E6-1", "I19", 7, func(f *forger) {
		f.record(7, 2).GetCompensationDispatched().Key = ledger.Key("t", "p", "b", ledger.PurposeUndo)
	}},
	{"an attempt that is none", "E6-1", "I19", 7,
		func(f *forger) { f.record(7, 2).GetCompensationDispatched().Attempt = 2 }},
	{"another undo than was registered", "E6-1", "I19", 7,
		func(f *forger) { f.record(7, 2).GetCompensationDispatched().Capability = "drop.everything" }},
	{"an undo with another timeout", "E6-1", "I17", 7,
		func(f *forger) { f.record(7, 2).GetCompensationDispatched().TimeoutNs++ }},
	{"an undo that hides the output", "E6-1", "I17", 7, func(f *forger) {
		d := f.record(7, 2).GetCompensationDispatched()
		d.HasForwardOutput = !d.HasForwardOutput
	}},
	{"an undo that calls its forward in doubt", "E6-1", "I20", 7,
		func(f *forger) { f.record(7, 2).GetCompensationDispatched().BlindCleanup = true }},
	{"a firing of another condition", "S100-1", "I11", 10,
		func(f *forger) { f.record(10, 0).GetLeaseFired().Condition = "true" }},
	{"a firing that read another value", "S93-1", "I11", 15, func(f *forger) {
		r := f.record(15, 0).GetLeaseFired().Readings[0]
		r.Value = []byte(`0.5`)
	}},
	{"a firing that read nothing", "S93-1", "I11", 15,
		func(f *forger) { f.record(15, 0).GetLeaseFired().Readings = nil }},
	{"another depth", "S93-1", "I25", 15, func(f *forger) { f.record(15, 0).GetLeaseFired().Depth = 1 }},
	{"a chain with a link less", "S93-1", "I25", 15, func(f *forger) { f.record(15, 0).GetLeaseFired().Chain = nil }},
	{"a cut that was none", "S93-1", "I25", 18, func(f *forger) { f.record(18, 0).GetCascadeCut().Depth = 9 }},
	{"a cascade that goes on without its owner", "S93-1", "I25", 21,
		func(f *forger) { f.drop(21, 0); f.instead(21, 0, 18, 0) }},
	{"an end that hides what is outstanding", "S17-2", "I23", 11,
		func(f *forger) { f.record(11, 1).GetPlanEnded().Outstanding = nil }},
	{"an end that counts too many", "S100-1", "I22", 12,
		func(f *forger) { f.record(12, 1).GetPlanEnded().Compensated++ }},
	{"compensated instead of quarantined", "S17-2", "I22", 11,
		func(f *forger) { f.record(11, 1).GetPlanEnded().End = pb.PlanEnd_PLAN_END_COMPENSATED }},
	{"an undo about another record", "E6-1", "I6", 7,
		func(f *forger) { f.record(7, 2).About = proto.CloneOf(f.record(7, 0).Cause) }},
	{"a cause that is nowhere", "E6-1", "I6", 7,
		func(f *forger) { f.record(7, 2).Cause = &pb.Address{Sequence: 3, Index: 9, Leaf: make([]byte, 32)} }},
	{"half of a pair", "E6-1", "I6", 7, func(f *forger) { f.drop(4, 1) }},
	{"an outcome that was left out", "S100-1", "I20", 10, func(f *forger) { f.drop(4, 0) }},
	{"a failure that was left out", "S100-1", "I22", 10, func(f *forger) { f.drop(6, 0) }},
	{"a resolution that was left out", "E4-1", "I15", 10, func(f *forger) { f.drop(10, 0); f.instead(10, 0, 8, 1) }},
	{"a quarantine that was left out", "E4-1", "I23", 9, func(f *forger) { f.drop(9, 1) }},
	{"a retry that nobody asked for", "S29-1", "I15", 11, func(f *forger) { f.drop(11, 0); f.instead(11, 0, 9, 1) }},
	{"a retirement that counts too few", "S100-2", "I24", 10,
		func(f *forger) { f.record(10, 0).GetHeldSetRetired().Count-- }},
	{"a retirement without a commit", "S100-2", "I24", 9, func(f *forger) { f.drop(9, 0); f.instead(9, 0, 2, 0) }},
	{"an undo after the commit that nobody asked for", "S100-2", "I6", 11, func(f *forger) { f.drop(11, 0) }},
	{"a probe that was never answered", "cancelled", "I22", 19, func(f *forger) { f.drop(19, 0) }},
	{"a savepoint that was left out", "S61-1", "I11", 22, func(f *forger) { f.drop(17, 0) }},
	{"a child that is not unwound", "S61-1", "I15", 30, func(f *forger) { f.drop(29, 3); f.instead(29, 3, 29, 1) }},
	{"an agent's record of a holder", "E6-1", "I4", 6, func(f *forger) { f.at(6).message.Subject = "saga.t.executor" }},
	{"a checkpoint of what is not there yet", "cancelled", "I2", 21, func(f *forger) {
		f.append("saga.t.executor", &pb.Record{Term: 1, EpochNs: f.at(20).message.StampNs,
			Kind: &pb.Record_CheckpointSigned{CheckpointSigned: &pb.CheckpointSigned{
				Size: 99, Root: make([]byte, 32)}}})
	}},
	{"a success before that of the undo that it went behind", "ahead", "I18", 11, func(f *forger) {
		f.at(11).records[0], f.at(11).records[1] = f.record(11, 1), f.record(11, 0)
	}},
	{"a dispatch behind what is none", "ahead", "I21", 10,
		func(f *forger) { f.record(10, 3).GetCompensationDispatched().Behind.Index = 1 }},
	{"a dispatch behind one that was left out", "ahead", "I6", 10, func(f *forger) { f.drop(10, 2) }},
	{"a dispatch ahead of one that is to be checked", "ahead", "I20", 10, func(f *forger) {
		f.record(5, 1).GetCompensationRegistered().Verify = &pb.Verify{Call: &pb.Call{Capability: "look"}, Ok: "true"}
	}},
	{"a dispatch ahead whose undo window closes", "ahead", "I20", 10, func(f *forger) {
		f.record(3, 1).GetCompensationRegistered().ValidUntilNs = f.record(10, 4).EpochNs + 5e8
	}},
	{"a dispatch that was called back is none", "ahead", "I19", 23,
		func(f *forger) { f.record(23, 1).GetCompensationDispatched().Attempt = 1 }},
	{"an answer to what was not refused", "S29-3", "I6", 12,
		func(f *forger) { f.record(12, 0).GetRecordRefused().Sequence = 4 }},
}

// TestEveryLieIsNamed: whoever has the key can sign anything, and the rules still name
// the first record that cannot be.
func TestEveryLieIsNamed(t *testing.T) {
	key := newSigner(t, "t", 1)
	for _, c := range lies {
		t.Run(c.name, func(t *testing.T) {
			f := forge(t, c.golden)
			c.make(f)
			leaves := leavesOf(t, f.messages())
			r := checked(t, packed(t, leaves, key.sign(t, head(leaves))),
				verify.Options{Keys: []string{key.key}, AtRest: f.atRest})
			if r.Verdict != verify.Found || r.Findings[0].Rule != c.rule || r.Findings[0].Sequence != c.sequence {
				t.Fatalf("%s, %s; want %s at %d", r.Verdict, told(r), c.rule, c.sequence)
			}
			beside := checked(t, packed(t, leaves, key.sign(t, head(leaves))), verify.Options{
				Keys: []string{key.key}, AtRest: f.atRest, Memory: audit.Memory{Shelf: shelf{}, HandMax: 1}})
			if told(beside) != told(r) {
				t.Fatalf("with what is not at hand on a shelf: %s, want %s", told(beside), told(r))
			}
			if r.Signed.Size != r.Size {
				t.Fatalf("the forger's signature is good, and covers %d of %d", r.Signed.Size, r.Size)
			}
		})
	}
}

// TestAClockThatIsAheadIsTold: what is due by time is due by the clock of the holder, of which nothing
// but the stamps says whether it was right.
func TestAClockThatIsAheadIsTold(t *testing.T) {
	for ahead, verdict := range map[time.Duration]string{
		time.Minute: verify.Proven, time.Minute + time.Second: verify.CannotTell, 40 * 24 * time.Hour: verify.CannotTell,
	} {
		f := forge(t, "cancelled")
		at := slices.IndexFunc(f.log, func(c *commit) bool {
			return c.records[0].GetUnwindStarted() != nil ||
				c.records[0].GetLeaseFired() != nil
		})
		for _, c := range f.log[at:] {
			for _, r := range c.records {
				if r.EpochNs != 0 {
					r.EpochNs = f.log[at].message.StampNs + int64(ahead)
				}
			}
		}
		key := newSigner(t, "t", 1)
		leaves := leavesOf(t, f.messages())
		r := checked(t, packed(t, leaves, key.sign(t, head(leaves))), verify.Options{Keys: []string{key.key}})
		if r.Verdict != verdict || verdict != verify.Proven && (r.Doubts[0].About != "the clock" ||
			r.Doubts[0].Sequence != uint64(at+1) || !strings.Contains(r.Doubts[0].Why, ahead.String())) {
			t.Errorf("%v ahead: %s, %s", ahead, r.Verdict, told(r))
		}
	}
}

// TestAReportSaysByWhoseRules its holders have decided.
func TestAReportSaysByWhoseRules(t *testing.T) {
	for _, c := range []struct {
		folds []uint32
		want  string
	}{{[]uint32{32}, "rules as of fold 32: "}, {[]uint32{31, 15, 32, 16}, "rules as of folds 15 to 32: "}} {
		key := newSigner(t, "t", 1)
		f := forge(t, "cancelled")
		f.record(1, 0).GetTermStarted().FoldVersion = c.folds[0]
		for i, fold := range c.folds[1:] {
			f.append("saga.t.executor.term", &pb.Record{Term: uint64(i + 2),
				Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h", FoldVersion: fold}}})
		}
		leaves := leavesOf(t, f.messages())
		r := checked(t, packed(t, leaves, key.sign(t, head(leaves))), verify.Options{Keys: []string{key.key}})
		if text := r.Text("b"); !strings.Contains(text, c.want) {
			t.Errorf("%v:\n%s", c.folds, text)
		}
	}
}

// shelf is an audit.Shelf in memory.
type shelf map[string]string

// Put implements audit.Shelf.
func (s shelf) Put(key string, value []byte) { s[key] = string(value) }

// Get implements audit.Shelf.
func (s shelf) Get(key string) ([]byte, bool) {
	value, ok := s[key]
	return []byte(value), ok
}

// Each implements audit.Shelf.
func (s shelf) Each(prefix string, each func(key string, value []byte)) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if strings.HasPrefix(key, prefix) {
			each(key, []byte(s[key]))
		}
	}
}

func checked(t testing.TB, data []byte, o verify.Options) *verify.Report {
	t.Helper()
	r, err := verify.Check(bytes.NewReader(data), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func told(r *verify.Report) (text string) {
	for _, f := range r.Findings {
		text += fmt.Sprintf("\n%s at %d..%d: %s", f.Rule, f.Sequence, f.Through, f.Problem)
	}
	for _, d := range r.Doubts {
		text += fmt.Sprintf("\n%s cannot be told at %d: %s", d.About, d.Sequence, d.Why)
	}
	return text
}
