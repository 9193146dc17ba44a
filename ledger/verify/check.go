package verify

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Options are what an auditor brings along.
type Options struct {
	// Keys are verifier keys. The first is trusted from its beginning on; others only
	// where the ledger says that a key was lost and replaced by them.
	Keys []string
	// Before is a signed checkpoint that was kept from before; empty: none.
	Before string
	// Keep is what is in the file that the next checkpoint is kept in; empty: nothing. A checkpoint
	// of this ledger there is held against the bundle as that of Before is, where it is no longer.
	Keep string
	// AtRest says that nothing was under way when the bundle was made, so that what is
	// owed at its end is missing.
	AtRest bool
	// Why asks for the records of a plan, of what undoes it, and with WhyAction of one of
	// its actions; empty: of none.
	Why, WhyAction string
	// Memory is where the rules keep what they know.
	Memory audit.Memory
}

// clockAheadMax is by how much, in ns, the clock of a holder may be ahead of those of its servers.
const clockAheadMax = int64(time.Minute)

// check is one run.
type check struct {
	options Options
	report  *Report
	tree    bundle.Tree
	past    past
	keys    *keys
	rules   *audit.Ledger // nil: they cannot be told
	anchors []anchor      // that the tree has not come to yet
	message shown
	lastNs  int64  // stamp of the last record that is shown
	size    int    // bytes of message
	stampNs int64  // the latest stamp so far
	aheadNs int64  // by so much, at most, a holder has decided at a later instant than that
	aheadAt uint64 // the sequence of that decision
	lost    bool   // of a part: something could not be told, and what follows rests on it
	windows bool   // of a part: an undo window is in it, and the time of withheld records moves it
	facts   bool   // an undo takes facts
	ended   bool
	told    []ledger.Told // what was asked for
	found   bool          // some of it is told: of the action, where one was named
}

// Check reads a bundle to its end and says what it proves. Any bytes give a report; the
// error is that of r, or of a key or checkpoint of the options, a *ledger.Refused.
func Check(r io.Reader, o Options) (*Report, error) {
	c := &check{options: o, report: &Report{Findings: []Finding{}, Doubts: []Doubt{},
		Verdicts: map[string]int{}, Plans: map[string]int{}}}
	b, err := bundle.NewReader(r)
	if err != nil {
		if c.malformed(err) {
			c.report.conclude()
			return c.report, nil
		}
		return c.report, err
	}
	if err := c.begin(b.Header()); err != nil {
		return c.report, err
	}
	for {
		item, err := b.Next()
		if errors.Is(err, io.EOF) || err != nil && c.malformed(err) {
			break
		}
		if err != nil {
			return c.report, err
		}
		c.item(item)
	}
	c.end()
	return c.report, nil
}

// malformed reports whether an error of the reader is one of the bytes, and notes it.
func (c *check) malformed(err error) bool {
	var bad *bundle.Malformed
	switch {
	case errors.As(err, &bad):
		c.report.find(Finding{Rule: RuleFormat, Sequence: c.report.Last + 1,
			Problem: bad.Error() + "; nothing after it is read"})
	case errors.Is(err, bundle.ErrLater):
		c.report.doubt("the file", 0,
			"it was made by a newer version, in a format that this one cannot read")
	case errors.Is(err, bundle.ErrCut) && c.report.Tenant == "":
		c.report.doubt("the file", 0, "it is cut off before anything is in it")
	case errors.Is(err, bundle.ErrCut):
		c.report.doubt("the file", c.report.Last,
			"it is cut off after record %d: what follows is missing", c.tree.Size())
	default:
		return false
	}
	return true
}

func (c *check) begin(h bundle.Header) error {
	c.report.Tenant, c.report.Holds, c.report.Plan, c.report.Since = h.Tenant, h.Holds, h.Plan,
		h.Since
	switch h.Holds {
	case bundle.Whole:
		c.rules = audit.NewOver(h.Tenant, c.options.Memory)
	case bundle.Plan:
		c.rules = audit.NewPart(h.Tenant, c.options.Memory)
	}
	var err error
	if c.keys, err = newKeys(h.Tenant, c.options.Keys); err != nil {
		return err
	}
	return c.anchor()
}

func (c *check) item(item bundle.Item) {
	switch item.Kind {
	case bundle.Record:
		c.record(item.Data)
	case bundle.Withheld:
		c.withheld(item.Nodes)
	case bundle.Checkpoint:
		c.signed(item.Note, 0)
	case bundle.End:
		c.ended = true
		if root := c.tree.Root(); root != item.Root {
			c.report.find(Finding{Rule: RuleFormat, Sequence: c.report.Last,
				Problem: "its end names another root than its records have"})
		}
	}
}

// last is the spot of the last record that is shown.
func (c *check) last() spot { return spot{c.report.Last, c.lastNs} }

func (c *check) withheld(nodes []bundle.Node) {
	c.flush()
	for _, n := range nodes {
		before := c.tree.Size()
		if c.tree.AppendNode(n) != nil {
			return // the reader has looked
		}
		c.report.Withheld += c.tree.Size() - before
		c.reached()
	}
	c.past.reset(c.tree.Clone(), c.last())
	if c.report.Holds == bundle.Whole {
		c.report.find(Finding{Rule: RuleFormat, Sequence: c.report.Last + 1,
			Problem: "records are withheld from a bundle that says it is whole"})
	}
}

