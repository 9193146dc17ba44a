package executor_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The acceptance scenarios of the requirements, as far as they are decided here.

func acceptance(t *testing.T, id string) {
	t.Helper()
	runScript(t, filepath.Join("testdata", "acceptance", id+".txt"), nil)
}

func TestA1KnownAgainstUncertainFailure(t *testing.T)     { acceptance(t, "A1") }
func TestA2AContractEditedAfterTheStart(t *testing.T)     { acceptance(t, "A2") }
func TestA3TheSameCommandAgainHasTheSameKey(t *testing.T) { acceptance(t, "A3") }
func TestA4BrokenSchedulingIsNeverSilent(t *testing.T)    { acceptance(t, "A4") }
func TestA5ARetryWhileAClaimLives(t *testing.T)           { acceptance(t, "A5") }
func TestA6ABlindUndoResolvesWithNulls(t *testing.T)      { acceptance(t, "A6") }
func TestC1EveryKindOfFailureQuarantines(t *testing.T)    { acceptance(t, "C1") }
func TestC2SweepTwice(t *testing.T)                       { acceptance(t, "C2") }
func TestC4TheFailureIsThereToExitWith(t *testing.T)      { acceptance(t, "C4") }
func TestD4ThreeValuedTriggers(t *testing.T)              { acceptance(t, "D4") }
func TestD5VerdictBeforeAndAfterTheBoundary(t *testing.T) { acceptance(t, "D5") }
func TestD6ForgedAndRepeatedRecords(t *testing.T)         { acceptance(t, "D6") }
func TestD7AnIrreversibleActCallsNothing(t *testing.T)    { acceptance(t, "D7") }
func TestD8WhatNeverCrossedCallsNothing(t *testing.T)     { acceptance(t, "D8") }
func TestE1ALostAnswerInAllFourProbeResults(t *testing.T) { acceptance(t, "E1") }
func TestE2ConcurrentReactorsReverseOnce(t *testing.T)    { acceptance(t, "E2") }
func TestE3MissingOrFailingCallsItsOwner(t *testing.T)    { acceptance(t, "E3") }
func TestE4ResolvedByHandGoesOn(t *testing.T)             { acceptance(t, "E4") }
func TestE5CancelUndoesTheConfirmedSubset(t *testing.T)   { acceptance(t, "E5") }
func TestE6WhatComesWithTheActCounts(t *testing.T)        { acceptance(t, "E6") }

// failures are the ways in which the undo of x ends at its owner: marks of x, what
// else happens, and how the reason begins.
var failures = []struct{ name, marks, happens, note string }{
	{"no inverse", ":irr", "x+", "irreversible: do.x has no inverse"},
	{"no inverse, in doubt", ":irr", "x?", "irreversible and in doubt: do.x may have happened"},
	{"stop", "", "x+ x=stop", "undo.x failed: protected: never"},
	{"attempts spent", "", "x+ x=fail", "undo.x failed: locked: try later"},
	{"timeout", "", "x+ x=lost", "undo.x is in doubt: timeout: no answer within 30s"},
	{"its worker does not know", "", "x+ x=doubt", "undo.x is in doubt: "},
	{"no answer, and then a refusal", "", "x+ x=lost,fail", "undo.x failed: locked: try later"},
	{"no outcome, asks its owner", ":askme", "", "in doubt: the contract asks its owner"},
	{"binding", ":badbinding", "x+", "cannot build the call of undo.x: argument n:"},
	{"too large", ":large", "x+", "cannot build the call of undo.x: the arguments take"},
	{"call of the probe", ":badask", "x?", "cannot build the call of probe.x: argument n:"},
	{"call of the check", ":badcheck", "x+",
		"undo.x failed: unverified: cannot build the check after the undo: argument n:"},
	{"no compensation", ":none", "x+", "no compensation is registered for do.x"},
	{"probe inconclusive", ":probe", "x? x.probe=inconclusive", "in doubt, and the probe is inconclusive"},
	{"probe lost", ":probe", "x? x.probe=lost", "in doubt, and the probe is inconclusive: no answer in time"},
	{"probe fails", ":probe", "x? x.probe=fail", "in doubt, and the probe is inconclusive: locked: try later"},
	{"undo lost, probe inconclusive", ":blind", "x+ x=lost x.probe=inconclusive",
		"undo.x: in doubt, and the probe is inconclusive"},
	{"undo lost, still there", ":blind", "x+ x=lost x.probe=present", "undo.x failed: the effect still stands"},
	{"key forgotten, probe inconclusive", ":dedupe", "x+ x=fail x.probe=inconclusive",
		"undo.x: in doubt, and the probe is inconclusive"},
	{"verify finds it", ":verify", "x+ x.verify=there",
		"undo.x failed: unverified: its worker says done, and the check finds"},
	{"verify lost", ":verify", "x+ x.verify=lost", "undo.x failed: unverified: the check after the undo is inconclusive"},
	{"window closed", ":for=500ms", "x+ @500ms", "its undo window closed at"},
	{"window closed by the calendar", ":until=500ms", "x+ @500ms", "its undo window closed at"},
	{"window closed between attempts", ":for=500ms", "x+ x=fail", "its undo window closed at"},
	{"pivot", ":pivot", "x+", "a pivot: going back past it is its owner's decision"},
	{"approve", ":approve", "x+", "the contract asks for its owner's word"},
}

