package executor

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
)

// Pulse reads the counters of a flushed state.
func (r *Reader) Pulse() Pulse { return r.s.Pulse() }

// UpcomingView is what falls due next in a tenant, and what has waited longest.
type UpcomingView struct {
	TimeNs int64      `json:"time_ns"` // of the answer
	Due    []DueView  `json:"due"`     // the earliest first
	Oldest []PlanView `json:"oldest"`  // of the open, unwinding and quarantined plans the one that was opened first, each
}

// DueView is an instant at which time calls for a look at a plan.
type DueView struct {
	Ns     int64  `json:"ns"`
	Kind   string `json:"kind"` // lease, retry, settle, window, unserved (nobody takes it: its owner's then)
	Plan   string `json:"plan"`
	Action string `json:"action,omitempty"` // empty: the plan's own lease
	Lease  string `json:"lease,omitempty"`
	Shared uint64 `json:"shared,omitempty"` // other leases that are asked as one with it
	Label  string `json:"label,omitempty"`
}

// UpcomingAnswer answers due.ls.
type UpcomingAnswer struct {
	Upcoming UpcomingView `json:"upcoming"`
	Error    string       `json:"error,omitempty"`
}

// dueShown bounds the entries of one answer.
const dueShown = 100

// Upcoming returns what falls due next, at most limit (1..100, default 20) entries.
func (r *Reader) Upcoming(limit int) UpcomingView {
	if limit <= 0 || limit > dueShown {
		limit = 20
	}
	view := UpcomingView{TimeNs: r.nowNs(), Due: []DueView{}, Oldest: []PlanView{}}
	future := rows.DueFrom(uint64(view.TimeNs))
	for k := range r.s.tx.Scan(future, rows.After(rows.Due.Prefix())) {
		if len(view.Due) == limit {
			break
		}
		if due, ok := r.dueView(bytes.Clone(k)); ok {
			view.Due = append(view.Due, due)
		}
	}
	for _, phase := range []rowspb.Phase{rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING, rowspb.Phase_PHASE_UNWINDING, rowspb.Phase_PHASE_QUARANTINED} {
		if id := r.oldest(rows.ListPrefix(rows.ListState, phaseValue(phase))); id != "" {
			view.Oldest = append(view.Oldest, viewOf(id, r.s.plan(id).row))
		}
	}
	return view
}

// dueView shows one entry; ok is false for one that nothing stands behind any more.
func (r *Reader) dueView(key []byte) (view DueView, ok bool) {
	view.Ns = int64(binary.BigEndian.Uint64(key[1:]))
	var p *plan
	var a *action
	if key[9] == rows.DueNode {
		var l *rowspb.LeaseRow
		if p, a, l = r.s.member(key[10:]); l == nil {
			return view, false
		}
		view.Lease, view.Shared = l.Name, max(r.s.nodeRow(key[10:]).Leases, 1)-1
	} else {
		ref := rows.ParseInstant(key).Lease
		if p = r.s.plan(ref.Plan); p == nil {
			return view, false
		}
		if view.Lease = ref.Name; ref.N != 0 {
			a = r.s.action(p.id, ref.N)
		}
	}
	view.Kind = map[byte]string{rows.DueRetry: "retry", rows.DueWindow: "window"}[key[9]]
	if view.Kind == "" {
		view.Kind = "lease"
	}
	view.Plan, view.Label = p.id, p.row.Declared.GetLabel()
	if a != nil {
		view.Action = a.fixed.Id
		if key[9] == rows.DueRetry && a.row.Undo == rowspb.Undo_UNDO_SETTLING {
			view.Kind = "settle"
		}
	}
	return view, true
}

// CapabilityView is a capability that actions of a tenant have named, and who has
// undone them lately.
type CapabilityView struct {
	Capability string         `json:"capability"`
	Latest     string         `json:"latest"` // the plan that named it last, by opening
	LatestNs   int64          `json:"latest_ns"`
	Workers    []SeenView     `json:"workers"` // lately, by name
	InFlight   []InFlightView `json:"in_flight"`
	Omitted    bool           `json:"omitted,omitempty"` // more are in flight
}

// SeenView is a worker that has answered attempts to undo what a capability did.
type SeenView struct {
	Worker   string `json:"worker"`
	LastNs   int64  `json:"last_ns"` // of its last answer
	Attempts int    `json:"attempts"`
	Failed   int    `json:"failed"`  // of these, not done
	WorkNs   int64  `json:"work_ns"` // of all
}

