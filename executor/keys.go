package executor

import "encoding/binary"

// Key layout of a tenant's state. Numbers are big endian, so that keys sort as
// numbers do; names are tokens (no byte below '-'), so that a zero byte ends them.
//
//	m                               Meta
//	p <plan>                        PlanRow
//	s <plan> 00 <n>                 ActionStatic of action n
//	a <plan> 00 <n>                 ActionRow
//	b <plan> 00 <n>                 Payload: input and output, read at dispatch only
//	c <plan> 00 <n>                 Payload: arguments of the command in flight
//	i <plan> 00 <action>            n
//	t <p|r|e|m> ...                 to do: a plan, a refusal or a fact that needs a decision
//	d <ns> <l|r|w> <plan> 00 <n> <lease>  due: a lease's wake instant, a next call, a window's warning
//	d <ns> n <node>                 due: the wake instant of a node
//	f <key>                         FactRow
//	e <ns> <key>                    (empty) facts in memory, by their last assertion or return to it
//	E <^size> <key>                 (empty) large ones of them, the largest first
//	w <key>                         who reads a fact: a few of them, or how many
//	k <len> <key> <watcher>         who reads a fact, where they are many
//	n <node>                        NodeRow
//	h <node> <plan> 00 <n> <lease>  (empty) leases of a node
//	y <plan> 00 <n> <lease>         (empty) leases in error
//	y 00 <node>                     (empty) nodes in error
//	o <len> <key> <ns> <seq> <index>    occurrences: assertions of a fact
//	O <len> <key> <seq> <index>     kind of a retraction, eviction or re-ingestion of a fact
//	O <0> <seq> <index>             key of a fact that was evicted there: the latest evictions
//	r <seq> <index>                 RefusedRow
//	R <plan> 00 <seq> <index>       (empty) refusals of a plan
//	q <plan>                        (empty) plans with something for their owner
//	x <plan> 00 <n>                 (empty) commands in flight
//	u <plan> 00 <n> <attempt>       AttemptRow
//	U <len> <capability> <seq> <index>  the key of the attempt that was dispatched there, without its first byte
//	g <plan> 00 <n> <kind>          PageRow: a page that no hook has taken yet
//	z <seq> <index>                 Firing: a lease that fired, where something came of it
//	K <plan>                        (empty) plans whose key is to be destroyed
//	C <capability> 00 <seq> <index> ContractRow
//	L <seq> <index>                 RepairRow
//	T                               CheckpointRow
//	K                               KeyRow in force
//	K <seq> <index>                 KeyRow: all rotations
//	P <dim> <value> 00 <^seq> <^index> <plan>  (empty) plans by what a list asks for, the latest opened first
const (
	keyMeta     = "m"
	keyRepair   = 'L'
	keySigned   = 'T'
	keyKey      = 'K'
	keyPlan     = 'p'
	keyStatic   = 's'
	keyAction   = 'a'
	keyPayload  = 'b'
	keyCommand  = 'c'
	keyNumber   = 'i'
	keyTodo     = 't'
	keyDue      = 'd'
	keyFact     = 'f'
	keyWatchers = 'w'
	keyWatch    = 'k'
	keyNode     = 'n'
	keyMember   = 'h'
	keyFaulty   = 'y'
	keyOccurred = 'o'
	keyRefused  = 'r'
	keyRefusal  = 'R'
	keyOwner    = 'q'
	keyFlight   = 'x'
	keyAttempt  = 'u'
	keyUndone   = 'U'
	keyPage     = 'g'
	keyFiring   = 'z'
	keyContract = 'C'
	keyListed   = 'P'
	keyErase    = 'Z'

	keyResident  = 'e'
	keyLarge     = 'E'
	keyChronicle = 'O'
)

func planKey(kind byte, plan string) []byte {
	k := make([]byte, 0, 14+len(plan)) // 14: of a refusalKey
	k = append(k, kind)
	return append(k, plan...)
}