// TestC1EachKindOfFailure: x is quarantined with its reason, told once, and paged; what
// it came after halts, what stands beside it is done; nothing moves afterwards, not
// after a restart either; and a preview had said so, unless a worker had to be asked.
func TestC1EachKindOfFailure(t *testing.T) {
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			s := newScript(t)
			s.play("open a a+ y<a y+")
			s.failing(f.marks)
			s.play(f.happens)
			preview := s.preview("p", "")
			s.play("fail turn")
			for _, seconds := range []string{"1s", "30s", "60s"} {
				s.play("@" + seconds)
			}
			viewed := s.world.show("p")
			if got := s.undos("p"); viewed.State != ledger.StateQuarantined || got != "a=owed y=compensated x=quarantined" {
				t.Fatalf("%s: %s", viewed.State, got)
			}
			if note := viewed.Actions[2].Note; !strings.HasPrefix(note, f.note) {
				t.Fatalf("note %q", note)
			}
			if asked := slices.ContainsFunc(s.sent, func(c Command) bool { return c.Action == "x" }); !asked &&
				!strings.Contains(preview, "quarantine p/x ") {
				t.Fatalf("preview: %s", preview)
			}
			quarantined := 0
			for _, r := range s.effective() {
				if r.GetActionQuarantined() != nil {
					quarantined++
				}
			}
			if pages := s.called(true); quarantined != 1 || strings.Count(pages, "quarantined p/x: "+f.note) != 1 ||
				strings.Count(pages, "quarantined") != 1 {
				t.Fatalf("%d quarantines, pages %s", quarantined, pages)
			}
			for _, at := range []string{"", "1000h"} {
				if got := s.sweep(at); got != "nothing changed" {
					t.Fatal(got)
				}
			}
			if again := s.restart(); again != "" {
				t.Fatal(again)
			}
			if got := s.sweep("2000h"); got != "nothing changed" {
				t.Fatal(got)
			}
			s.rebuilt()
		})
	}
}

// failing registers x after a, beside y; some marks are of failures only.
func (s *script) failing(marks string) {
	s.t.Helper()
	wrong := `bindings { name: "n" expression: "input.id + 1" }`
	lines := map[string]string{
		":badbinding": "compensation " + wrong,
		":large": "compensation bindings { name: \"n\" expression: \"input\" } bindings { name: \"m\" expression: " +
			"\"input\" }\ninput \"" + strings.Repeat("y", 40<<10) + `"`,
		":badask":   `compensation probe { call { capability: "probe.x" ` + wrong + ` } }`,
		":badcheck": `compensation verify { ok: "true" call { capability: "verify.x" ` + wrong + ` } }`,
		":none":     "",
	}
	line, ok := lines[marks]
	if !ok {
		s.play("x<a" + marks)
		return
	}
	records := s.pair("x", "forward branch: true after: \"a\"\n"+line)
	if marks == ":none" {
		records[1].GetCompensationRegistered().Capability = ""
	}
	s.must(s.agent("p", records...))
}

// seen is what scripts show: values of enums by their full names, kinds of records,
// states of plans, outcomes of forwards.
type seen map[string]bool

func (c seen) script(s *script) {
	for _, m := range s.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range entries {
			c["kind "+ledger.KindOf(e.Record).Name] = true
			c.values(e.Record.ProtoReflect())
		}
	}
	for _, p := range plansOf(s.kv) {
		c["state "+p.State()] = true
		for a := range p.Actions() {
			c["outcome "+a.Outcome()] = true
			c["undo "+a.Undo()] = true
		}
	}
}

// values notes every value of an enum in a message, also what is not set.
func (c seen) values(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.Kind() == protoreflect.EnumKind:
			c[fmt.Sprint(f.Enum().Name(), " ", enumWord(f.Enum(), m.Get(f).Enum()))] = true
		case f.Kind() == protoreflect.MessageKind && !f.IsList() && m.Has(f):
			c.values(m.Get(f).Message())
		}
	}
}

// unseen are record kinds that no plan and no script of one is about.
var unseen = map[string]string{
	"kind clock_confirmed":   "the host reads it",
	"kind fact_evicted":      "no state of plans depends on it",
	"kind fact_reingested":   "no state of plans depends on it",
	"kind checkpoint_signed": "no state of plans depends on it",
	"kind key_rotated":       "no state of plans depends on it",
	"kind plan_erased":       "the golden ledger erased and the tests of erasure show it",
	"kind ledger_repaired":   "it stands where tiles end: the golden ledger repaired and the tests of the host show it",
}

