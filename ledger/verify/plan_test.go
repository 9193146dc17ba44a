package verify_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// selected is a bundle of one plan of messages that somebody with the key has signed.
func selected(t *testing.T, log []ledger.Message, plan string, keep ...uint64) ([]byte, verify.Selected, signer) {
	t.Helper()
	key := newSigner(t, "t", 1)
	leaves := leavesOf(t, log)
	var out bytes.Buffer
	s, err := verify.Select(bytes.NewReader(packed(t, leaves, key.sign(t, head(leaves)))), plan, keep, &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), s, key
}

// TestABundleOfAPlanShowsNothingElse: its records, those of its children and of what
// undoes it, and the facts that its conditions have read; the root is that of all.
func TestABundleOfAPlanShowsNothingElse(t *testing.T) {
	for _, c := range []struct {
		golden, plan string
		plans        []string
		facts        int
	}{
		{"cancelled", "q", []string{"q"}, 0},
		{"S100-2", "p", []string{"p", "p~1"}, 0},
		{"S61-1", "p", []string{"p", "q"}, 0},
		{"S93-1", "q", []string{"q"}, 1},
		{"C1-1", "q", []string{"q"}, 0},
	} {
		log := readGolden(t, c.golden)
		data, s, key := selected(t, log, c.plan)
		b, err := bundle.NewReader(bytes.NewReader(data))
		for err == nil {
			var item bundle.Item
			if item, err = b.Next(); err != nil || item.Kind != bundle.Record {
				continue
			}
			leaf, err := ledger.ParseLeaf(item.Data)
			if err != nil {
				t.Fatal(err)
			}
			entries, err := ledger.Decode("t", log[leaf.Sequence-1])
			if err != nil {
				t.Fatal(err)
			}
			r := entries[leaf.Index].Record
			fact := r.GetFactAsserted() != nil || r.GetFactRetracted() != nil
			if !slices.Contains(c.plans, r.Plan) && r.GetTermStarted() == nil && !fact {
				t.Errorf("%s: a record of plan %q is shown: %v", c.golden, r.Plan, r)
			}
		}
		if s.Facts != c.facts {
			t.Errorf("%s: %d facts, want %d", c.golden, s.Facts, c.facts)
		}
		r := checked(t, data, verify.Options{Keys: []string{key.key}})
		if r.Verdict != verify.CannotTell || r.Signed.Size != r.Size || r.Size-r.Withheld != s.Shown ||
			r.Signed.Through != r.Last || r.Last == 0 {
			t.Errorf("%s: %s %+v %s", c.golden, r.Verdict, r, told(r))
		}
		for _, d := range r.Doubts {
			if d.About != "the plan" && d.About != "the parent" && !strings.HasPrefix(d.About, "rule ") {
				t.Errorf("%s: %+v", c.golden, d)
			}
		}
	}
}

// TestABundleOfAPlanShowsTheFactsOfItsPrefixes: those too that its conditions have not come to read.
func TestABundleOfAPlanShowsTheFactsOfItsPrefixes(t *testing.T) {
	var log []ledger.Message
	write := func(source ledger.Source, r *pb.Record) {
		data, err := ledger.EncodeCommit([]*pb.Record{r})
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(len(log) + 1)
		source.Tenant = "t"
		log = append(log, ledger.Message{Sequence: n, StampNs: int64(n) * 1e9, Subject: source.Subject(), Data: data})
	}
	write(ledger.Source{Class: ledger.ClassExecutor, Term: true}, &pb.Record{Term: 1, Kind: &pb.Record_TermStarted{
		TermStarted: &pb.TermStarted{Holder: "h", FoldVersion: ledger.PrefixSince}}})
	write(ledger.Source{Class: ledger.ClassAgent, Name: "a", Plan: "p"}, &pb.Record{Plan: "p",
		Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Triggers: []*pb.Trigger{{Name: "jobs",
			Condition: `plan.actions > 1 && facts.count("job/") > 1`}}}}})
	for _, key := range []string{"job/a", "jobs", "job/b", "other"} {
		write(ledger.Source{Class: ledger.ClassFact, Name: "s"}, &pb.Record{Kind: &pb.Record_FactAsserted{
			FactAsserted: &pb.FactAsserted{Key: key, Value: []byte("1")}}})
	}
	data, s, _ := selected(t, log, "p")
	if s.Shown != 4 { // the term, the plan, and two facts
		t.Errorf("%+v", s)
	}
	if !bytes.Contains(data, []byte("job/b")) || bytes.Contains(data, []byte("other")) {
		t.Errorf("it shows other facts: %q", data)
	}
}

// TestWhatWasErasedIsSaidAndNotProven: the rest of the ledger is.
func TestWhatWasErasedIsSaidAndNotProven(t *testing.T) {
	log := readGolden(t, "erased")
	key := newSigner(t, "t", 1)
	leaves := leavesOf(t, log)
	r := checked(t, packed(t, leaves, key.sign(t, head(leaves))), verify.Options{Keys: []string{key.key}})
	if len(r.Findings) > 0 || len(r.Erased) != 2 {
		t.Fatalf("%s %+v", told(r), r.Erased)
	}
	for _, e := range r.Erased {
		if e.Sequence == 0 || e.Actor == "" || e.Reason == "" || !e.Destroyed {
			t.Errorf("%+v", e)
		}
		if want := "erased    plan " + e.Plan + " at sequence "; !strings.Contains(r.Text("b"), want) {
			t.Errorf("the text does not say %q:\n%s", want, r.Text("b"))
		}
	}
}

