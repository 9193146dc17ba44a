package rows

import (
	"cmp"
	"encoding/binary"
	"strings"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Action names an action by its number in its plan.
type Action struct {
	Plan string
	N    uint32
}

// Name names an action by its id in its plan.
type Name struct{ Plan, Action string }

// Attempt names an attempt of the undo of an action.
type Attempt struct {
	Action
	Attempt uint32
}

// Paged names a page about an action; N is 0 for one about the plan. The kind is part of
// it, so that a quarantine and a warning of one action do not take each other's place.
type Paged struct {
	Action
	Kind string
}

// Waiting is an action that waits for someone's word since an instant (unix ns).
type Waiting struct {
	Ns int64
	Action
}

// ParseWaiting reads a key of Reviews.
func ParseWaiting(key []byte) Waiting {
	return Waiting{int64(binary.BigEndian.Uint64(key[1:])), ParseAction(key[8:])}
}

// Place is where a record is in the ledger.
type Place struct {
	Sequence uint64
	Index    uint32
}

// At returns the place of an address.
func At(a *pb.Address) Place { return Place{a.GetSequence(), a.GetIndex()} }

// Compare orders places as the ledger does.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Sequence, q.Sequence), cmp.Compare(p.Index, q.Index))
}

// Bytes writes a place as keys have it.
func (p Place) Bytes() []byte { return p.append(make([]byte, 0, placeSize)) }

func (p Place) append(k []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(k, p.Sequence), p.Index)
}

// ParsePlace reads what Bytes has written.
func ParsePlace(b []byte) Place {
	return Place{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}
}

// placeSize is the length of a place in a key.
const placeSize = 12

// NamedPlace is a record about a plan, a fact or a capability.
type NamedPlace struct {
	Name string
	At   Place
}

// Numbered is a fact and a number that it is ordered by.
type Numbered struct {
	N    uint64
	Name string
}

// Occurrence is an assertion of a fact at an instant of logical time (ns).
type Occurrence struct {
	Key string
	Ns  int64
	At  Place
}

// Known is an id of a record of a writer.
type Known struct {
	Writer string // its class, and its name
	ID     [16]byte
}

// Watch is a watcher of a fact.
type Watch struct{ Key, Watcher string }

// Member is a lease that a node has the answer of.
type Member struct {
	Node  []byte
	Lease Lease
}

// Lease names a lease: of a plan (N is 0) or of its action N.
type Lease struct {
	Plan string
	N    uint32
	Name string
}

// Append appends the name of the lease to a key.
func (l Lease) Append(k []byte) []byte {
	k = append(k, l.Plan...)
	k = append(k, 0)
	k = binary.BigEndian.AppendUint32(k, l.N)
	return append(k, l.Name...)
}

// ID is the name of the lease as a text, which is not for people.
func (l Lease) ID() string { return string(l.Append(make([]byte, 0, keySize))) }

// Compare orders leases as their keys are.
func (l Lease) Compare(o Lease) int {
	return cmp.Or(strings.Compare(l.Plan, o.Plan), cmp.Compare(l.N, o.N),
		strings.Compare(l.Name, o.Name))
}

// ParseLease reads what Append has written.
func ParseLease(b []byte) Lease {
	for i, c := range b {
		if c == 0 {
			return Lease{string(b[:i]), binary.BigEndian.Uint32(b[i+1:]), string(b[i+5:])}
		}
	}
	panic("rows: a lease reference without its plan")
}

// Instant is an entry of Due: what waits for an instant (unix ns). Node is set for
// DueNode, Lease for the others; that of DueRetry, DueWindow and DueAsk has no name.
type Instant struct {
	Ns    int64
	Kind  byte
	Lease Lease
	Node  []byte
}

// ParseInstant reads a key of Due.
func ParseInstant(key []byte) Instant {
	at := Instant{Ns: int64(binary.BigEndian.Uint64(key[1:])), Kind: key[9]}
	if at.Kind == DueNode {
		at.Node = key[10:]
	} else {
		at.Lease = ParseLease(key[10:])
	}
	return at
}

// DueFrom is the first key of Due at or after an instant (unix ns).
func DueFrom(ns uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9), Due.prefix), ns)
}

// Listed is the entry of a plan in a list: by a dimension and its value, the plan that
// was opened last first.
type Listed struct {
	Dimension byte
	Value     string
	Opened    Place
	Plan      string
}

// prefixOrders is the prefix of Orders, whose layout needs it.
const prefixOrders = 'P'

// listedMax bounds the bytes of a value in a key; longer labels are cut.
const listedMax = 256

// ListedPlace is the length of what tells the plans of one list apart, before their ids.
const ListedPlace = placeSize

// ListPrefix is what the keys of one list begin with.
func ListPrefix(dimension byte, value string) []byte {
	return list(make([]byte, 0, keySize), dimension, value)
}

// ParseAction reads plan and number back from a key that ends with them.
func ParseAction(key []byte) Action {
	end := len(key) - 5
	return Action{string(key[1:end]), binary.BigEndian.Uint32(key[end+1:])}
}

