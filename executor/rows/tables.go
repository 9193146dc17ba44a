package rows

import (
	"bytes"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// The tables of a tenant. Numbers in keys are big endian, so that keys sort as numbers
// do. Plans and actions are tokens (no byte below '-'), so that a zero byte ends them;
// what may hold any byte comes after its length, or last. ^ marks a number that is
// stored complemented, so that the largest comes first.
var (
	Head     = table[struct{}, rowspb.Meta]('m', "", only)
	Plans    = table[string, rowspb.PlanRow]('p', "plan", named)
	Statics  = table[Action, rowspb.ActionStatic]('s', "plan 00 n", ofAction)
	Actions  = table[Action, rowspb.ActionRow]('a', "plan 00 n", ofAction)
	Numbers  = index('i', "plan 00 action", "n of the action", ofName)
	Payloads = table[Action, pb.Payload]('b', "plan 00 n", ofAction)
	Orders   = index(prefixOrders, "dimension value 00 ^sequence ^index plan", "", ofListed)

	// What is out, and what is to be done.
	Commands = table[Action, rowspb.CommandRow]('c', "plan 00 n", ofAction)
	Flights  = index('x', "plan 00 n", "", ofAction)
	Attempts = table[Attempt, rowspb.AttemptRow]('u', "plan 00 n attempt", ofAttempt)
	Undone   = index('U', "length capability sequence index",
		"the key of the attempt, without its prefix", ofSizedPlace)
	Todo     = index('t', "kind ...", "", named)
	Endings  = index('W', "ns plan", "", ofNumbered)
	Due      = index('d', "ns kind ...", "", ofInstant)
	Owners   = index('q', "plan", "", named)
	Pages    = table[Paged, rowspb.PageRow]('g', "plan 00 n kind", ofPage)
	Erasures = index('Z', "plan", "", named)
	Reviews  = index('V', "ns plan 00 n", "", ofWaiting) // that wait for a verdict, the oldest first

	// What was refused, fired, published and signed.
	Refused   = table[Place, rowspb.RefusedRow]('r', "sequence index", ofPlace)
	Refusals  = index('R', "plan 00 sequence index", "", ofNamedPlace)
	Firings   = table[Place, rowspb.Firing]('z', "sequence index", ofPlace)
	Contracts = table[NamedPlace, rowspb.ContractRow]('C',
		"capability 00 sequence index", ofNamedPlace)
	Repairs     = table[Place, rowspb.RepairRow]('L', "sequence index", ofPlace)
	Checkpoints = table[struct{}, rowspb.CheckpointRow]('T', "", only)
	CurrentKey  = table[struct{}, rowspb.KeyRow]('K', "", only)
	Rotations   = table[Place, rowspb.KeyRow]('K', "sequence index", ofPlace)
	IDs         = table[Known, rowspb.IdRow]('I', "length writer id", ofKnown)
	IDWindows   = table[string, rowspb.IdWindow]('J', "class of the writer, and its name", named)
	Rates       = table[string, rowspb.RateRow]('v', "class of the writer, and its name", named)

	// Working memory.
	Facts     = table[string, rowspb.FactRow]('f', "key", named)
	Names     = index('F', "key", "", named) // of the facts that there are now
	Residents = index('e', "ns key", "", ofNumbered)
	Large     = index('E', "^size key", "", ofLarge)
	Occurred  = index('o', "length key ns sequence index", "", ofOccurred)
	Chronicle = index('O', "length key sequence index", "kind of the record", ofSizedPlace)
	Evictions = evictions{index('O', "0000 sequence index", "key of the fact", ofEviction)}

	// Leases.
	Watchers = index('w', "key", "the watchers of a fact, or how many they are", named)
	Lengths  = index('H', "", "how many prefixes of each length are watched", only)
	Watches  = index('k', "length key watcher", "", ofWatch)
	Nodes    = table[[]byte, rowspb.NodeRow]('n', "node", ofNode)
	Members  = index('h', "node plan 00 n lease", "", ofMember)
	Faulty   = index('y', "plan 00 n lease", "", ofLease)
	// FaultyNodes come before the leases in error: no plan has an empty name.
	FaultyNodes = index('y', "00 node", "", ofFaultyNode)
)

// Kinds of the entries of Due.
const (
	DueLease  = 'l' // the wake instant of a lease
	DueRetry  = 'r' // the next call about an action
	DueWindow = 'w' // the warning before an undo window closes
	DueNode   = 'n' // the wake instant of a node
	DueAsk    = 'a' // the question about a doubt of an open plan
)

// Dimensions of Orders: what plans are listed by.
const (
	ListAll        = 'a'
	ListState      = 's' // its phase as a digit
	ListAgent      = 'g'
	ListCapability = 'c'
	ListLabel      = 'l' // the label, or key=value of one of the labels
)

// evictions shares its first byte with Chronicle, whose keys have the length of a fact's key
// next. No fact has an empty key, so that the length 0 marks an eviction.
type evictions struct{ Index[Place] }

// Prefix is what all keys of the table begin with, and none of Chronicle.
func (x *evictions) Prefix() []byte { return x.WithinSized("") }

// DropOldest deletes the first row of the table, if it has any.
func (x *evictions) DropOldest(tx *Tx) {
	prefix := x.Prefix()
	var oldest []byte
	for k := range tx.Scan(prefix, After(prefix)) {
		oldest = bytes.Clone(k) // valid in the scan only
		break
	}
	if oldest != nil {
		tx.Delete(oldest)
	}
}