// TestAReportTellsWhy: the records of a plan in the order of the ledger, from its opening
// to its end, with what led to each; of one action only what is about it or the plan; and
// one that does not count says so.
func TestAReportTellsWhy(t *testing.T) {
	log := readGolden(t, "S93-1")
	key := newSigner(t, "t", 1)
	leaves := leavesOf(t, log)
	data := packed(t, leaves, key.sign(t, head(leaves)))
	whole := checked(t, data, verify.Options{Keys: []string{key.key}, Why: "q"})
	fired := slices.IndexFunc(whole.Why, func(l api.StoryLine) bool { return l.Kind == "lease_fired" })
	if len(whole.Findings) > 0 || fired < 1 || whole.Why[0].Kind != "plan_opened" || len(whole.Why[fired].Read) == 0 ||
		whole.Why[fired].Because == "" {
		t.Fatalf("%s %+v", whole.Verdict, whole.Why)
	}
	text := whole.Text("b")
	for _, want := range []string{whole.Why[fired].Record, "because of " + whole.Why[fired].Because, "condition: ",
		"read facts["} {
		if !strings.Contains(text, want) {
			t.Errorf("the text does not say %q:\n%s", want, text)
		}
	}
	for _, l := range checked(t, data, verify.Options{Why: "q", WhyAction: "a"}).Why {
		if l.Plan != "q" || l.Action != "" && l.Action != "a" {
			t.Errorf("%+v is of another plan or action", l)
		}
	}
	asked := verify.Options{Keys: []string{key.key}, Why: "q", WhyAction: "x"}
	if r := checked(t, data, asked); r.Verdict != verify.CannotTell ||
		!strings.Contains(told(r), "plan q, action x, is shown") {
		t.Errorf("an action that is not there: %s %s", r.Verdict, told(r))
	}
	if r := checked(t, data, verify.Options{Keys: []string{key.key}, Why: "nobody"}); r.Verdict != verify.CannotTell ||
		!strings.Contains(told(r), "plan nobody is shown") {
		t.Errorf("a plan that is not there: %s %s", r.Verdict, told(r))
	}
}

// TestALieIsSeenInABundleOfOnePlan where the records of the plan alone contradict it;
// what may have its reason elsewhere is not taken for one.
func TestALieIsSeenInABundleOfOnePlan(t *testing.T) {
	own := []string{"I14", "I15", "I17", "I18", "I19", "I20", "I21", "I22", "I23", "I24"}
	seen := 0
	for _, c := range lies {
		f := forge(t, c.golden)
		c.make(f)
		data, _, key := selected(t, f.messages(), "p")
		r := checked(t, data, verify.Options{Keys: []string{key.key}})
		if r.Verdict == verify.Proven {
			t.Errorf("%s: a part is proven", c.name)
		}
		for _, found := range r.Findings {
			if !slices.Contains(own, found.Rule) && found.Rule != "I4" && found.Rule != "I27" {
				t.Errorf("%s: %s is claimed of a part", c.name, found.Rule)
			}
		}
		if len(r.Findings) > 0 && r.Findings[0].Rule == c.rule && r.Findings[0].Sequence == c.sequence {
			seen++
		}
	}
	if seen < 15 {
		t.Fatalf("%d lies are seen", seen)
	}
}

// TestALieHidesNothingBesideIt: a record on which nothing rests, and that may be right with what is
// withheld, leaves a lie beside it what it is.
func TestALieHidesNothingBesideIt(t *testing.T) {
	refused := &pb.Record{Plan: "p", Term: 1, EpochNs: forge(t, "S100-1").record(10, 0).EpochNs,
		Kind: &pb.Record_RecordRefused{RecordRefused: &pb.RecordRefused{Sequence: 3, Reason: "no"}}}
	f := forge(t, "S100-1")
	f.at(10).records[2], f.at(11).records[2] = f.record(11, 2), f.record(10, 2) // the wrong order
	f.insert(10, f.at(10).message.Subject, proto.CloneOf(refused))
	data, _, key := selected(t, f.messages(), "p")
	r := checked(t, data, verify.Options{Keys: []string{key.key}})
	if r.Verdict != verify.Found || r.Findings[0].Rule != "I21" {
		t.Errorf("%s: %+v, %+v", r.Verdict, r.Findings, r.Doubts)
	}
	f = forge(t, "S100-1")
	f.insert(10, f.at(10).message.Subject, proto.CloneOf(refused))
	data, _, key = selected(t, f.messages(), "p")
	if r := checked(t, data, verify.Options{Keys: []string{key.key}}); !strings.Contains(r.Text("b"),
		"CANNOT TELL: rules may be broken") {
		t.Errorf("a rule that may be broken is not in the verdict:\n%s", r.Text("b"))
	}
}

// TestAKeptCheckpointIsHeldAgainstAPart where the export was told of it.
func TestAKeptCheckpointIsHeldAgainstAPart(t *testing.T) {
	log := readGolden(t, "cancelled")
	leaves := leavesOf(t, log)
	for size := range uint64(len(leaves)) {
		data, _, key := selected(t, log, "q", size)
		before := key.sign(t, head(leaves[:size]))
		if r := checked(t, data, verify.Options{Keys: []string{key.key}, Before: before}); !r.Kept.Holds {
			t.Fatalf("%d: %s", size, told(r))
		}
		c := head(leaves[:size])
		c.Root[0] ^= 1
		if r := checked(t, data, verify.Options{Keys: []string{key.key}, Before: key.sign(t,
			c)}); r.Verdict != verify.Found {
			t.Fatalf("%d: %s", size, told(r))
		}
	}
	if _, err := verify.Select(bytes.NewReader(packed(t, leaves)), "nobody", nil, &bytes.Buffer{}); err == nil {
		t.Fatal("a plan that never was is selected")
	}
}
