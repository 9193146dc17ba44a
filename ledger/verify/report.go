package verify

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Verdicts of a report.
const (
	Proven     = "proven"
	Found      = "findings"
	CannotTell = "cannot tell"
)

// FindingsMax bounds the findings that a report names.
const FindingsMax = 100

// RuleFormat is the rule of findings in the bytes of the file itself.
const RuleFormat = "format"

// Finding is something that is wrong.
type Finding struct {
	Rule     string `json:"rule"`             // "I2"; RuleFormat: the file
	Clause   string `json:"clause,omitempty"` // "I21.order": the part of a rule of records
	Sequence uint64 `json:"sequence"`
	Through  uint64 `json:"through,omitempty"` // it is one of the records from Sequence to here
	Address  string `json:"address,omitempty"`
	Plan     string `json:"plan,omitempty"`
	Action   string `json:"action,omitempty"`
	Problem  string `json:"problem"`
}

// ruleDoubt begins what a doubt is about that is of a rule.
const ruleDoubt = "rule "

// Doubt is something that cannot be told, and why.
type Doubt struct {
	About    string `json:"about"`
	Why      string `json:"why"`
	Sequence uint64 `json:"sequence,omitempty"`
}

// Report is what a check has found.
type Report struct {
	Verdict string `json:"verdict"`
	Tenant  string `json:"tenant,omitempty"`
	Holds   string `json:"holds,omitempty"` // whole, since or plan
	Plan    string `json:"plan,omitempty"`
	Since   uint64 `json:"since,omitempty"`

	Size       uint64          `json:"size"`     // records of the tree
	Withheld   uint64          `json:"withheld"` // of them, those that the bundle does not show
	Messages   uint64          `json:"messages"`
	First      uint64          `json:"first_sequence"` // shown
	Last       uint64          `json:"last_sequence"`
	LastTime   string          `json:"last_time,omitempty"` // stamp of that record, RFC 3339
	Root       string          `json:"root,omitempty"`      // hex
	Verdicts   map[string]int  `json:"records,omitempty"`
	Plans      map[string]int  `json:"plans,omitempty"` // by state
	Held       int             `json:"held"`
	RulesRun   bool            `json:"rules_checked"`
	Folds      *Folds          `json:"folds,omitempty"`           // of its holders; nil: none has begun a term
	Unseen     uint64          `json:"commits_in_part,omitempty"` // messages with withheld records
	Repairs    []Repair        `json:"repairs,omitempty"`
	MoreRepair uint64          `json:"more_repairs,omitempty"`
	Erased     []Erased        `json:"erased,omitempty"`
	MoreErased uint64          `json:"more_erased,omitempty"`
	Why        []api.StoryLine `json:"why,omitempty"` // the records that were asked for
	WhyMore    uint64          `json:"more_why,omitempty"`
	Signed     Signed          `json:"signed"`
	Kept       *Kept           `json:"before,omitempty"`
	Keep       *Kept           `json:"keep,omitempty"` // of Options.Keep, where it has no more records
	Findings   []Finding       `json:"findings"`
	More       uint64          `json:"more_findings,omitempty"`
	Doubts     []Doubt         `json:"cannot_tell"`
	MoreDoubt  uint64          `json:"more_cannot_tell,omitempty"`
}

// Signed says what signatures cover.
type Signed struct {
	Checkpoints uint64   `json:"checkpoints"`         // that were verified
	Size        uint64   `json:"size"`                // of the last of them, in records
	Through     uint64   `json:"last_sequence"`       // of the last record under it
	Time        string   `json:"last_time,omitempty"` // stamp of that record, RFC 3339
	Key         string   `json:"key,omitempty"`       // that has signed it
	Note        string   `json:"note,omitempty"`      // its text, for readers who keep it for the next time
	Rotations   []string `json:"rotations,omitempty"`
}

// Folds are the versions of the folds of a ledger's holders: each decides by the rules of its own,
// and an earlier one has fewer.
type Folds struct {
	Lowest  uint32 `json:"lowest"`
	Highest uint32 `json:"highest"`
}

// Kept is what became of the checkpoint that was kept from before.
type Kept struct {
	Size  uint64 `json:"size"`
	Holds bool   `json:"holds"` // the ledger is the one that it is of, grown
}

