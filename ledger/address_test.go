package ledger_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

var update = flag.Bool("update", false, "rewrite testdata; the diff is read in review")

// naiveLeaf is the leaf as the comment on ledger.Leaf describes it, written again.
func naiveLeaf(tenant string, m ledger.Message, index, count, minReader uint32, body []byte) []byte {
	h := sha256.New()
	put := func(v any) {
		if err := binary.Write(h, binary.BigEndian, v); err != nil {
			panic(err)
		}
	}
	h.Write([]byte{0})
	h.Write([]byte("sagenbaum/leaf/v1\n"))
	put(m.Sequence)
	put(index)
	put(count)
	put(m.StampNs)
	put(minReader)
	for _, s := range [][]byte{[]byte(tenant), []byte(m.Subject), []byte(m.ContentType), body} {
		put(uint32(len(s)))
		h.Write(s)
	}
	return h.Sum(nil)
}

func TestLeavesAreWhatTheirDescriptionSaysAndNeverChange(t *testing.T) {
	pair := []*pb.Record{forward("x1"), registration("x1")}
	fact := &pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: "k"}}}
	text := []byte(`{"records":[{"factRetracted":{"key":"k"}},{"factRetracted":{"key":"l"}}]}`)
	var lines strings.Builder
	for _, c := range []struct {
		name      string
		message   ledger.Message
		minReader uint32
	}{
		{"pair", message(agentSource, "", encode(t, pair...)), 1},
		{"fact", message(factSource, "", encode(t, fact)), 1},
		{"json", message(factSource, ledger.ContentTypeJSON, text), 1},
		{"noise", message(factSource, "", []byte("noise")), 0},
		{"empty", message(factSource, "text/plain", nil), 0},
	} {
		for _, e := range decode(t, c.message) {
			want := naiveLeaf("t", c.message, e.Address.Index, e.Count, c.minReader, e.Body)
			if !bytes.Equal(e.Address.Leaf, want) {
				t.Errorf("%s %d: leaf %x, as described %x", c.name, e.Address.Index, e.Address.Leaf, want)
			}
			fmt.Fprintf(&lines, "%s %d %s\n", c.name, e.Address.Index, hex.EncodeToString(e.Address.Leaf))
		}
	}
	fmt.Fprintf(&lines, "key undo %s\nkey probe %s\n", ledger.Key("t", "p1", "x1", "undo"),
		ledger.Key("t", "p1", "x1", "probe"))
	const golden = "testdata/leaves.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if lines.String() != string(want) {
		t.Errorf("got\n%swant\n%s", lines.String(), want)
	}
}

func TestALeafCoversEverythingThatCanBeRead(t *testing.T) {
	m := message(factSource, "", []byte("body"))
	base := ledger.Leaf("t", m, 1, 2, 1, m.Data)
	for what, leaf := range map[string][ledger.LeafSize]byte{
		"tenant":     ledger.Leaf("u", m, 1, 2, 1, m.Data),
		"index":      ledger.Leaf("t", m, 0, 2, 1, m.Data),
		"count":      ledger.Leaf("t", m, 1, 3, 1, m.Data),
		"min_reader": ledger.Leaf("t", m, 1, 2, 2, m.Data),
		"body":       ledger.Leaf("t", m, 1, 2, 1, []byte("bodz")),
		"sequence":   ledger.Leaf("t", with(m, func(m *ledger.Message) { m.Sequence++ }), 1, 2, 1, m.Data),
		"stamp":      ledger.Leaf("t", with(m, func(m *ledger.Message) { m.StampNs++ }), 1, 2, 1, m.Data),
		"subject":    ledger.Leaf("t", with(m, func(m *ledger.Message) { m.Subject += "x" }), 1, 2, 1, m.Data),
		"type":       ledger.Leaf("t", with(m, func(m *ledger.Message) { m.ContentType = "x" }), 1, 2, 1, m.Data),
		"boundaries": ledger.Leaf("t", with(m, func(m *ledger.Message) {
			m.Subject, m.ContentType = "saga.t.fact.senso",
				"r"
		}), 1, 2, 1, m.Data),
	} {
		if leaf == base {
			t.Errorf("the leaf does not cover the %s", what)
		}
	}
}