func (c *check) record(data []byte) {
	hash := ledger.LeafHash(data)
	leaf, err := ledger.ParseLeaf(data)
	if err == nil && len(c.message.records) > 0 && leaf.Sequence != c.message.records[0].Sequence {
		c.flush()
	}
	before := c.last()
	if err == nil {
		c.report.Last, c.lastNs = leaf.Sequence, leaf.StampNs
		if c.report.First == 0 {
			c.report.First = leaf.Sequence
		}
	}
	c.past.add(&c.tree, before, hash, c.last())
	c.tree.Append(hash)
	c.reached()
	if err != nil {
		c.report.find(Finding{Rule: RuleFormat, Sequence: c.report.Last + 1, Problem: err.Error()})
		c.rules = nil
		return
	}
	if leaf.Tenant != c.report.Tenant {
		c.report.find(Finding{Rule: "I27", Sequence: leaf.Sequence,
			Problem: fmt.Sprintf("a record of tenant %.80q", leaf.Tenant)})
	}
	if c.size += len(data); c.size > 4*ledger.CommitSizeMax+len(data) ||
		len(c.message.records) > ledger.CommitLenMax {
		c.report.find(Finding{Rule: "I3", Sequence: leaf.Sequence,
			Problem: "a message larger than any can be"})
		c.message, c.size, c.rules = shown{}, 0, nil
		return
	}
	c.message.add(leaf, hash)
	if leaf.Last() {
		c.flush()
	}
}

// flush folds the message whose records have come.
func (c *check) flush() {
	if len(c.message.records) == 0 {
		return
	}
	message := c.message
	c.message, c.size = shown{}, 0
	at := message.records[0].Sequence
	if !message.whole() {
		if c.report.Holds != bundle.Plan {
			c.report.find(Finding{Rule: "I3", Sequence: at,
				Problem: fmt.Sprintf("%d records of a message of %d", len(message.records),
					message.records[0].Count)})
			c.rules = nil
			return
		}
		c.report.Unseen++
	}
	c.report.Messages++
	m, entries, err := message.decode(c.report.Tenant)
	var halted *ledger.Halted
	switch {
	case errors.As(err, &halted):
		c.report.doubt("the rules", at, "%s; nothing from here on is checked", halted.Problem)
		c.rules = nil
		return
	case err != nil:
		c.report.find(Finding{Rule: "I3", Sequence: at, Problem: err.Error()})
		c.rules = nil
		return
	}
	c.fold(m, entries)
}

func (c *check) fold(m ledger.Message, entries []ledger.Entry) {
	var verdicts []audit.Entry
	if c.rules != nil {
		c.orphaned(m.Sequence, entries)
		found := c.rules.AddDecoded(m, entries)
		verdicts = c.rules.Entries()
		for _, v := range found {
			c.violation(v)
		}
		for _, v := range verdicts {
			c.report.Verdicts[v.Verdict]++
		}
	}
	c.tell(entries, verdicts)
	c.stampNs = max(c.stampNs, m.StampNs)
	for i, e := range entries {
		if e.Err != nil || e.Source.Class != ledger.ClassExecutor || verdicts != nil &&
			verdicts[i].Verdict != audit.Effective {
			continue
		}
		if ahead := e.Record.EpochNs - c.stampNs; ahead > c.aheadNs {
			c.aheadNs, c.aheadAt = ahead, m.Sequence
		}
		switch k := e.Record.Kind.(type) {
		case *pb.Record_CheckpointSigned:
			if k.CheckpointSigned.Size > 0 {
				c.checkpoint(k.CheckpointSigned, m.Sequence)
			}
		case *pb.Record_KeyRotated:
			c.rotated(k.KeyRotated, m.Sequence)
		case *pb.Record_TermStarted:
			c.report.began(k.TermStarted.FoldVersion)
		case *pb.Record_LedgerRepaired:
			c.repaired(e.Address, k.LedgerRepaired)
		}
	}
}

// orphaned notes a child plan whose parent is withheld: what becomes of it is decided
// there. And it notes undo windows, and undos that take facts: one that is withheld may be why
// another was refused.
func (c *check) orphaned(sequence uint64, entries []ledger.Entry) {
	if c.report.Holds != bundle.Plan || c.lost {
		return
	}
	for _, e := range entries {
		undo := e.Record.GetCompensationRegistered()
		c.windows = c.windows || undo.GetValidForNs() > 0 || undo.GetValidUntilNs() > 0
		c.facts = c.facts || takesFacts(undo) || takesFacts(e.Record.GetForwardRegistered().GetDeliver())
		k := e.Record.GetPlanOpened()
		if k.GetParentPlan() == "" || e.Err != nil {
			continue
		}
		if _, known := c.rules.Plan(k.ParentPlan); !known {
			c.lost = true
			c.report.doubt("the parent", sequence,
				"plan %s is a part of plan %s, which is withheld, and so is what that decides "+
					"for it", e.Record.Plan, k.ParentPlan)
		}
	}
}