// TestC3EveryValueIsHandledAndShown: a new kind of record, class, answer, question or
// outcome that no script shows fails here.
func TestC3EveryValueIsHandledAndShown(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	shown := seen{}
	for _, file := range files {
		runScript(t, file, shown.script)
	}
	want := seen{}
	enums := pb.File_sagenbaum_v1_record_proto.Enums()
	for i := range enums.Len() {
		for j := range enums.Get(i).Values().Len() {
			want[fmt.Sprint(enums.Get(i).Name(), " ", enumWord(enums.Get(i), enums.Get(i).Values().Get(j).Number()))] = true
		}
	}
	kinds := (&pb.Record{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		want["kind "+string(kinds.Get(i).Name())] = true
	}
	for phase := range rowspb.Phase_name {
		if phase != 0 {
			want["state "+StateName(&rowspb.PlanRow{Phase: rowspb.Phase(phase)})] = true
		}
	}
	for outcome := range rowspb.Outcome_name {
		want["outcome "+OutcomeName(rowspb.Outcome(outcome))] = true
	}
	for undo := range rowspb.Undo_name {
		if undo != int32(rowspb.Undo_UNDO_READY) && undo != int32(rowspb.Undo_UNDO_EXHAUSTED) { // inside a turn only
			want["undo "+UndoName(rowspb.Undo(undo))] = true
		}
	}
	for _, value := range slices.Sorted(maps.Keys(want)) {
		if !shown[value] && unseen[value] == "" {
			t.Errorf("no script shows %s", value)
		}
	}
}

// TestC3EveryValueHasAName: a value of an enum without a name panics here.
func TestC3EveryValueHasAName(t *testing.T) {
	named := func(names map[int32]string, name func(int32) string) {
		for n := range names {
			if n != 0 && name(n) == "" {
				t.Errorf("%s has no name", names[n])
			}
		}
	}
	named(rowspb.Outcome_name, func(n int32) string { return OutcomeName(rowspb.Outcome(n)) })
	named(rowspb.Undo_name, func(n int32) string { return UndoName(rowspb.Undo(n)) })
	named(pb.Presence_name, func(n int32) string { return PresenceName(pb.Presence(n)) })
	named(pb.VerdictOutcome_name, func(n int32) string { return VerdictName(pb.VerdictOutcome(n)) })
	named(pb.Resolution_name, func(n int32) string { return ResolutionName(pb.Resolution(n)) })
	named(pb.PlanEnd_name, func(n int32) string { return EndName(pb.PlanEnd(n)) })
	named(rowspb.Phase_name, func(n int32) string { return StateName(&rowspb.PlanRow{Phase: rowspb.Phase(n)}) })
}

// strange are records with a value that no reader of this version knows, by the field
// that holds it.
var strange = map[string]*pb.Record{
	"plan_opened.doubt_at_commit":         {Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{DoubtAtCommit: 9}}},
	"plan_opened.on_undo_failure":         {Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{OnUndoFailure: 9}}},
	"forward_registered.class":            {Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{Capability: "do.a", Class: 9}}},
	"compensation_registered.on_in_doubt": {Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{OnInDoubt: 9}}},
	"compensation_registered.on_late":     {Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{OnLate: 9}}},
	"verdict_given.scope": {Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{
		Outcome: pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK, Scope: 9}}},
	"verdict_given.outcome": {Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: 9}}},
	"resolved.outcome": {Kind: &pb.Record_Resolved{Resolved: &pb.Resolved{Outcome: 9, Reason: "r",
		Actor: "a", Evidence: "e"}}},
	"forward_registered.late":      {Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{Capability: "do.a", Class: pb.Class_CLASS_EFFECTLESS, Late: 9}}},
	"compensation_reported.answer": {Kind: &pb.Record_CompensationReported{CompensationReported: &pb.CompensationReported{Answer: 9}}},
}

// TestC3AValueThatNobodyKnowsIsRefused with its field's path, wherever others than a
// holder may write one; a new field of an enum needs its line here.
func TestC3AValueThatNobodyKnowsIsRefused(t *testing.T) {
	for field, r := range strange {
		r.Plan, r.Action = "p", "a"
		err := ledger.Check(r, ledger.Source{Tenant: "t", Class: ledger.KindOf(r).Class, Name: "n", Plan: "p"})
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	kinds := (&pb.Record{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		r := (&pb.Record{}).ProtoReflect().New()
		r.Set(kinds.Get(i), r.NewField(kinds.Get(i)))
		if ledger.KindOf(r.Interface().(*pb.Record)).Class == ledger.ClassExecutor {
			continue // TestD6ForgedAndRepeatedRecords
		}
		fields := kinds.Get(i).Message().Fields()
		for j := range fields.Len() {
			name := fmt.Sprint(kinds.Get(i).Name(), ".", fields.Get(j).Name())
			if fields.Get(j).Kind() == protoreflect.EnumKind && strange[name] == nil {
				t.Errorf("nothing shows what becomes of an unknown %s", name)
			}
		}
	}
}