// Within is what the keys of one plan or capability begin with, of a table whose keys
// begin with a token.
func (x *Index[K]) Within(token string) []byte {
	return append(named(make([]byte, 0, keySize), x.prefix, token), 0)
}

// WithinAction is what the keys of one action begin with.
func (x *Index[K]) WithinAction(plan string, n uint32) []byte {
	return ofAction(make([]byte, 0, keySize), x.prefix, Action{plan, n})
}

// WithinSized is what the keys of one fact or capability begin with, of a table whose
// keys begin with a length.
func (x *Index[K]) WithinSized(name string) []byte {
	return sized(make([]byte, 0, keySize), x.prefix, name)
}

// After is the first key after all keys that start with prefix.
func After(prefix []byte) []byte {
	k := append([]byte(nil), prefix...)
	for i := len(k) - 1; i >= 0; i-- {
		if k[i] != 0xff {
			k[i]++
			return k[:i+1]
		}
	}
	return []byte{0xff, 0xff}
}

// The layouts of keys: each appends a key to k.

func only(k []byte, prefix byte, _ struct{}) []byte { return append(k, prefix) }

func named(k []byte, prefix byte, name string) []byte { return append(append(k, prefix), name...) }

func ofAction(k []byte, prefix byte, a Action) []byte {
	return binary.BigEndian.AppendUint32(append(append(append(k, prefix), a.Plan...), 0), a.N)
}

func ofWaiting(k []byte, prefix byte, w Waiting) []byte {
	k = binary.BigEndian.AppendUint64(append(k, prefix), uint64(w.Ns))
	return binary.BigEndian.AppendUint32(append(append(k, w.Plan...), 0), w.N)
}

func ofName(k []byte, prefix byte, n Name) []byte {
	return append(append(append(append(k, prefix), n.Plan...), 0), n.Action...)
}

func ofAttempt(k []byte, prefix byte, a Attempt) []byte {
	return binary.BigEndian.AppendUint32(ofAction(k, prefix, a.Action), a.Attempt)
}

func ofPage(k []byte, prefix byte, p Paged) []byte {
	return append(ofAction(k, prefix, p.Action), p.Kind...)
}

func ofKnown(k []byte, prefix byte, id Known) []byte {
	return append(sized(k, prefix, id.Writer), id.ID[:]...)
}

func ofPlace(k []byte, prefix byte, p Place) []byte { return p.append(append(k, prefix)) }

func ofNamedPlace(k []byte, prefix byte, p NamedPlace) []byte {
	return p.At.append(append(named(k, prefix, p.Name), 0))
}

func sized(k []byte, prefix byte, name string) []byte {
	k = binary.BigEndian.AppendUint16(append(k, prefix), uint16(len(name)))
	return append(k, name...)
}

func ofSizedPlace(k []byte, prefix byte, p NamedPlace) []byte {
	return p.At.append(sized(k, prefix, p.Name))
}

func ofEviction(k []byte, prefix byte, p Place) []byte { return p.append(sized(k, prefix, "")) }

func ofOccurred(k []byte, prefix byte, o Occurrence) []byte {
	return o.At.append(binary.BigEndian.AppendUint64(sized(k, prefix, o.Key), uint64(o.Ns)))
}

func ofNumbered(k []byte, prefix byte, n Numbered) []byte {
	return append(binary.BigEndian.AppendUint64(append(k, prefix), n.N), n.Name...)
}

func ofLarge(k []byte, prefix byte, n Numbered) []byte {
	return ofNumbered(k, prefix, Numbered{^n.N, n.Name})
}

func ofWatch(k []byte, prefix byte, w Watch) []byte {
	return append(sized(k, prefix, w.Key), w.Watcher...)
}

func ofNode(k []byte, prefix byte, node []byte) []byte { return append(append(k, prefix), node...) }

func ofMember(k []byte, prefix byte, m Member) []byte {
	return m.Lease.Append(append(append(k, prefix), m.Node...))
}

func ofLease(k []byte, prefix byte, l Lease) []byte { return l.Append(append(k, prefix)) }

func ofFaultyNode(k []byte, prefix byte, node []byte) []byte {
	return append(append(k, prefix, 0), node...)
}

func ofInstant(k []byte, prefix byte, at Instant) []byte {
	k = append(binary.BigEndian.AppendUint64(append(k, prefix), uint64(at.Ns)), at.Kind)
	if at.Kind == DueNode {
		return append(k, at.Node...)
	}
	return at.Lease.Append(k)
}

func ofListed(k []byte, _ byte, l Listed) []byte {
	k = binary.BigEndian.AppendUint64(list(k, l.Dimension, l.Value), ^l.Opened.Sequence)
	return append(binary.BigEndian.AppendUint32(k, ^l.Opened.Index), l.Plan...)
}

func list(k []byte, dimension byte, value string) []byte {
	value = strings.ReplaceAll(value[:min(len(value), listedMax)], "\x00", " ")
	return append(append(append(k, prefixOrders, dimension), value...), 0)
}