// Repair is a repair that the ledger tells of. What it lists are sequences of the stream before it,
// as in "8, 10-12", or "none".
type Repair struct {
	Sequence uint64 `json:"sequence"`
	Reason   string `json:"reason"`
	Actor    string `json:"actor"`
	Lost     string `json:"lost"`    // could not be read
	Carried  string `json:"carried"` // appended again after the repair, with new addresses
	Dropped  string `json:"dropped"` // could be read, and were not appended
}

// Erased is a plan whose sealed values no one can read any more: what was in them is not
// proven, and never can be. All else about it is proven without them.
type Erased struct {
	Plan      string `json:"plan"`
	Sequence  uint64 `json:"sequence"` // of the operator's record
	Actor     string `json:"actor"`
	Reason    string `json:"reason"`
	Values    int    `json:"values"`    // sealed values in its records
	Destroyed bool   `json:"destroyed"` // the holder says that the key is gone
}

// timeOf is an instant as a report has it; empty: it is not known.
func timeOf(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339)
}

// Exit is the exit code of a verdict: 0 proven, 1 findings, 2 cannot tell.
func (r *Report) Exit() int {
	switch r.Verdict {
	case Proven:
		return 0
	case Found:
		return 1
	default:
		return 2
	}
}

// began notes the version of a holder's fold, by whose rules it decides.
func (r *Report) began(fold uint32) {
	if r.Folds == nil {
		r.Folds = &Folds{fold, fold}
	}
	r.Folds.Lowest, r.Folds.Highest = min(r.Folds.Lowest, fold), max(r.Folds.Highest, fold)
}

// repaired notes a repair. Of more than FindingsMax the first ones stay; of a reason that is longer
// than any holder stores, its beginning: in a part of a ledger no rule refuses it.
func (r *Report) repaired(sequence uint64, k *pb.LedgerRepaired) {
	if len(r.Repairs) >= FindingsMax {
		r.MoreRepair++
		return
	}
	r.Repairs = append(r.Repairs, Repair{
		Sequence: sequence, Reason: ledger.Text(k.Reason), Actor: k.Actor,
		Lost: ledger.FormatRanges(k.Lost), Carried: ledger.FormatRanges(k.Carried),
		Dropped: ledger.FormatRanges(k.Dropped),
	})
}

// erase notes an erasure in its place. Of more than FindingsMax those stay that stand
// first in the ledger.
func (r *Report) erase(e Erased) {
	at, _ := slices.BinarySearchFunc(r.Erased, e, func(a, b Erased) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Plan, b.Plan))
	})
	r.Erased = slices.Insert(r.Erased, at, e)
	if len(r.Erased) > FindingsMax {
		r.Erased = r.Erased[:FindingsMax]
		r.MoreErased++
	}
}

// find notes a finding in its place. Of more than FindingsMax those stay that stand
// first in the ledger.
func (r *Report) find(f Finding) {
	at := len(r.Findings)
	for at > 0 && r.Findings[at-1].Sequence > f.Sequence {
		at--
	}
	r.Findings = slices.Insert(r.Findings, at, f)
	if len(r.Findings) > FindingsMax {
		r.Findings = r.Findings[:FindingsMax]
		r.More++
	}
}

func (r *Report) doubt(about string, sequence uint64, format string, a ...any) {
	if len(r.Doubts) >= FindingsMax {
		r.MoreDoubt++
		return
	}
	r.Doubts = append(r.Doubts, Doubt{about, fmt.Sprintf(format, a...), sequence})
}

func (r *Report) violated(v audit.Violation) {
	f := Finding{
		Rule: v.Rule, Clause: v.Clause, Sequence: v.Address.GetSequence(), Plan: v.Plan,
		Action:  v.Action,
		Problem: v.Problem,
	}
	if len(v.Address.GetLeaf()) > 0 {
		f.Address = ledger.FormatAddress(v.Address)
	}
	r.find(f)
}

// conclude orders what cannot be told by where it is, and says what it comes to.
func (r *Report) conclude() {
	slices.SortStableFunc(r.Doubts,
		func(a, b Doubt) int { return cmp.Compare(a.Sequence, b.Sequence) })
	switch {
	case len(r.Findings) > 0:
		r.Verdict = Found
	case len(r.Doubts) > 0:
		r.Verdict = CannotTell
	default:
		r.Verdict = Proven
	}
}
