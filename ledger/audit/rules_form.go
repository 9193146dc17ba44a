package audit

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit/ids"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// formClauses are asked of every record first.
var formClauses = []clause{
	{"I17.pair", "A forward and its compensation are registered by one commit, the forward first.",
		malformed("I17")},
	{"I19.declared", "A registration that declares a key declares that of its action.",
		malformed("I19")},
	{"I27.subject", "A subject is one of this tenant's.", malformed("I27")},
	{"I3.message", "A message is a commit that can be decoded as a whole.", malformed("I3")},
	{"I4.form", "A record has the fields of its kind, within their limits.", malformed("I4")},
	{"I4.writer", "A kind of record is written on a subject of the class that may write it.",
		func(c *claim) judgement {
			kind := ledger.KindOf(c.Record)
			return unless(c.mayWrite(kind), "%s is written on subjects of class %s", kind.Name,
				kind.Class)
		}},
}

// mayWrite reports whether a kind may be written on the record's subject.
func (c *claim) mayWrite(kind ledger.Kind) bool {
	return kind.Name != "" && kind.On(c.Source.Class).Class == c.Source.Class
}

// malformed breaks a rule where decoding found that its part of the form is wrong.
func malformed(rule string) func(c *claim) judgement {
	return func(c *claim) judgement {
		return unless(c.readable() || formRule(c.Err) != rule, "%v", c.Err)
	}
}

// readable reports whether a record says enough of what it is for: a worker's may lack what does
// not say what was done.
func (c *claim) readable() bool {
	return c.Err == nil || c.Partial && c.b.rules >= ledger.PartialSince
}

// formRule says which rule a malformed record breaks.
func formRule(err error) string {
	var r *ledger.Refused
	switch ok := asRefused(err, &r); {
	case !ok, r.Field == "commit", r.Field == "Content-Type", strings.HasPrefix(r.Field, "commit."):
		return "I3"
	case r.Field == "pair":
		return "I17"
	case r.Field == "compensation_registered.key":
		return "I19"
	case r.Field == "subject":
		return "I27"
	}
	return "I4"
}

// writerClauses are asked of the records of one class of writers, before their kind's.
var writerClauses = [...][]clause{
	ledger.ClassNone: {},
	ledger.ClassAgent: {
		{"I4.condition", "The conditions that a plan declares compile.", func(c *claim) judgement {
			why := c.wrong(declared("plan_opened", c.Record.GetPlanOpened().GetTriggers()))
			return unless(why == "", "%s", why)
		}},
		{"I4.range", "The deadline that a plan declares is an instant from 1970 to 2261.",
			func(c *claim) judgement {
				ns := c.Record.GetPlanOpened().GetDeadlineNs()
				return unless(c.b.rules < ledger.NumbersSince || reachable(ns),
					"plan_opened.deadline_ns: %d is out of range", ns)
			}},
		{"I17.range",
			"The durations of a registration are of a millisecond or more, and within their bounds.",
			func(c *claim) judgement {
				if c.b.rules < ledger.NumbersSince {
					return judgement{}
				}
				f, undo := c.pair()
				field := cmp.Or(outOfRange(f, undo), outOfRange(nil, f.GetDeliver()))
				return unless(field == "", "%s: out of range", field)
			}},
		{"I17.expressions",
			"The expressions of a registration compile, and give what they are used for.",
			func(c *claim) judgement {
				_, undo := c.pair()
				if undo == nil {
					return judgement{}
				}
				why := c.wrong(expressionsOf(undo))
				return unless(why == "", "%s", why)
			}},
		{"I17.delivery", "A staged act is delivered by expressions that compile, give what they are " +
			"used for, and read what is there before it.",
			func(c *claim) judgement {
				f, undo := c.pair()
				if undo == nil || f.GetDeliver() == nil {
					return judgement{}
				}
				why := c.wrongDelivery(f.Deliver)
				return unless(why == "", "forward_registered.deliver: %s", why)
			}},
		{"I17.effectless", "What has no effect registers no undo.", func(c *claim) judgement {
			f, undo := c.pair()
			return unless(undo.GetCapability() == "" || f.GetClass() != pb.Class_CLASS_EFFECTLESS,
				"compensation_registered.capability: none, for what has no effect")
		}},
		{"I17.late", "An undo whose provider refuses a late forward names that forward.",
			func(c *claim) judgement {
				f, undo := c.pair()
				names := undo == nil || undo.HandlerVersion != "" ||
					tellsForward(c.b.programs, undo)
				return unless(names || f.GetLate() != pb.Late_LATE_REFUSED,
					"forward_registered.late: an argument of the undo is meta.forward_key")
			}},
	},
	ledger.ClassFact: idClauses, ledger.ClassVerdict: idClauses, ledger.ClassOperator: idClauses,
	ledger.ClassWorker: {},
	ledger.ClassExecutor: {
		{"I26.begins", "A term has a larger number than all before it.", func(c *claim) judgement {
			return unless(c.Record.GetTermStarted() == nil || c.Record.Term > c.b.term,
				"term %d has begun, held by %s: the next one is larger", c.b.term, c.b.holder)
		}},
		{"I26.term", "A decision is one of the term that has begun last.",
			func(c *claim) judgement {
				free := c.Record.GetTermStarted() != nil ||
					c.Record.GetLedgerRepaired() != nil // it has no term
				return unless(free || c.Record.Term == c.b.term,
					"decided in term %d, and term %d has begun",
					c.Record.Term, c.b.term)
			}},
		{"I5.decided", "A decision has read all decisions before it.", func(c *claim) judgement {
			r := c.Record
			free := r.GetTermStarted() != nil || r.GetLedgerRepaired() != nil || r.Folded == 0
			return unless(free || c.Address.Sequence == c.b.decidedAt || r.Folded >= c.b.decidedAt,
				"decided on the records up to %d, and there are decisions at %d since", r.Folded,
				c.b.decidedAt)
		}},
	},
}