// checkpoint holds a recorded checkpoint against the records before it.
func (c *check) checkpoint(k *pb.CheckpointSigned, sequence uint64) {
	claimed, ok := Claimed(k.Note)
	size := claimed.Size
	if !ok || size != k.Size {
		c.report.find(Finding{Rule: "I2", Sequence: sequence,
			Problem: "a checkpoint whose signed text is not that of its record"})
		return
	}
	if _, kept := c.past.at(size); !kept && size <= c.tree.Size() &&
		c.report.Holds != bundle.Whole {
		return // it is of records that are withheld
	}
	if string(claimed.Root[:]) != string(k.Root) {
		c.report.find(Finding{Rule: "I2", Sequence: sequence,
			Problem: "a checkpoint whose signed root is not that of its record"})
		return
	}
	c.signed(k.Note, sequence)
}

// violation notes what the rules found. In a part of a ledger, what rests on records
// that are withheld cannot be told, and neither can what rests on that.
func (c *check) violation(v audit.Violation) {
	rule := audit.RuleOf(v.Rule)
	own := rule.Own && !(c.windows && rule.Timed) && !(c.facts && rule.ID == "I30")
	if c.report.Holds != bundle.Plan || own && !c.lost {
		c.report.violated(v)
		return
	}
	c.lost = c.lost || !v.Idle
	c.report.doubt(ruleDoubt+v.Rule, v.Address.GetSequence(),
		"%s; with the records that are withheld it may be right", v.Problem)
}

// end says what the end of the bundle leaves open.
func (c *check) end() {
	r := c.report
	switch {
	case !c.ended && len(c.message.records) > 0: // it is cut off: the rest may have been there
		c.message = shown{}
	default:
		c.flush()
	}
	root := c.tree.Root()
	r.Size, r.Root = c.tree.Size(), hex.EncodeToString(root[:])
	r.LastTime, r.Why = timeOf(c.lastNs), ledger.Story(c.told)
	if c.options.Why != "" && !c.found {
		r.doubt("why", 0, "no record of plan %s%s is shown", c.options.Why,
			ofAction(c.options.WhyAction))
	}
	if r.Size == 0 && c.ended {
		r.doubt("the ledger", 0, "it has no record, so that there is nothing to prove")
	}
	c.endBytes()
	c.endRules()
	r.conclude()
}

func (c *check) endBytes() {
	r := c.report
	c.endAnchors()
	c.endKeys()
	switch {
	case len(c.options.Keys) == 0:
		r.doubt("signatures", 0,
			"no key was given, so that anybody may have made these bytes: --key")
	case r.Signed.Checkpoints == 0 && len(r.Findings) > 0:
		r.doubt("signatures", 0,
			"no checkpoint that the key has signed is of these records: nothing says that they "+
				"are those that were stored")
	case r.Signed.Checkpoints == 0:
		r.doubt("signatures", 0,
			"no checkpoint is signed by the key: nothing says that these are the records that "+
				"were stored")
	case r.Signed.Size < r.Size:
		r.doubt("signatures", r.Signed.Through+1,
			"the last checkpoint covers %d of %d records; whoever keeps the ledger could still "+
				"change the others", r.Signed.Size, r.Size)
	}
}

func (c *check) endRules() {
	r := c.report
	switch {
	case r.Holds == bundle.Since:
		r.doubt("the rules", 0, "they are about what came before, too: they need the whole ledger")
		return
	case c.rules == nil:
		if len(r.Findings)+len(r.Doubts) == 0 {
			r.doubt("the rules", 0, "they could not be checked to the end")
		}
		return
	}
	r.RulesRun = true
	if r.Holds == bundle.Whole && c.aheadNs > clockAheadMax {
		r.doubt("the clock", c.aheadAt,
			"a holder has decided by a clock that was %v ahead of all stamps: what is due by time may "+
				"have been done that much too early", time.Duration(c.aheadNs).Round(time.Second))
	}
	if r.Holds == bundle.Plan {
		r.doubt("the plan", 0,
			"whether more of its records are among the %d that are withheld, and what rests on "+
				"those", r.Withheld)
	}
	c.rules.EachAtEnd(func(p audit.Plan) {
		r.Plans[p.State]++
		r.Held += p.Held
		if e := p.Erasure; e != nil {
			r.erase(Erased{Plan: e.Plan, Sequence: e.Erased.GetSequence(), Actor: e.Actor,
				Reason: e.Reason, Values: e.Sealed, Destroyed: e.Destroyed != nil})
		}
	}, func(v audit.Violation) {
		switch {
		case r.Holds == bundle.Plan:
			c.violation(v)
		case v.Rule == "L1" || v.Rule == "L2" || v.Rule == "I13":
			if c.options.AtRest && c.ended {
				r.violated(v)
			} else {
				r.doubt(ruleDoubt+v.Rule, v.Address.GetSequence(),
					"plan %s: %s; it may have been under way when the bundle was made (--at-rest "+
						"says that nothing was)", v.Plan, v.Problem)
			}
		default:
			r.violated(v)
		}
	})
}