func with(m ledger.Message, change func(*ledger.Message)) ledger.Message {
	change(&m)
	return m
}

func TestAddressesReadBack(t *testing.T) {
	leaf := bytes.Repeat([]byte{0xab, 0x01}, 16)
	for text, address := range map[string]*pb.Address{
		"17.0-ab01ab01": {Sequence: 17, Leaf: leaf},
		"18446744073709551615.4294967295-ab01ab01": {Sequence: 1<<64 - 1, Index: 1<<32 - 1, Leaf: leaf},
	} {
		if got := ledger.FormatAddress(address); got != text {
			t.Errorf("%q, want %q", got, text)
		}
		short := proto.Clone(address).(*pb.Address)
		short.Leaf = leaf[:4]
		if got, err := ledger.ParseAddress(text); err != nil || !proto.Equal(got, short) {
			t.Errorf("%q reads as %v, %v", text, got, err)
		}
	}
	if got, err := ledger.ParseAddress("1.2-" + hex.EncodeToString(leaf)); err != nil || !bytes.Equal(got.Leaf, leaf) {
		t.Errorf("%v, %v", got, err)
	}
	if got := ledger.FormatAddress(nil); got != "-" {
		t.Errorf("nil is %q", got)
	}
	for _, text := range []string{"", "-", "17", "17.0", "17-ab01ab01", "17.0-ab01", "17.0-ab01ab0", "17.0-xxxxxxxx",
		"-1.0-ab01ab01", "1.4294967296-ab01ab01", "1.0-" + hex.EncodeToString(leaf) + "00"} {
		if a, err := ledger.ParseAddress(text); refusedField(err) != "address" {
			t.Errorf("%q reads as %v, %v", text, a, err)
		}
	}
}

func TestKeysDifferWithEveryPartAndDoNotRunTogether(t *testing.T) {
	seen := map[string]string{}
	for _, parts := range [][4]string{
		{"t", "p", "a", "undo"}, {"u", "p", "a", "undo"}, {"t", "q", "a", "undo"}, {"t", "p", "b", "undo"}, {"t", "p", "a",
			"probe"}, {"t", "pa", "", "undo"}, {"tp", "", "a", "undo"},
	} {
		key := ledger.Key(parts[0], parts[1], parts[2], parts[3])
		if other, double := seen[key]; double || len(key) != 32 {
			t.Errorf("%v has the key of %s: %s", parts, other, key)
		}
		seen[key] = fmt.Sprint(parts)
	}
}

// TestANewKeyIsOfItsRequest: by the first key and the place of the request, and never another's.
func TestANewKeyIsOfItsRequest(t *testing.T) {
	first := ledger.Key("t", "p", "a", ledger.PurposeUndo)
	seen := map[string]string{first: "the first key"}
	for what, key := range map[string]string{
		"a request":            ledger.RetryKey(first, &pb.Address{Sequence: 7}),
		"another one":          ledger.RetryKey(first, &pb.Address{Sequence: 8}),
		"another of a commit":  ledger.RetryKey(first, &pb.Address{Sequence: 7, Index: 1}),
		"one for another undo": ledger.RetryKey(ledger.Key("t", "p", "b", ledger.PurposeUndo), &pb.Address{Sequence: 7}),
	} {
		if seen[key] != "" || len(key) != len(first) {
			t.Errorf("%s has key %q, which is that of %q", what, key, seen[key])
		}
		seen[key] = what
	}
	if got := ledger.RetryKey(first, &pb.Address{Sequence: 7, Leaf: []byte{1}}); seen[got] != "a request" {
		t.Errorf("the same request has key %s", got)
	}
}
