package audit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/RaduBerinde/btreemap"

	"github.com/sagenbaum/sagenbaum/triggers"
)

// listing lists a plan with declared conditions in force by what could turn one of them: a fact,
// a prefix of facts, or anyFact.
type listing struct{ key, plan string }

// anyFact lists the plans with a condition that no answer has told yet what it depends on, or that
// is true already: any fact may have them asked. It is the key of no fact.
const anyFact = ""

func newListings() *btreemap.BTreeMap[listing, struct{}] {
	return btreemap.New[listing, struct{}](32, func(a, b listing) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.plan, b.plan))
	})
}

// noteAsking keeps the lists of the plans that have declared conditions in force: a fact is of no
// interest to any other, and to these only where they wait for it. Of committed plans there may be
// many more.
func (b *book) noteAsking(p *plan) {
	asks := len(byName(p.leases)) > 0 || slices.ContainsFunc(p.actions,
		func(a *action) bool { return len(byName(a.leases)) > 0 })
	if p.holdsLeases() && asks {
		b.list(p)
	} else {
		b.listAs(p, nil)
		delete(b.asking, p.id)
	}
	noteReads(b, p)
}

// list lists a plan by what its conditions wait for, and by nothing else.
func (b *book) list(p *plan) {
	keys := []string{}
	add := func(l *lease) { keys = append(keys, l.turnedBy(b.programs)...) }
	for _, l := range p.leases {
		add(l)
	}
	for _, a := range p.actions {
		for _, l := range a.leases {
			add(l)
		}
	}
	slices.Sort(keys)
	b.listAs(p, slices.Compact(keys))
}

// listMore lists a plan that asks also by what one of its leases waits for now.
func (b *book) listMore(p *plan, l *lease) {
	if !b.asks(p) {
		return
	}
	keys := b.asking[p.id]
	for _, key := range l.turnedBy(b.programs) {
		if at, known := slices.BinarySearch(keys, key); !known {
			keys = slices.Insert(slices.Clone(keys), at, key)
		}
	}
	b.listAs(p, keys)
}

func (b *book) listAs(p *plan, keys []string) {
	had := b.asking[p.id]
	b.asking[p.id] = keys
	if slices.Equal(had, keys) {
		return
	}
	for _, key := range had {
		if _, still := slices.BinarySearch(keys, key); !still {
			b.listings.Delete(listing{key, p.id})
		}
	}
	for _, key := range keys {
		if _, known := slices.BinarySearch(had, key); !known {
			b.listings.ReplaceOrInsert(listing{key, p.id}, struct{}{})
		}
	}
}

// turnedBy are the facts, and prefixes of others, of which a change has a lease asked: see look.
func (l *lease) turnedBy(programs *triggers.Cache) []string {
	if l.text == "" {
		return nil
	}
	switch condition, err := programs.Condition(l.text); {
	case err != nil: // it waits for ever
		return nil
	case l.joined || condition.ReadsClock():
		return l.watched
	}
	return []string{anyFact}
}

// askers are the plans with conditions in force that a fact may turn.
func (s *store) askers(fact string) (plans []string) {
	of := func(key string) {
		for l := range s.listings.Ascend(btreemap.GE(listing{key: key}), btreemap.Max[listing]()) {
			if l.key != key {
				return
			}
			plans = append(plans, l.plan)
		}
	}
	of(anyFact)
	of(fact)
	prefixes := btreemap.GE(listing{key: triggers.PrefixKey("")})
	for l := range s.listings.Ascend(prefixes, btreemap.Max[listing]()) {
		if _, any := triggers.PrefixOf(l.key); any {
			for n := range len(fact) + 1 {
				of(triggers.PrefixKey(fact[:n]))
			}
		}
		break
	}
	return plans
}

// lookFact looks at every lease that may read a fact that has changed.
func (b *book) lookFact(key string) {
	ids := append(b.askers(key), b.watchers(key)...)
	slices.Sort(ids)
	had := answers{}
	for _, id := range slices.Compact(ids) {
		p, listed := b.plan(id), b.asking[id]
		for _, l := range byName(p.leases) {
			b.lookWith(p, nil, l, key, had)
		}
		for _, a := range p.actions {
			for _, l := range byName(a.leases) {
				b.lookWith(p, a, l, key, had)
			}
		}
		if now := b.asking[id]; len(now) > 0 && (now[0] == anyFact || !slices.Equal(now, listed)) {
			b.list(p)
		}
		noteReads(b, p)
	}
}

// answers are those of conditions that read facts alone, at one change of a fact: many plans have
// the same condition, and it is asked once.
type answers map[question]answer

type question struct {
	text  string
	exact bool
	ns    int64
}

// answer is a result with what the next one depends on.
type answer struct {
	triggers.Result
	watched []string
}

func (had answers) of(b *book, p *plan, a *action, l *lease, c *triggers.Condition) answer {
	q := question{l.text, l.exact, l.asOf(b.now)}
	if known, ok := had[q]; ok {
		return known
	}
	h := c.Hold(p.scope(a, l))
	result := h.Evaluate(q.ns, factView{b})
	new := answer{result, h.Watched(result, b.now, factView{b})}
	if had != nil && c.ReadsFactsAlone() {
		had[q] = new
	}
	return new
}
