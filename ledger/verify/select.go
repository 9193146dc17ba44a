package verify

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Selected says what a selection shows.
type Selected struct {
	Size   uint64   `json:"size"`  // records of the tree
	Shown  uint64   `json:"shown"` // records
	Plans  []string `json:"plans"` // in the order in which they were opened
	Facts  int      `json:"facts"` // keys that conditions of these plans have read
	Shared uint64   `json:"withheld_commits,omitempty"`
	// Shared counts the commits that speak of these plans and of others in one JSON
	// text, which cannot be shown in part; they are withheld.
}

// family knows a plan, the plans below it and those that undo them.
type family struct {
	plans []string
	in    map[string]bool
	keys  map[string]bool

	prefixes []string // of facts that they have asked for
}

func newFamily(plan string) *family {
	return &family{in: map[string]bool{plan: true}, keys: map[string]bool{}}
}

// has reports whether a plan is of the family. One that undoes another plan has its id
// and a number after a tilde.
func (f *family) has(plan string) bool {
	origin, _, _ := strings.Cut(plan, "~")
	return plan != "" && (f.in[plan] || f.in[origin])
}

// meet takes in a child that is opened.
func (f *family) meet(r *pb.Record) {
	if k := r.GetPlanOpened(); k != nil && (f.has(k.ParentPlan) || f.in[r.Plan]) {
		f.in[r.Plan] = true
		f.plans = append(f.plans, r.Plan)
	}
}

// read notes what a condition has read: facts, and prefixes of facts.
func (f *family) read(keys, prefixes []string) {
	for _, key := range keys {
		f.keys[key] = true
	}
	for _, prefix := range prefixes {
		if !slices.Contains(f.prefixes, prefix) {
			f.prefixes = append(f.prefixes, prefix)
		}
	}
}

func (f *family) reads(fact string) bool {
	return f.keys[fact] || slices.ContainsFunc(f.prefixes,
		func(prefix string) bool { return strings.HasPrefix(fact, prefix) })
}

// shows reports whether an auditor of the family sees a record: what is about it, terms
// of holders, what the tenant may do, the keys that sign, and the facts that its conditions have
// read.
func (f *family) shows(r *pb.Record) bool {
	switch k := r.Kind.(type) {
	case *pb.Record_TermStarted, *pb.Record_TenantChanged, *pb.Record_KeyRotated:
		return true
	case *pb.Record_FactAsserted:
		return f.has(r.Plan) || f.reads(k.FactAsserted.Key)
	case *pb.Record_FactRetracted:
		return f.has(r.Plan) || f.reads(k.FactRetracted.Key)
	default:
		return f.has(r.Plan)
	}
}

// Select writes a bundle of one plan, its child plans and what undoes them, from the
// bundle of the whole ledger. Of every other record it holds the hash alone. keep are
// sizes whose root can be computed from it, for checkpoints that someone has kept.
// It reads twice: first for the facts that conditions have read. The error is that of
// the files, or says why the bundle is none of the whole ledger.
func Select(whole io.ReadSeeker, plan string, keep []uint64, out io.Writer) (Selected, error) {
	f := newFamily(plan)
	tenant := ""
	rules := (*audit.Ledger)(nil)
	err := eachMessage(whole, func(h bundle.Header, m ledger.Message, entries []ledger.Entry) {
		if rules == nil {
			tenant, rules = h.Tenant, audit.New(h.Tenant)
			rules.OnRead(func(id string, keys, prefixes []string) {
				if f.has(id) {
					f.read(keys, prefixes)
				}
			})
		}
		for _, e := range entries {
			if e.Err == nil {
				f.meet(e.Record)
			}
		}
		rules.AddDecoded(m, entries)
	})
	if err != nil {
		return Selected{}, err
	}
	if len(f.plans) == 0 {
		return Selected{}, ledger.Refuse("plan",
			fmt.Sprintf("%.80q was never opened with a record of its own", plan),
			"a plan of the ledger")
	}
	s := selection{family: f, keep: keep, result: Selected{Plans: f.plans, Facts: len(f.keys)}}
	if s.w, err = bundle.NewWriter(out,
		bundle.Header{Tenant: tenant, Holds: bundle.Plan, Plan: plan}); err != nil {
		return Selected{}, err
	}
	err = s.run(whole)
	return s.result, err
}

