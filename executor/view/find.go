package view

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// FindScanMax bounds the plans that one batch looks at, findBytesMax the cursor.
const (
	FindScanMax  = 1000
	findBytesMax = 1024
)

// fewMax is how many plans of a state make its list the shortest way to them.
const fewMax = 1000

// phasesByName are the phases as FindQuery names them.
var phasesByName = []struct {
	name  string
	phase rowspb.Phase
}{
	{ledger.StateOpen, rowspb.Phase_PHASE_OPEN},
	{ledger.StateCommitting, rowspb.Phase_PHASE_COMMITTING},
	{ledger.StateCommitted, rowspb.Phase_PHASE_COMMITTED},
	{ledger.StateUnwinding, rowspb.Phase_PHASE_UNWINDING},
	{ledger.StateCompensated, rowspb.Phase_PHASE_COMPENSATED},
	{ledger.StateQuarantined, rowspb.Phase_PHASE_QUARANTINED},
	{ledger.StateFailed, rowspb.Phase_PHASE_FAILED},
	{ledger.StateResolved, rowspb.Phase_PHASE_RESOLVED},
	{ledger.StateDelivering, rowspb.Phase_PHASE_UNWINDING},
	{ledger.StateDelivered, rowspb.Phase_PHASE_COMPENSATED},
}

func phaseNamed(name string) (rowspb.Phase, error) {
	for _, p := range phasesByName {
		if p.name == name {
			return p.phase, nil
		}
	}
	return 0, ledger.Refuse("state", fmt.Sprintf("%q", name),
		"open, committing, committed, unwinding, compensated, quarantined, failed, resolved, "+
			"delivering or delivered")
}

// finding is one batch in the making.
type finding struct {
	r      *Reader
	q      api.FindQuery
	phase  rowspb.Phase
	prefix []byte // of the list it goes through
	// cursor is where a batch goes on that ends with a plan at a place of the list.
	cursor func(id string, place []byte) string
	only   func(row *rowspb.PlanRow) bool // selects beside q; nil: all
	list   *batch[api.Plan]
	looked int
	answer api.FindAnswer
}

// noneFound is in JSON a list, beside an error too.
var noneFound = api.FindAnswer{Plans: []api.Plan{}}

// Find returns one batch of plans, the latest opened first. The error is a *ledger.Refused.
func (r *Reader) Find(q api.FindQuery) (api.FindAnswer, error) {
	f := &finding{r: r, q: q, list: newBatch[api.Plan](q.Limit)}
	f.cursor = func(_ string, place []byte) string { return hex.EncodeToString(place) }
	if q.State != "" {
		var err error
		if f.phase, err = phaseNamed(q.State); err != nil {
			return noneFound, err
		}
	}
	cursor, err := hex.DecodeString(q.After)
	if err != nil || len(cursor) > findBytesMax {
		return noneFound,
			ledger.Refuse("after", fmt.Sprintf("%q", q.After), "the next of the page before")
	}
	if q.Text != "" {
		f.byText(cursor)
	} else {
		f.byList(cursor)
	}
	f.answer.Plans, f.answer.Next = append([]api.Plan{}, f.list.list...), f.list.next
	return f.answer, nil
}

// byList goes through the list that is likely the shortest; true: to its end.
func (f *finding) byList(cursor []byte) bool {
	f.prefix = f.shortest()
	from := f.prefix
	switch {
	case len(cursor) > 0:
		from = append(append(slices.Clone(f.prefix), cursor...), 0)
	case f.q.UntilNs != 0:
		from = append(slices.Clone(f.prefix), f.r.openedBefore(f.prefix, f.q.UntilNs)...)
	}
	for k := range f.r.tx.Scan(from, rows.After(f.prefix)) {
		place := k[len(f.prefix):]
		if len(place) <= rows.ListedPlace {
			panic(&rows.StoreError{Op: "scan", Err: rows.ErrMissing})
		}
		id := string(place[rows.ListedPlace:])
		if !f.take(id, f.cursor(id, place)) {
			return false
		}
	}
	return true
}

// shortest is the list to go through; what it does not select is looked at.
func (f *finding) shortest() []byte {
	meta := f.r.core.Meta()
	few := map[rowspb.Phase]uint64{rowspb.Phase_PHASE_OPEN: meta.Open,
		rowspb.Phase_PHASE_UNWINDING: meta.Unwinding, rowspb.Phase_PHASE_QUARANTINED: meta.Quarantined}
	n, counted := few[f.phase]
	state := rows.ListPrefix(rows.ListState, rows.PhaseValue(f.phase))
	switch {
	case f.q.State != "" && counted && n <= fewMax:
		return state
	case f.q.Label != "":
		return rows.ListPrefix(rows.ListLabel, f.q.Label)
	case f.q.Capability != "":
		return rows.ListPrefix(rows.ListCapability, f.q.Capability)
	case f.q.State == ledger.StateCommitting || f.q.State == ledger.StateFailed ||
		f.q.State == ledger.StateResolved:
		return state
	case f.q.Agent != "":
		return rows.ListPrefix(rows.ListAgent, f.q.Agent)
	case f.q.State != "":
		return state
	default:
		return rows.ListPrefix(rows.ListAll, "")
	}
}