// InFlightView is a command that waits for its answer.
type InFlightView struct {
	Plan         string `json:"plan"`
	Action       string `json:"action"`
	Number       int    `json:"number"`
	Compensation string `json:"compensation"` // the capability that is asked
	SinceNs      int64  `json:"since_ns"`
	Attempt      int    `json:"attempt"`
}

// CapabilitiesAnswer answers capability.ls.
type CapabilitiesAnswer struct {
	Capabilities []CapabilityView `json:"capabilities"`
	Omitted      bool             `json:"omitted,omitempty"` // there are more
	Error        string           `json:"error,omitempty"`
}

// attemptsBack is how far back, in commits, attempts are looked for, until there are some.
var attemptsBack = [...]uint64{1000, 10_000, 100_000, 1 << 62}

// Bounds of one answer about capabilities: how many, the attempts that are looked at,
// and the commands in flight.
const (
	capabilitiesShown = 200
	attemptsShown     = 1000
	inFlightShown     = 500
	inFlightOfOne     = 20
)

// Capabilities lists the capabilities that actions have named, in order, with the
// workers that have answered lately and the commands that wait for one.
func (r *Reader) Capabilities() CapabilitiesAnswer {
	answer := CapabilitiesAnswer{Capabilities: []CapabilityView{}}
	list := append(rows.Orders.Prefix(), rows.ListCapability)
	for from := list; from != nil; {
		next := from
		from = nil
		for k := range r.s.tx.Scan(next, rows.After(list)) {
			if len(answer.Capabilities) == capabilitiesShown {
				answer.Omitted = true
				break
			}
			end := bytes.IndexByte(k, 0)
			answer.Capabilities = append(answer.Capabilities, r.capability(string(k[2:end]), string(k[end+1+rows.ListedPlace:])))
			from = rows.After(k[:end+1])
			break
		}
	}
	r.addInFlight(answer.Capabilities)
	return answer
}

func (r *Reader) capability(name, latest string) CapabilityView {
	view := CapabilityView{Capability: name, Latest: latest, LatestNs: r.s.plan(latest).row.OpenedNs, Workers: []SeenView{}, InFlight: []InFlightView{}}
	for _, back := range attemptsBack {
		if r.addWorkers(&view, max(r.Applied(), back)-back) {
			break
		}
	}
	slices.SortFunc(view.Workers, func(a, b SeenView) int { return cmp.Compare(a.Worker, b.Worker) })
	return view
}

// addWorkers adds who has answered attempts that were dispatched behind a sequence,
// and reports whether there were attempts.
func (r *Reader) addWorkers(view *CapabilityView, behind uint64) bool {
	prefix := rows.Undone.WithinSized(view.Capability)
	seen := 0
	for k := range r.s.tx.Scan(binary.BigEndian.AppendUint64(prefix, behind), rows.After(prefix)) {
		if seen++; seen > attemptsShown {
			break
		}
		v, _ := r.s.tx.Get(k)
		row, _ := rows.Attempts.LoadKey(r.s.tx, append(rows.Attempts.Prefix(), v...))
		if row.Worker == "" {
			continue
		}
		at := slices.IndexFunc(view.Workers, func(w SeenView) bool { return w.Worker == row.Worker })
		if at < 0 {
			at, view.Workers = len(view.Workers), append(view.Workers, SeenView{Worker: row.Worker})
		}
		w := &view.Workers[at]
		w.LastNs, w.WorkNs, w.Attempts = max(w.LastNs, row.EndedNs), w.WorkNs+row.Timing.GetWorkNs(), w.Attempts+1
		if row.State == "failed" || row.State == "in_doubt" {
			w.Failed++
		}
	}
	return seen > 0
}

// addInFlight adds the commands in flight to the capabilities whose undo they are.
func (r *Reader) addInFlight(views []CapabilityView) {
	looked := 0
	for k := range r.s.tx.Scan(rows.Flights.Prefix(), rows.After(rows.Flights.Prefix())) {
		if looked++; looked > inFlightShown {
			break
		}
		id := rows.ParseAction(k)
		plan, n := id.Plan, id.N
		a := r.s.action(plan, n)
		at := slices.IndexFunc(views, func(v CapabilityView) bool { return v.Capability == a.fixed.Forward.GetCapability() })
		if at < 0 {
			continue
		}
		if len(views[at].InFlight) == inFlightOfOne {
			views[at].Omitted = true
			continue
		}
		views[at].InFlight = append(views[at].InFlight, InFlightView{
			Plan: plan, Action: a.fixed.Id, Number: int(n), Compensation: a.fixed.Compensation.GetCapability(), SinceNs: a.row.SentNs, Attempt: int(a.row.Attempt),
		})
	}
}
