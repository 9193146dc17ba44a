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

// Letter is a page on its way, or taken and not yet recorded.
type Letter struct {
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

	letters map[PageKey]*Letter
	rooms   rooms
	done    []*Letter // taken and not recorded, in order
}

// Round is what one round of a letter does.
type Round struct {
	Escalated bool     // operators get it from now on, as the last of Hooks
	Hooks     []string // that it is published for
	InNs      int64    // until the next round
}

// Len is how many letters there are.
func (p *Pages) Len() int { return len(p.letters) }

// At is the letter of a key; nil: none.
func (p *Pages) At(key PageKey) *Letter { return p.letters[key] }

// All are the letters, by key.
func (p *Pages) All() []*Letter {
	all := make([]*Letter, 0, len(p.letters))
	for _, key := range slices.SortedFunc(maps.Keys(p.letters), PageKey.Compare) {
		all = append(all, p.letters[key])
	}
	return all
}

// Add takes a page on its way, once for each ID; nil: it is already, or there is no room
// for it. own: it is about this host. An earlier letter about the same ends and is
// returned too; [Pages.Round] comes next for the new one.
func (p *Pages) Add(page executor.Page, own bool) (begun, replaced *Letter) {
	key := KeyOf(page.Page)
	old := p.letters[key]
	if old != nil && old.Page.ID == page.ID || !p.rooms.fits(page.Hook) {
		return nil, nil
	}
	if old != nil {
		p.forget(old)
	}
	if p.letters == nil {
		p.letters = map[PageKey]*Letter{}
	}
	begun = &Letter{Key: key, Page: page, Hooks: []string{page.Hook}, Own: own, open: true}
	p.letters[key] = begun
	p.rooms.enter(page.Hook)
	return begun, old
}

// Round begins a round of a letter that waits. Its rules know the age of the page alone,
// which a restart does not change.
func (p *Pages) Round(l *Letter, epochNs int64) (r Round) {
	age := max(epochNs-l.Page.AtNs, 0)
	if age >= p.EscalateNs && len(l.Hooks) == 1 && l.Page.Hook != api.PageOperators {
		l.Page.Escalated, r.Escalated = true, true
		l.Hooks = append(l.Hooks, api.PageOperators)
	}
	r.Hooks, r.InNs = l.Hooks, RoundPause(age)
	if left := p.EscalateNs - age; left > 0 {
		r.InNs = min(r.InNs, left)
	}
	return r
}

// RoundPause is when a page of an age that no one takes is published again, in ns: when it
// is twice as old, at most every RoundMax.
func RoundPause(ageNs int64) int64 { return min(max(ageNs, int64(RoundMin)), int64(RoundMax)) }

// Waits reports whether a letter is still to be taken.
func (p *Pages) Waits(l *Letter) bool { return p.letters[l.Key] == l && l.Taken == "" }

// Take notes that a hook has taken a letter; false: it does not wait for that any more.
func (p *Pages) Take(l *Letter, hook string) bool {
	if !p.Waits(l) {
		return false
	}
	l.Taken = hook
	if l.Own {
		p.forget(l)
	} else {
		p.settle(l)
		p.done = append(p.done, l)
	}
	return true
}

// Drop ends a letter about this host; nil: there is none of the key.
func (p *Pages) Drop(key PageKey) *Letter {
	l := p.letters[key]
	if l == nil || !l.Own {
		return nil
	}
	p.forget(l)
	return l
}

// Recorded ends the letter of a key: the ledger says that the page was taken, or that its
// owner has answered. nil: there is none.
func (p *Pages) Recorded(key PageKey) *Letter {
	l := p.letters[key]
	if l == nil || l.Own {
		return nil
	}
	p.forget(l)
	return l
}

// Taken are pages that were taken and are not recorded yet, at most PagedMax, the first
// of them first: for [Inputs].
func (p *Pages) Taken() (paged []executor.Paged) {
	p.done = slices.DeleteFunc(p.done, func(l *Letter) bool { return p.letters[l.Key] != l })
	for _, l := range p.done[:min(len(p.done), PagedMax)] {
		paged = append(paged, executor.Paged{
			Plan: l.Page.Plan, Number: l.Page.Number, Kind: l.Page.Kind, Hook: l.Taken,
		})
	}
	return paged
}

// Settled ends the first n letters as Taken gave them: there is nothing to be recorded of
// them any more. more: others were taken since. The lock of by is held.
func (p *Pages) Settled(n int, by Pager) (more bool) {
	for _, l := range p.done[:n] {
		if p.letters[l.Key] == l {
			p.forget(l)
			by.Unpage(l)
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

// settle ends the rounds of a letter.
func (p *Pages) settle(l *Letter) {
	if l.open {
		l.open = false
		p.rooms.leave(l.Page.Hook)
	}
}

// forget ends a letter, taken or not.
func (p *Pages) forget(l *Letter) {
	p.settle(l)
	if p.letters[l.Key] == l {
		delete(p.letters, l.Key)
	}
}