// take looks at one plan; false: the batch ends before it.
func (f *finding) take(id, cursor string) bool {
	if f.looked++; f.looked > FindScanMax {
		f.list.end()
		f.answer.Paused = true
		return false
	}
	v, ok := f.r.tx.Stored(rows.Plans.Key(id))
	if !ok {
		panic(&rows.StoreError{Op: "get", Err: rows.ErrMissing})
	}
	p := f.r.core.PlanOf(id, rows.Plans.Decode("get", v))
	if f.prefix != nil && p.Row.OpenedNs < f.q.FromNs {
		return false // whatever follows was opened earlier
	}
	if !f.selects(id, p.Row) {
		f.list.pass(cursor)
		return true
	}
	shown := planView(p)
	shown.WindowClosesNs = windowCloses(p)
	return f.list.add(cursor, shown)
}

func (f *finding) selects(id string, row *rowspb.PlanRow) bool {
	q := f.q
	switch {
	case f.only != nil && !f.only(row),
		q.State != "" && (row.Phase != f.phase || otherwiseNamed(q.State, row)),
		q.Agent != "" && row.Agent != q.Agent,
		row.OpenedNs < q.FromNs, q.UntilNs != 0 && row.OpenedNs >= q.UntilNs,
		q.Label != "" && !slices.Contains(rows.LabelsOf(row), q.Label):
		return false
	case q.Capability != "":
		_, has := f.r.tx.Stored(rows.Orders.Key(rows.Listed{Dimension: rows.ListCapability,
			Value: q.Capability, Opened: rows.At(row.Opened), Plan: id}))
		return has
	}
	return true
}

// otherwiseNamed reports whether a plan in the phase of a state is named for another one: what
// delivers is delivering and delivered.
func otherwiseNamed(state string, row *rowspb.PlanRow) bool {
	switch state {
	case ledger.StateUnwinding, ledger.StateCompensated:
		return row.Delivers
	case ledger.StateDelivering, ledger.StateDelivered:
		return !row.Delivers
	}
	return false
}

// openedBefore is the place in a list of the first plan that was opened before an
// instant, found by halving: as far as instants go with the order of the ledger.
func (r *Reader) openedBefore(prefix []byte, ns int64) []byte {
	low, high := ^r.Applied(), ^uint64(0) // of the inverted sequence
	for low < high {
		middle := low + (high-low)/2
		if opened, at, found := r.openedFrom(prefix, middle); !found || opened < ns {
			high = middle
		} else {
			low = at + 1
		}
	}
	return binary.BigEndian.AppendUint64(nil, low)
}

// oldest is the plan of a list that was opened first, or "".
func (r *Reader) oldest(prefix []byte) (id string) {
	low, high := ^r.Applied(), ^uint64(0)
	for low < high {
		middle := low + (high-low)/2
		found := false
		for k := range r.tx.Scan(binary.BigEndian.AppendUint64(slices.Clone(prefix), middle),
			rows.After(prefix)) {
			id, low, found = string(k[len(prefix)+rows.ListedPlace:]),
				binary.BigEndian.Uint64(k[len(prefix):])+1, true
			break
		}
		if !found {
			high = middle
		}
	}
	return id
}

// openedFrom is when the first plan at or after a place of a list was opened, and its place.
func (r *Reader) openedFrom(prefix []byte, place uint64) (openedNs int64, at uint64, found bool) {
	for k := range r.tx.Scan(binary.BigEndian.AppendUint64(slices.Clone(prefix), place),
		rows.After(prefix)) {
		rest := k[len(prefix):]
		at := binary.BigEndian.Uint64(rest)
		row, _ := rows.Plans.Load(r.tx, string(rest[rows.ListedPlace:]))
		return row.OpenedNs, at, true
	}
	return 0, 0, false
}

// byText looks at the plans whose id begins with the text, then at those whose label
// does, each in their own order.
func (f *finding) byText(cursor []byte) {
	text := f.q.Text
	if len(cursor) == 0 || cursor[0] == rows.Plans.Prefix()[0] {
		prefix := rows.Plans.Key(text)
		from := prefix
		if len(cursor) > 0 {
			from = append(slices.Clone(cursor), 0)
		}
		for k := range f.r.tx.Scan(from, rows.After(prefix)) {
			if !f.take(string(k[1:]), hex.EncodeToString(k)) {
				return
			}
		}
		cursor = nil
	}
	prefix := bytes.TrimSuffix(rows.ListPrefix(rows.ListLabel, text), []byte{0})
	from := prefix
	if len(cursor) > 0 {
		from = append(slices.Clone(cursor), 0)
	}
	for k := range f.r.tx.Scan(from, rows.After(prefix)) {
		end := bytes.IndexByte(k[2:], 0) + 2
		id := string(k[end+1+rows.ListedPlace:])
		// by another label
		had := slices.ContainsFunc(f.list.list, func(v api.Plan) bool { return v.Plan == id })
		// listed above
		if had || strings.HasPrefix(id, text) {
			continue
		}
		if !f.take(id, hex.EncodeToString(k)) {
			return
		}
	}
}
