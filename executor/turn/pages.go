package turn

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// PageKey is what a page is about: a later page about the same replaces an earlier one.
type PageKey struct {
	About
	Kind string
}

// Compare orders keys: by plan, action and kind.
func (k PageKey) Compare(other PageKey) int {
	return cmp.Or(k.About.Compare(other.About), cmp.Compare(k.Kind, other.Kind))
}

// KeyOf is the key of a page.
func KeyOf(p api.Page) PageKey {
	return PageKey{About{Plan: p.Plan, Action: p.Action}, p.Kind}
}

// Delivery is a page on its way, or taken and not yet recorded.
type Delivery struct {
	Key   PageKey
	Page  executor.Page
	Hooks []string // that it goes to: its own, then that of operators when no one takes it
	Taken string   // the hook that has taken it; empty: none
	Own   bool     // it is about this host and no row of the state: nothing is recorded of it
	open  bool     // its rounds go on
}

// Pages are the pages of one term on their way to owners. A page is sent until a hook has
// taken it, or until the ledger says that it is settled; what is not recorded as taken is
// sent again in the next term, under the same ID. The zero value has none.
type Pages struct {
	// EscalateNs is the age from which operators get a page that no one takes.
	EscalateNs int64

	deliveries map[PageKey]*Delivery
	rooms      rooms
	done       []*Delivery // taken and not recorded, in order
}

// Round is what one round of a delivery does.
type Round struct {
	Escalated bool     // operators get it from now on, as the last of Hooks
	Hooks     []string // that it is published for
	InNs      int64    // until the next round
}

// Len is how many deliveries there are.
func (p *Pages) Len() int { return len(p.deliveries) }

// At is the delivery of a key; nil: none.
func (p *Pages) At(key PageKey) *Delivery { return p.deliveries[key] }

// All are the deliveries, by key.
func (p *Pages) All() []*Delivery {
	all := make([]*Delivery, 0, len(p.deliveries))
	for _, key := range slices.SortedFunc(maps.Keys(p.deliveries), PageKey.Compare) {
		all = append(all, p.deliveries[key])
	}
	return all
}

// Add takes a page on its way, once for each ID; nil: it is already, or there is no room
// for it. own: it is about this host. An earlier delivery about the same ends and is
// returned too; [Pages.Round] comes next for the new one.
func (p *Pages) Add(page executor.Page, own bool) (begun, replaced *Delivery) {
	key := KeyOf(page.Page)
	old := p.deliveries[key]
	if old != nil && old.Page.ID == page.ID || !p.rooms.fits(page.Hook) {
		return nil, nil
	}
	if old != nil {
		p.forget(old)
	}
	if p.deliveries == nil {
		p.deliveries = map[PageKey]*Delivery{}
	}
	begun = &Delivery{Key: key, Page: page, Hooks: []string{page.Hook}, Own: own, open: true}
	p.deliveries[key] = begun
	p.rooms.enter(page.Hook)
	return begun, old
}

// Round begins a round of a delivery that waits. Its rules know the age of the page alone,
// which a restart does not change.
func (p *Pages) Round(d *Delivery, epochNs int64) (r Round) {
	age := max(epochNs-d.Page.AtNs, 0)
	if age >= p.EscalateNs && len(d.Hooks) == 1 && d.Page.Hook != api.PageOperators {
		d.Page.Escalated, r.Escalated = true, true
		d.Hooks = append(d.Hooks, api.PageOperators)
	}
	r.Hooks, r.InNs = d.Hooks, RoundPause(age)
	if left := p.EscalateNs - age; left > 0 {
		r.InNs = min(r.InNs, left)
	}
	return r
}

// RoundPause is when a page of an age that no one takes is published again, in ns: when it
// is twice as old, at most every RoundMax.
func RoundPause(ageNs int64) int64 { return min(max(ageNs, int64(RoundMin)), int64(RoundMax)) }

// Waits reports whether a delivery is still to be taken.
func (p *Pages) Waits(d *Delivery) bool { return p.deliveries[d.Key] == d && d.Taken == "" }

// Take notes that a hook has taken a delivery; false: it does not wait for that any more.
func (p *Pages) Take(d *Delivery, hook string) bool {
	if !p.Waits(d) {
		return false
	}
	d.Taken = hook
	if d.Own {
		p.forget(d)
	} else {
		p.settle(d)
		p.done = append(p.done, d)
	}
	return true
}

// Drop ends a delivery about this host; nil: there is none of the key.
func (p *Pages) Drop(key PageKey) *Delivery {
	d := p.deliveries[key]
	if d == nil || !d.Own {
		return nil
	}
	p.forget(d)
	return d
}

// Recorded ends the delivery of a key: the ledger says that the page was taken, or that its
// owner has answered. nil: there is none.
func (p *Pages) Recorded(key PageKey) *Delivery {
	d := p.deliveries[key]
	if d == nil || d.Own {
		return nil
	}
	p.forget(d)
	return d
}

// Taken are pages that were taken and are not recorded yet, at most PagedMax, the first
// of them first: for [Inputs].
func (p *Pages) Taken() (paged []executor.Paged) {
	p.done = slices.DeleteFunc(p.done, func(d *Delivery) bool { return p.deliveries[d.Key] != d })
	for _, d := range p.done[:min(len(p.done), PagedMax)] {
		paged = append(paged, executor.Paged{
			Plan: d.Page.Plan, Number: d.Page.Number, Kind: d.Page.Kind, Hook: d.Taken,
		})
	}
	return paged
}

// Settled ends the first n deliveries as Taken gave them: there is nothing to be recorded of
// them any more. more: others were taken since. The lock of by is held.
func (p *Pages) Settled(n int, by Pager) (more bool) {
	for _, d := range p.done[:n] {
		if p.deliveries[d.Key] == d {
			p.forget(d)
			by.Unpage(d)
		}
	}
	p.done = slices.Delete(p.done, 0, n)
	return len(p.done) > 0
}

// Freed reports, once, that pages which were left in the state have room now.
func (p *Pages) Freed() bool {
	free := p.rooms.free
	p.rooms.free = false
	return free
}

// HasRoom is Freed, and leaves it to be reported.
func (p *Pages) HasRoom() bool { return p.rooms.free }

// settle ends the rounds of a delivery.
func (p *Pages) settle(d *Delivery) {
	if d.open {
		d.open = false
		p.rooms.leave(d.Page.Hook)
	}
}

// forget ends a delivery, taken or not.
func (p *Pages) forget(d *Delivery) {
	p.settle(d)
	if p.deliveries[d.Key] == d {
		delete(p.deliveries, d.Key)
	}
}