func actionKey(kind byte, plan string, n uint32) []byte {
	k := make([]byte, 0, 6+len(plan))
	k = append(k, kind)
	k = append(k, plan...)
	k = append(k, 0)
	return binary.BigEndian.AppendUint32(k, n)
}

func numberKey(plan, action string) []byte {
	k := make([]byte, 0, 2+len(plan)+len(action))
	k = append(k, keyNumber)
	k = append(k, plan...)
	k = append(k, 0)
	return append(k, action...)
}

// splitActionKey reads plan and n back from an actionKey.
func splitActionKey(key []byte) (plan string, n uint32) {
	end := len(key) - 5
	return string(key[1:end]), binary.BigEndian.Uint32(key[end+1:])
}

func sized(kind byte, name string, extra int) []byte {
	k := make([]byte, 0, 3+len(name)+extra)
	k = append(k, kind)
	k = binary.BigEndian.AppendUint16(k, uint16(len(name)))
	return append(k, name...)
}

func recordKey(kind byte, sequence uint64, index uint32) []byte {
	k := make([]byte, 0, 13)
	k = append(k, kind)
	k = binary.BigEndian.AppendUint64(k, sequence)
	return binary.BigEndian.AppendUint32(k, index)
}

// leaseRef names a lease: of a plan (n = 0) or of its action n.
type leaseRef struct {
	plan  string
	n     uint32
	lease string
}

func (r leaseRef) append(k []byte) []byte {
	k = append(k, r.plan...)
	k = append(k, 0)
	k = binary.BigEndian.AppendUint32(k, r.n)
	return append(k, r.lease...)
}

func parseLeaseRef(b []byte) leaseRef {
	for i, c := range b {
		if c == 0 {
			return leaseRef{string(b[:i]), binary.BigEndian.Uint32(b[i+1:]), string(b[i+5:])}
		}
	}
	panic("executor: a lease reference without its plan")
}

// Kinds of due entries.
const (
	dueLease  = 'l'
	dueRetry  = 'r'
	dueWindow = 'w'
	dueNode   = 'n'
)

func dueKey(ns int64, kind byte, ref leaseRef) []byte {
	k := make([]byte, 0, 15+len(ref.plan)+len(ref.lease))
	k = append(k, keyDue)
	k = binary.BigEndian.AppendUint64(k, uint64(ns))
	return ref.append(append(k, kind))
}

func dueNodeKey(ns int64, node []byte) []byte {
	k := make([]byte, 0, 10+len(node))
	k = append(k, keyDue)
	k = binary.BigEndian.AppendUint64(k, uint64(ns))
	return append(append(k, dueNode), node...)
}

// parseDueKey reads the key of an entry that is no node's.
func parseDueKey(key []byte) (ns int64, kind byte, ref leaseRef) {
	return int64(binary.BigEndian.Uint64(key[1:])), key[9], parseLeaseRef(key[10:])
}

// after is the first key behind all keys that start with prefix.
func after(prefix []byte) []byte {
	k := append([]byte(nil), prefix...)
	for i := len(k) - 1; i >= 0; i-- {
		if k[i] != 0xff {
			k[i]++
			return k[:i+1]
		}
	}
	return []byte{0xff, 0xff}
}

func nodeKey(node []byte) []byte { return append([]byte{keyNode}, node...) }

func faultyKey(ref leaseRef) []byte {
	return ref.append(append(make([]byte, 0, 6+len(ref.plan)+len(ref.lease)), keyFaulty))
}

// faultyNodeKey comes before those of leases: no plan has an empty id.
func faultyNodeKey(node []byte) []byte { return append([]byte{keyFaulty, 0}, node...) }

func memberKey(node []byte, ref leaseRef) []byte {
	k := make([]byte, 0, 6+len(node)+len(ref.plan)+len(ref.lease))
	return ref.append(append(append(k, keyMember), node...))
}