// idClauses are about the ids of records that nothing else tells from their copies.
var idClauses = []clause{
	{"I4.named", "A record has an id in a tenant that requires one.", func(c *claim) judgement {
		return allowed(ledger.NameRequired(c.b.tenant, c.b.may, c.Record, c.Source.Class))
	}},
	{"I5.id", "A record that has an id counts once, and no other record under it.",
		func(c *claim) judgement {
			id, ok := c.recordID()
			if !ok {
				return judgement{}
			}
			digest, known := c.ids().Find(id)
			if known && string(digest[:]) == string(c.BodyDigest()) {
				return judgement{is: copied}
			}
			return unless(!known, "an id of its own: another record counted under %s", c.Record.Id)
		}},
	{"I5.age", "An id is not older than those that are kept, and not from days to come.",
		func(c *claim) judgement {
			id, ok := c.recordID()
			if !ok {
				return judgement{}
			}
			ahead := id.Ms()-c.b.now/1e6 > ledger.IDAheadMax.Milliseconds()
			return unless(!c.ids().TooOld(id) && !ahead, "an id that was made when the record was")
		}},
}

// recordID is the id by which a record is told from its copies; ok is false where it has none.
// What a holder does not know of it does not find in a record (ledger.Under).
func (c *claim) recordID() (id ledger.RecordID, ok bool) {
	if c.Record.GetId() == "" || !ledger.TakesID(c.Source.Class) {
		return id, false
	}
	id, err := ledger.ParseRecordID(c.Record.Id)
	return id, err == nil
}

// ids are those of the writer of a record.
func (c *claim) ids() *ids.Set { return c.b.ids.Of(c.Source.Writer()) }

// pair is the forward and the compensation of the pair that a record is a half of.
func (c *claim) pair() (*pb.ForwardRegistered, *pb.CompensationRegistered) {
	f, undo := c.Record.GetForwardRegistered(), c.Record.GetCompensationRegistered()
	switch {
	case f != nil:
		undo = c.Pair.GetCompensationRegistered()
	case undo != nil:
		f = c.Pair.GetForwardRegistered()
	}
	return f, undo
}

// always are asked of every record, whether it counts or not.
var always = []clause{
	{"I6.about",
		"What a decision is about is an earlier record of this ledger, named by place and leaf.",
		func(c *claim) judgement { return c.refersTo("about", c.Record.GetAbout()) }},
	{"I6.cause",
		"The cause of a decision is an earlier record of this ledger, named by place and leaf.",
		func(c *claim) judgement { return c.refersTo("cause", c.Record.GetCause()) }},
	{"I6.behind",
		"What a dispatch goes behind is an earlier record of this ledger, named by place and leaf.",
		func(c *claim) judgement {
			return c.refersTo("behind", c.Record.GetCompensationDispatched().GetBehind())
		}},
	{"I27.tenant", "A ledger has messages of one tenant.", func(c *claim) judgement {
		own := c.Source.Class == ledger.ClassNone || c.Source.Tenant == c.of.tenant
		return unless(own, "a message of tenant %s in the ledger of tenant %s", c.Source.Tenant,
			c.of.tenant)
	}},
}

