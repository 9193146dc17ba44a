package verify_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// since is a bundle of the ledger from sequence 1 on.
func since(t testing.TB, leaves [][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := bundle.NewWriter(&out, bundle.Header{Tenant: "t", Holds: bundle.Since, Since: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leaves {
		if err := w.Record(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(rootOf(leaves)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestAReportNamesSoManyRepairs, and says how many more there are: whoever makes a bundle does not
// choose how much memory its report takes.
func TestAReportNamesSoManyRepairs(t *testing.T) {
	var log []ledger.Message
	for i := range uint64(verify.FindingsMax + 7) {
		log = append(log, ledger.Message{Sequence: i + 1, Subject: "saga.t.executor",
			Data: commitOf(t, &pb.Record{Term: 1, Kind: &pb.Record_LedgerRepaired{LedgerRepaired: &pb.LedgerRepaired{
				Through: 1, Size: 1, Root: make([]byte, 32), Reason: strings.Repeat("r", 5*ledger.TextMax),
				Actor: "ops"}}})})
	}
	r := checked(t, since(t, leavesOf(t, log)), verify.Options{})
	if len(r.Repairs) != verify.FindingsMax || r.MoreRepair != 7 || r.Repairs[0].Sequence != 1 {
		t.Fatalf("%d repairs, and %d more", len(r.Repairs), r.MoreRepair)
	}
	for _, p := range r.Repairs {
		if len(p.Reason) > ledger.TextMax || !strings.Contains(p.Reason, "cut") {
			t.Fatalf("a reason of %d bytes", len(p.Reason))
		}
	}
	if text := r.Text("b"); !strings.Contains(text, "and 7 more") {
		t.Fatal(text[:200])
	}
}

// TestAReportSaysUpToWhen: a bundle that ends at an earlier checkpoint is proven as any other, and
// its reader sees when that was.
func TestAReportSaysUpToWhen(t *testing.T) {
	log := readGolden(t, "cancelled")
	for i := range log {
		log[i].StampNs = time.Date(2026, 3, 4, 5, 0, i, 0, time.UTC).UnixNano()
	}
	key := newSigner(t, "t", 1)
	leaves := leavesOf(t, log)
	r := checked(t, packed(t, leaves, key.sign(t, head(leaves[:20]))), verify.Options{Keys: []string{key.key}})
	text := r.Text("b")
	for _, want := range []string{
		"the ledger of tenant t up to record 36 of 2026-03-04T05:00:19Z",
		"20 of 36 records, to sequence 12 of 2026-03-04T05:00:11Z: 1 checkpoint",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	if r.LastTime != "2026-03-04T05:00:19Z" || r.Signed.Time != "2026-03-04T05:00:11Z" {
		t.Errorf("last record of %q, last signed of %q", r.LastTime, r.Signed.Time)
	}
}

// TestACheckpointSaysWhereItEnds, of any size.
func TestACheckpointSaysWhereItEnds(t *testing.T) {
	var log []ledger.Message
	for i := range uint64(1200) {
		log = append(log, ledger.Message{Sequence: 2*i + 1, Subject: "saga.t.fact.s", StampNs: int64(i+1) * 1e9,
			Data: commitOf(t, &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "k"}}})})
	}
	key := newSigner(t, "t", 1)
	leaves := leavesOf(t, log)
	for _, size := range []int{511, 512, 513, 1024, 1199} {
		r := checked(t, packed(t, leaves, key.sign(t, head(leaves[:size]))), verify.Options{Keys: []string{key.key}})
		last := log[size-1]
		if at := time.Unix(0, last.StampNs).UTC().Format(time.RFC3339); r.Signed.Size != uint64(size) ||
			r.Signed.Through != last.Sequence || r.Signed.Time != at {
			t.Errorf("%d records end at %d of %s, want %d of %s", size, r.Signed.Through, r.Signed.Time, last.Sequence, at)
		}
	}
}

func commitOf(t testing.TB, r *pb.Record) []byte {
	t.Helper()
	data, err := proto.Marshal(&pb.Commit{MinReader: 1, Records: []*pb.Record{r}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}
