package rows

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Example lists the tables: the prefix of their keys, what follows it, and the values.
func Example() {
	for _, d := range Declared() {
		line := fmt.Sprintf("%c  %-40s  %s", d.Prefix, d.Keys, d.Value)
		fmt.Println(strings.TrimRight(line, " "))
	}
	// Output:
	// m                                            Meta
	// p  plan                                      PlanRow
	// s  plan 00 n                                 ActionStatic
	// a  plan 00 n                                 ActionRow
	// i  plan 00 action                            n of the action
	// b  plan 00 n                                 Payload
	// P  dimension value 00 ^sequence ^index plan
	// c  plan 00 n                                 CommandRow
	// x  plan 00 n
	// u  plan 00 n attempt                         AttemptRow
	// U  length capability sequence index          the key of the attempt, without its prefix
	// t  kind ...
	// W  ns plan
	// d  ns kind ...
	// q  plan
	// g  plan 00 n kind                            PageRow
	// Z  plan
	// V  ns plan 00 n
	// r  sequence index                            RefusedRow
	// R  plan 00 sequence index
	// z  sequence index                            Firing
	// C  capability 00 sequence index              ContractRow
	// L  sequence index                            RepairRow
	// T                                            CheckpointRow
	// K                                            KeyRow
	// K  sequence index                            KeyRow
	// I  length writer id                          IdRow
	// J  class of the writer, and its name         IdWindow
	// v  class of the writer, and its name         RateRow
	// f  key                                       FactRow
	// F  key
	// e  ns key
	// E  ^size key
	// o  length key ns sequence index
	// O  length key sequence index                 kind of the record
	// O  0000 sequence index                       key of the fact
	// w  key                                       the watchers of a fact, or how many they are
	// H                                            how many prefixes of each length are watched
	// k  length key watcher
	// n  node                                      NodeRow
	// h  node plan 00 n lease
	// y  plan 00 n lease
	// y  00 node
}

// TestTablesOfOnePrefixKeepTheirKeysApart: three pairs of tables share a prefix, and no
// key of one can be a key of the other.
func TestTablesOfOnePrefixKeepTheirKeysApart(t *testing.T) {
	shared := map[byte]int{}
	for _, d := range Declared() {
		shared[d.Prefix]++
	}
	for prefix, n := range shared {
		if twice := bytes.IndexByte([]byte("KOy"), prefix) >= 0; n > 2 || n == 2 && !twice {
			t.Errorf("%d tables have the prefix %c", n, prefix)
		}
	}
	at := Place{Sequence: 1, Index: 2}
	if current := CurrentKey.Key(struct{}{}); len(current) == len(Rotations.Key(at)) {
		t.Errorf("the key in force has the key of a rotation, %q", current)
	}
	if latest := Evictions.Key(at); latest[1] != 0 || latest[2] != 0 { // no fact has an empty key
		t.Errorf("an eviction has the key of a fact's record, %q", latest)
	}
	latest := Evictions.Prefix()
	if key := Evictions.Key(at); !bytes.HasPrefix(key, latest) {
		t.Errorf("the eviction %q is not in its list, %q", key, latest)
	}
	if key := Chronicle.Key(NamedPlace{Name: "k", At: at}); bytes.HasPrefix(key, latest) {
		t.Errorf("the record of a fact, %q, is among the evictions, %q", key, latest)
	}
	if node := FaultyNodes.Key([]byte("node")); node[1] != 0 { // no plan has an empty name
		t.Errorf("a node in error has the key of a lease, %q", node)
	}
}

// TestKeysAreReadBack: what a key was made of is what is read out of it.
func TestKeysAreReadBack(t *testing.T) {
	lease := Lease{Plan: "p-1", N: 7, Name: "plan.failed"}
	if got := ParseLease(lease.Append(nil)); got != lease {
		t.Errorf("%+v", got)
	}
	action := Action{Plan: "p-1", N: 1 << 31}
	if got := ParseAction(Flights.Key(action)); got != action {
		t.Errorf("%+v", got)
	}
	place := At(&pb.Address{Sequence: 1 << 40, Index: 3})
	if got := ParsePlace(place.Bytes()); got != place {
		t.Errorf("%+v", got)
	}
	for _, at := range []Instant{
		{Ns: 5, Kind: DueLease, Lease: lease},
		{Ns: 5, Kind: DueRetry, Lease: Lease{Plan: "p", N: 2}},
		{Ns: 5, Kind: DueNode, Node: []byte{0, 1, 0}},
	} {
		got := ParseInstant(Due.Key(at))
		if got.Ns != at.Ns || got.Kind != at.Kind || got.Lease != at.Lease || !bytes.Equal(got.Node, at.Node) {
			t.Errorf("%+v, want %+v", got, at)
		}
	}
}

// TestAForkIsAnOverlay: it reads through, and leaves what it was forked from as it is.
func TestAForkIsAnOverlay(t *testing.T) {
	kv := NewMemoryKV()
	tx := Over(kv)
	tx.Set([]byte("a"), []byte("1"))
	tx.Set([]byte("b"), []byte("1"))
	first := tx.Fork()
	first.Set([]byte("a"), []byte("2"))
	second := first.Fork()
	second.Delete([]byte("a"))
	second.Set([]byte("c"), nil)
	want := func(tx *Tx, key, want string, ok bool) {
		t.Helper()
		if v, had := tx.Get([]byte(key)); string(v) != want || had != ok {
			t.Errorf("%s is %q, %v; want %q, %v", key, v, had, want, ok)
		}
	}
	want(tx, "a", "1", true)
	want(first, "a", "2", true)
	want(first, "b", "1", true)
	want(second, "a", "", false)
	want(second, "c", "", true)
	want(tx, "c", "", false)
	for k := range second.Scan([]byte("c"), []byte("d")) {
		t.Errorf("%q is stored", k)
	}
}

// TestTheOldestEvictionIsDropped: the list loses its first row, and a fact's chronicle none.
func TestTheOldestEvictionIsDropped(t *testing.T) {
	tx := Over(NewMemoryKV())
	Evictions.DropOldest(tx) // of an empty list
	record := NamedPlace{Name: "k", At: Place{Sequence: 1}}
	Chronicle.Put(tx, record, []byte{'e'})
	for n := range uint64(3) {
		Evictions.Put(tx, Place{Sequence: 7 + n}, []byte("k"))
	}
	for left := uint64(3); left > 0; left-- {
		Evictions.DropOldest(tx)
		for n := range uint64(3) {
			if _, kept := Evictions.Get(tx, Place{Sequence: 7 + n}); kept != (n > 3-left) {
				t.Errorf("after %d drops eviction %d is listed: %t", 4-left, n, kept)
			}
		}
	}
	Evictions.DropOldest(tx)
	if _, kept := Chronicle.Get(tx, record); !kept {
		t.Error("the record of the fact was dropped")
	}
}
