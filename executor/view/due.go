package view

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// dueShown bounds the entries of one answer.
const dueShown = 100

// Upcoming returns what falls due next, at most limit (1..100, default 20) entries.
func (r *Reader) Upcoming(limit int) api.Upcoming {
	if limit <= 0 || limit > dueShown {
		limit = 20
	}
	shown := api.Upcoming{TimeNs: r.nowNs(), Due: []api.Due{}, Oldest: []api.Plan{}}
	future := rows.DueFrom(uint64(shown.TimeNs))
	for k := range r.tx.Scan(future, rows.After(rows.Due.Prefix())) {
		if len(shown.Due) == limit {
			break
		}
		if due, ok := r.dueView(bytes.Clone(k)); ok {
			shown.Due = append(shown.Due, due)
		}
	}
	for _, phase := range []rowspb.Phase{rowspb.Phase_PHASE_OPEN, rowspb.Phase_PHASE_COMMITTING,
		rowspb.Phase_PHASE_UNWINDING, rowspb.Phase_PHASE_QUARANTINED} {
		if id := r.oldest(rows.ListPrefix(rows.ListState, rows.PhaseValue(phase))); id != "" {
			shown.Oldest = append(shown.Oldest, planView(r.core.Plan(id)))
		}
	}
	return shown
}

// dueView shows one entry; ok is false for one whose plan or lease is gone.
func (r *Reader) dueView(key []byte) (shown api.Due, ok bool) {
	shown.Ns = int64(binary.BigEndian.Uint64(key[1:]))
	var p *executor.Plan
	var a *executor.Action
	if key[9] == rows.DueNode {
		l := r.core.Member(key[10:])
		if l == nil {
			return shown, false
		}
		p, a = l.Plan(), l.Action()
		shown.Lease = l.Row.Name
		shown.Shared = max(rows.Nodes.Find(r.tx, key[10:]).Leases, 1) - 1
	} else {
		ref := rows.ParseInstant(key).Lease
		if p = r.core.Plan(ref.Plan); p == nil {
			return shown, false
		}
		if shown.Lease = ref.Name; ref.N != 0 {
			a = p.Action(ref.N)
		}
	}
	shown.Kind = map[byte]string{rows.DueRetry: "retry", rows.DueWindow: "window",
		rows.DueAsk: "ask"}[key[9]]
	if shown.Kind == "" {
		shown.Kind = "lease"
	}
	shown.Plan, shown.Label = p.ID, p.Row.Declared.GetLabel()
	if a != nil {
		if key[9] == rows.DueAsk && a.CannotAsk() != "" {
			return shown, false // it never is
		}
		shown.Action = a.Fixed.Id
		if key[9] == rows.DueRetry && a.Row.Undo == rowspb.Undo_UNDO_SETTLING {
			shown.Kind = "settle"
		}
	}
	return shown, true
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
func (r *Reader) Capabilities() api.CapabilitiesAnswer {
	answer := api.CapabilitiesAnswer{Capabilities: []api.Capability{}}
	list := append(rows.Orders.Prefix(), rows.ListCapability)
	for from := list; from != nil; {
		next := from
		from = nil
		for k := range r.tx.Scan(next, rows.After(list)) {
			if len(answer.Capabilities) == capabilitiesShown {
				answer.Omitted = true
				break
			}
			end := bytes.IndexByte(k, 0)
			answer.Capabilities = append(answer.Capabilities,
				r.capability(string(k[2:end]), string(k[end+1+rows.ListedPlace:])))
			from = rows.After(k[:end+1])
			break
		}
	}
	r.addInFlight(answer.Capabilities)
	return answer
}

func (r *Reader) capability(name, latest string) api.Capability {
	shown := api.Capability{Capability: name, Latest: latest,
		LatestNs: r.core.Plan(latest).Row.OpenedNs,
		Workers:  []api.Seen{}, InFlight: []api.InFlight{}}
	for _, back := range attemptsBack {
		if r.addWorkers(&shown, max(r.Applied(), back)-back) {
			break
		}
	}
	slices.SortFunc(shown.Workers, func(a, b api.Seen) int { return cmp.Compare(a.Worker, b.Worker) })
	return shown
}

// addWorkers adds who has answered attempts that were dispatched at or after a sequence,
// and reports whether there were attempts.
func (r *Reader) addWorkers(shown *api.Capability, from uint64) bool {
	prefix := rows.Undone.WithinSized(shown.Capability)
	seen := 0
	for k := range r.tx.Scan(binary.BigEndian.AppendUint64(prefix, from), rows.After(prefix)) {
		if seen++; seen > attemptsShown {
			break
		}
		v, _ := r.tx.Get(k)
		row, _ := rows.Attempts.LoadKey(r.tx, append(rows.Attempts.Prefix(), v...))
		if row.Worker == "" {
			continue
		}
		at := slices.IndexFunc(shown.Workers, func(w api.Seen) bool { return w.Worker == row.Worker })
		if at < 0 {
			at, shown.Workers = len(shown.Workers), append(shown.Workers, api.Seen{Worker: row.Worker})
		}
		w := &shown.Workers[at]
		w.LastNs, w.WorkNs, w.Attempts = max(w.LastNs, row.EndedNs), w.WorkNs+row.Timing.GetWorkNs(),
			w.Attempts+1
		if row.State == "failed" || row.State == "in_doubt" {
			w.Failed++
		}
	}
	return seen > 0
}

// addInFlight adds the commands in flight to the capabilities whose undo they are.
func (r *Reader) addInFlight(views []api.Capability) {
	looked := 0
	for k := range r.tx.Scan(rows.Flights.Prefix(), rows.After(rows.Flights.Prefix())) {
		if looked++; looked > inFlightShown {
			break
		}
		id := rows.ParseAction(k)
		a := r.core.Action(id)
		at := slices.IndexFunc(views, func(v api.Capability) bool {
			return v.Capability == a.Fixed.Forward.GetCapability()
		})
		if at < 0 {
			continue
		}
		if len(views[at].InFlight) == inFlightOfOne {
			views[at].Omitted = true
			continue
		}
		views[at].InFlight = append(views[at].InFlight, api.InFlight{
			Plan: id.Plan, Action: a.Fixed.Id, Number: int(id.N),
			Compensation: a.Fixed.Compensation.GetCapability(), SinceNs: a.Row.SentNs,
			Attempt: int(a.Row.Attempt),
		})
	}
}
