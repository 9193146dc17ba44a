package verify_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// repairedBy is the report on a signed bundle of a ledger whose last message is a repair.
func repairedBy(t *testing.T, change func(k *pb.LedgerRepaired)) *verify.Report {
	t.Helper()
	f := forge(t, "cancelled")
	before := head(leavesOf(t, f.messages()))
	last := f.messages()[len(f.messages())-1]
	k := &pb.LedgerRepaired{Through: last.Sequence, Size: before.Size, Root: before.Root[:],
		OldLast: last.Sequence + 20, Reason: "routine", Actor: "ops"}
	change(k)
	f.append("saga.t.executor", &pb.Record{Term: 1, EpochNs: last.StampNs,
		Kind: &pb.Record_LedgerRepaired{LedgerRepaired: k}})
	leaves, key := leavesOf(t, f.messages()), newSigner(t, "t", 1)
	return checked(t, packed(t, leaves, key.sign(t, head(leaves))), verify.Options{Keys: []string{key.key}})
}

// TestWhatARepairLeftOutIsNotProven: a veto may have been there.
func TestWhatARepairLeftOutIsNotProven(t *testing.T) {
	lost := []*pb.SequenceRange{{From: 22, To: 22}, {From: 24, To: 30}}
	for name, c := range map[string]struct {
		change  func(k *pb.LedgerRepaired)
		verdict string
		want    []string
		untold  bool
	}{
		"nothing": {func(*pb.LedgerRepaired) {}, verify.Proven, []string{"lost none; carried none; dropped none"}, false},
		"carried": {func(k *pb.LedgerRepaired) { k.Carried = lost }, verify.Proven,
			[]string{"lost none; carried 22, 24-30; dropped none"}, false},
		"lost": {func(k *pb.LedgerRepaired) { k.Lost = lost }, verify.CannotTell,
			[]string{"lost 22, 24-30; carried none; dropped none", "sequences 22, 24-30 could not be read: ", "a veto"}, true},
		"dropped": {func(k *pb.LedgerRepaired) { k.Dropped = lost }, verify.CannotTell,
			[]string{"dropped 22, 24-30", "sequences 22, 24-30 were not taken over: ", "the file that the repair wrote"}, true},
		"both": {func(k *pb.LedgerRepaired) { k.Lost, k.Dropped = lost[:1], lost[1:] }, verify.CannotTell,
			[]string{"lost 22; carried none; dropped 24-30",
				"sequences 22 could not be read, and 24-30 were not taken over: "}, true},
	} {
		r := repairedBy(t, c.change)
		text := r.Text("b")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: want %q in\n%s", name, want, text)
			}
		}
		if r.Verdict != c.verdict || strings.Contains(text, "untold    the repair at sequence 21") != c.untold {
			t.Errorf("%s: %s\n%s", name, r.Verdict, text)
		}
	}
	out, err := json.Marshal(repairedBy(t, func(k *pb.LedgerRepaired) { k.Lost = lost }))
	if err != nil || !strings.Contains(string(out), `"lost":"22, 24-30","carried":"none","dropped":"none"`) {
		t.Error(err, string(out))
	}
}

// TestARepairNamesTheRootOfWhatItFound, and not that of another tree.
func TestARepairNamesTheRootOfWhatItFound(t *testing.T) {
	r := repairedBy(t, func(k *pb.LedgerRepaired) { k.Root = make([]byte, ledger.LeafSize) })
	if len(r.Findings) != 1 || r.Findings[0].Clause != "I1.repair" || r.Findings[0].Sequence != 21 ||
		!strings.Contains(r.Findings[0].Problem, "root 0000") {
		t.Fatalf("%s %s", r.Verdict, told(r))
	}
	if text := r.Text("b"); !strings.Contains(text, "I1.repair: A repair says") {
		t.Fatal(text)
	}
}