// refersTo judges a reference of a holder.
func (c *claim) refersTo(name string, ref *pb.Address) judgement {
	if ref == nil || c.Err != nil || c.Source.Class != ledger.ClassExecutor {
		return judgement{}
	}
	switch found, known := c.of.refers(ref, c); {
	case found:
		return judgement{}
	case !known && c.of.log.part:
		return judgement{is: untold}
	}
	return breaks("%s names %s, and %s", name, reference{ref}, c.of.found(ref))
}

// counted are asked of every record that counts.
var counted = []clause{
	{"I8.time", "Logical time is the latest of the stamps and epochs so far, and each message later.",
		func(c *claim) judgement {
			want := max(earliest(c.Entry, c.b.before, c.b.rules), c.StampNs, c.Record.EpochNs)
			return unless(c.b.now == want, "logical time %d, not %d", want, c.b.now)
		}},
	{"I26.order", "The terms of decisions never decrease.", func(c *claim) judgement {
		holder := c.Source.Class == ledger.ClassExecutor
		return unless(!holder || c.Record.Term >= c.of.log.terms,
			"a term of %d or more: a decision of that term came before this one of term %d",
			c.of.log.terms, c.Record.Term)
	}},
}

// recordChapters are those of kinds that are about no plan.
var recordChapters = map[string]*chapter{
	"term_started": {
		content: []clause{{"I26.rules",
			"A holder knows all rules that a holder before it has decided by: one that does not halts, " +
				"and begins no term.",
			func(c *claim) judgement {
				k := c.Record.GetTermStarted()
				return unless(ledger.ReaderOfTerm(k.FoldVersion) >= ledger.ReaderOfTerm(c.b.rules),
					"fold_version %d or one that reads all that it has decided, and not %d", c.b.rules,
					k.FoldVersion)
			}}},
		collect: func(b *book, c *claim) {
			k := c.Record.GetTermStarted()
			b.term, b.holder, b.rules = c.Record.Term, k.Holder, k.FoldVersion
			if k.Tenant != nil {
				b.may = k.Tenant
			}
		},
	},
	"ledger_repaired": {
		counts: []clause{{"I1.repair",
			"A repair says how many messages and records it found, and their root, and comes next.",
			func(c *claim) judgement {
				k := c.Record.GetLedgerRepaired()
				return unless(k.Through+1 == c.Address.Sequence && k.Size+1 == c.b.records,
					"it repairs up to sequence %d with %d records, and before it are %d with %d",
					k.Through, k.Size, c.Address.Sequence-1, c.b.records-1)
			}}},
	},
	"record_refused": {
		content: []clause{{"I6.refused",
			"An answer to a refused record names one that was refused.",
			func(c *claim) judgement {
				k := c.Record.GetRecordRefused()
				_, refused, known := c.of.log.leaves.Get(k.Sequence, k.Index)
				return unless(refused, "a refused record, and %d.%d %s", k.Sequence, k.Index,
					map[bool]string{true: "was not refused", false: "is none"}[known])
			}}},
	},
	"checkpoint_signed": {counts: checkpointClauses, collect: noteCheckpoint},
	"key_rotated":       {counts: rotationClauses, collect: noteRotation},
	"tenant_changed":    {counts: tenantClauses, collect: noteTenant},
	"clock_confirmed":   {},
	"contract_published": {
		counts: []clause{{"I5.contract", "A revision of a contract is published once.",
			func(c *claim) judgement {
				k := c.Record.GetContractPublished()
				digest, known := c.b.contracts[k.Capability]
				return copyIf(known && string(digest) == string(k.Digest))
			}}},
		collect: func(b *book, c *claim) {
			k := c.Record.GetContractPublished()
			b.contracts[k.Capability] = k.Digest
		},
	},
}

// copyIf finds a copy.
func copyIf(same bool) judgement {
	if same {
		return judgement{is: copied}
	}
	return judgement{}
}

// The records that a ledger says of its own tree (I2). The roots themselves are checked
// where the leaves are, as by the verifier.
var checkpointClauses = []clause{
	{"I2.size", "A checkpoint covers no more records than come before it.",
		func(c *claim) judgement {
			return c.covers("it covers", c.Record.GetCheckpointSigned().GetSize())
		}},
	{"I2.root", "The root of a checkpoint is a hash.", func(c *claim) judgement {
		k := c.Record.GetCheckpointSigned()
		return unless(k.Size == 0 || len(k.Root) == ledger.LeafSize, "a root of %d bytes, not %d",
			ledger.LeafSize, len(k.Root))
	}},
}

// covers judges how many records a signature is of.
func (c *claim) covers(what string, size uint64) judgement {
	switch before := c.b.records - 1; {
	case size <= before:
		return judgement{}
	case c.b.part:
		return judgement{is: untold}
	default:
		return breaks("%s %d records, and at most the %d before it can be", what, size, before)
	}
}