// selection is the second pass.
type selection struct {
	family  *family
	keep    []uint64
	w       *bundle.Writer
	tree    bundle.Tree
	message shown
	data    [][]byte
	result  Selected
}

func (s *selection) run(whole io.ReadSeeker) error {
	b, err := open(whole)
	if err != nil {
		return err
	}
	for {
		item, err := b.Next()
		if err != nil {
			return err
		}
		switch item.Kind {
		case bundle.Record:
			leaf, err := ledger.ParseLeaf(item.Data)
			if err != nil {
				return err
			}
			s.data = append(s.data, append([]byte(nil), item.Data...))
			if s.message.add(leaf, ledger.LeafHash(item.Data)); leaf.Last() {
				err = s.flush(b.Header().Tenant)
			}
			if err != nil {
				return err
			}
		case bundle.Checkpoint:
			if err := s.w.Checkpoint(item.Note); err != nil {
				return err
			}
		case bundle.End:
			if err := s.flush(b.Header().Tenant); err != nil {
				return err
			}
			s.result.Size = s.tree.Size()
			return s.w.End(s.tree.Root())
		}
	}
}

// flush writes the records of one message, shown or withheld.
func (s *selection) flush(tenant string) error {
	shows := make([]bool, len(s.data))
	if s.message.whole() {
		_, entries, err := s.message.decode(tenant)
		if err != nil {
			return err
		}
		some, all := false, true
		for i, e := range entries {
			shows[i] = e.Record != nil && s.family.shows(e.Record)
			some, all = some || shows[i], all && shows[i]
		}
		if some && !all && s.message.records[0].Type != "" {
			clear(shows)
			s.result.Shared++
		}
	}
	for i, data := range s.data {
		var err error
		if hash := s.message.leaves[i]; shows[i] {
			s.result.Shown++
			err = s.w.Record(data)
		} else {
			err = s.w.Withhold(bundle.Node{Hash: hash})
		}
		s.tree.Append(s.message.leaves[i])
		for _, size := range s.keep {
			if size == s.tree.Size() && err == nil {
				err = s.w.Flush() // the withheld ones after it are a run of their own
			}
		}
		if err != nil {
			return err
		}
	}
	s.message, s.data = shown{}, nil
	return nil
}

func open(whole io.ReadSeeker) (*bundle.Reader, error) {
	if _, err := whole.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	b, err := bundle.NewReader(whole)
	if err == nil && b.Header().Holds != bundle.Whole {
		err = ledger.Refuse("bundle", "it holds "+b.Header().Holds, "the whole ledger")
	}
	return b, err
}

// eachMessage reads the messages of a whole bundle.
func eachMessage(
	whole io.ReadSeeker, each func(h bundle.Header, m ledger.Message, entries []ledger.Entry),
) error {
	b, err := open(whole)
	if err != nil {
		return err
	}
	var message shown
	for {
		item, err := b.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case item.Kind != bundle.Record:
			continue
		}
		leaf, err := ledger.ParseLeaf(item.Data)
		if err != nil {
			return err
		}
		message.add(leaf, ledger.LeafHash(item.Data))
		if !leaf.Last() {
			continue
		}
		m, entries, err := message.decode(b.Header().Tenant)
		if err != nil {
			return err
		}
		each(b.Header(), m, entries)
		message = shown{}
	}
}

// takesFacts reports whether a call may take facts as they were at its registration.
func takesFacts(call *pb.CompensationRegistered) bool {
	bindings := slices.Concat(call.GetBindings(), call.GetProbe().GetCall().GetBindings(),
		call.GetVerify().GetCall().GetBindings())
	return slices.ContainsFunc(bindings,
		func(b *pb.Binding) bool { return strings.Contains(b.Expression, "facts") })
}