var rotationClauses = []clause{
	{"I2.rotated", "A key is rotated at no more records than come before.",
		func(c *claim) judgement {
			return c.covers("it was signed at", c.Record.GetKeyRotated().GetSize())
		}},
	{"I2.ends",
		"A rotation ends the key in force: the last one, or the signer of the largest checkpoint.",
		func(c *claim) judgement {
			k, key := c.Record.GetKeyRotated(), c.b.signed.key
			signer := c.b.signed.size == 0 ||
				ledger.SignedBy([]byte(c.b.signed.note), c.b.tenant, k.OldKey)
			if key == "" {
				return unless(signer,
					"it ends key %s, and another one has signed the last checkpoint", k.OldKey)
			}
			return unless(k.OldKey == key, "it ends key %s, and %s is in force", k.OldKey, key)
		}},
	{"I2.hand", "A rotation is signed by the key that it ends.", func(c *claim) judgement {
		err := ledger.VerifyRotation(c.b.tenant, c.Record.GetKeyRotated())
		return unless(err == nil || errors.Is(err, ledger.ErrKeyLost), "%v", err)
	}},
}

// signed is what the records say of the tree that they are under.
type signed struct {
	size uint64 // records of the largest checkpoint
	note string // that one
	key  string // in force, as the last rotation has it; empty: there was none
}

// noteCheckpoint keeps the largest checkpoint.
func noteCheckpoint(b *book, c *claim) {
	if k := c.Record.GetCheckpointSigned(); k.Size > b.signed.size {
		b.signed.size, b.signed.note = k.Size, k.Note
	}
}

func noteRotation(b *book, c *claim) { b.signed.key = c.Record.GetKeyRotated().NewKey }

// reachable reports whether an instant can be kept: ns of 1970 to 2261, or none.
func reachable(ns int64) bool {
	return ns >= 0 && time.Unix(0, ns).UTC().Year() <= 2261
}

// outOfRange names the first duration or instant of a pair that is out of range.
func outOfRange(f *pb.ForwardRegistered, c *pb.CompensationRegistered) string {
	const hour, day = int64(time.Hour), 24 * int64(time.Hour)
	probe, verify := c.GetProbe().GetCall(), c.GetVerify().GetCall()
	for _, d := range [...]struct {
		field    string
		ns, most int64
	}{
		{"forward_registered.timeout_ns", f.GetTimeoutNs(), day},
		{"forward_registered.settle_ns", f.GetSettleNs(), 30 * day},
		{"forward_registered.grace_ns", f.GetGraceNs(), hour},
		{"compensation_registered.backoff_ns", c.GetBackoffNs(), day},
		{"compensation_registered.backoff_max_ns", c.GetBackoffMaxNs(), day},
		{"compensation_registered.timeout_ns", c.GetTimeoutNs(), day},
		{"compensation_registered.valid_for_ns", c.GetValidForNs(), 36500 * day},
		{"compensation_registered.warn_ns", c.GetWarnNs(), 36500 * day},
		{"compensation_registered.dedupe_ns", c.GetDedupeNs(), 36500 * day},
		{"compensation_registered.unserved_after_ns", c.GetUnservedAfterNs(), 30 * day},
		{"compensation_registered.ask_after_ns", c.GetAskAfterNs(), 30 * day},
		{"compensation_registered.probe.call.timeout_ns", probe.GetTimeoutNs(), day},
		{"compensation_registered.probe.call.backoff_ns", probe.GetBackoffNs(), day},
		{"compensation_registered.verify.call.timeout_ns", verify.GetTimeoutNs(), day},
		{"compensation_registered.verify.call.backoff_ns", verify.GetBackoffNs(), day},
	} {
		if d.ns != 0 && (d.ns < 1e6 || d.ns > d.most) {
			return d.field
		}
	}
	if !reachable(c.GetValidUntilNs()) {
		return "compensation_registered.valid_until_ns"
	}
	return ""
}

// wrongDelivery says what is wrong with the first expression of a delivery that cannot be
// evaluated, or reads what the delivery itself leaves.
func (c *claim) wrongDelivery(d *pb.CompensationRegistered) string {
	list := expressionsOf(d)
	if why := c.wrong(list); why != "" {
		return why
	}
	for _, e := range list {
		x, err := c.b.programs.Reader(e.text)
		if err == nil && (x.Reads("output") || x.Reads("before")) {
			return e.field + ": reads what is not there before it"
		}
	}
	return ""
}
