package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// provider is the outside world: what forwards have made and undos have taken back.
// It is the truth that the ledger is held against.
type provider struct {
	w       *world
	effects []*effect
	forward map[string][]*effect // by the key of the forward
	byRef   map[string]*effect
	barred  map[string]int64 // keys of forwards whose undo was here first, and when
	keys    map[string]*keyed
}

// effect is one thing that a forward has made.
type effect struct {
	ref     string
	action  *actionSpec
	extra   bool // the forward made it once more
	stands  bool
	madeNs  int64
	goneNs  int64
	undone  int    // times that an undo acted on it
	by      string // the key that did first
	byName  string // the action that it was about
	named   bool   // and that call named the effect
	byOwner bool   // its owner removed it by other means
	renamed bool   // an operator has called another one the effect of the action
	unseen  bool   // and has not seen this one
	told    bool   // an operator has reported it beside another one, and that counts
	kept    bool   // and is of a plan that was committed by then
	version int    // 1 as its forward has left it; each write of someone else makes it one more
}

// keyed is what a provider remembers of the key of an undo.
type keyed struct {
	lastNs int64
	acts   int // effects that calls under this key have undone
}

func newProvider(w *world) *provider {
	return &provider{w: w, forward: map[string][]*effect{}, byRef: map[string]*effect{},
		barred: map[string]int64{}, keys: map[string]*keyed{}}
}

// do makes the effect of a forward, twice where the world says so. False: an undo was
// here first, and the forward is refused, where the contract says so (E3).
func (p *provider) do(a *actionSpec, twice bool) (ref string, ok bool) {
	if _, late := p.barred[a.key]; late && a.pair.forward.Late == pb.Late_LATE_REFUSED {
		p.w.say("provider", "refuses the forward of %s %s: it was undone before", a.plan.id, a.id)
		return "", false
	}
	for _, e := range p.forward[a.key] {
		if !e.extra { // undone since, perhaps
			return e.ref, true // it remembers keys: another process of the agent calls it once more
		}
	}
	ref = p.make(a, false).ref
	if twice {
		p.make(a, true)
	}
	return ref, true
}

func (p *provider) make(a *actionSpec, extra bool) *effect {
	e := &effect{ref: fmt.Sprintf("r%d", len(p.effects)+1), action: a, extra: extra, stands: true,
		madeNs: p.w.now, version: 1}
	p.shared(e)
	p.noticed(e)
	p.effects = append(p.effects, e)
	p.forward[a.key] = append(p.forward[a.key], e)
	p.byRef[e.ref] = e
	p.w.say("provider", "%s %s has made %s", a.plan.id, a.id, e.ref)
	p.w.mark(uint64(len(p.effects)), uint64(p.w.now))
	return e
}

// target is what the arguments of an undo or of a question name.
type target struct {
	Ref        string `json:"ref"`
	ForwardKey string `json:"fk"`
	External   string `json:"xref"`
	IfMatch    int    `json:"if_match"` // 0: whatever it is

	// What is not of the action: of the first action of the plan, and the plan as its input says.
	First string `json:"first"`
	Plan  string `json:"plan"`
}

// readsOthers holds what a call reads of other actions to what happened: it may be told nothing of
// the first action of its plan, and never what another one has made.
func (p *provider) readsOthers(c api.Command) {
	t := readTarget(c.Arguments)
	plan, _, _ := strings.Cut(c.Plan, "~")
	if t.Plan != "" && t.Plan != plan {
		p.w.check.fail("I30", 0, "plan %s was opened for %s", c.Plan, t.Plan)
	}
	if t.First == "" {
		return
	}
	if e := p.byRef[t.First]; e == nil || e.action.plan.id != plan || e.action.id != "a" {
		p.w.check.fail("I30", 0, "action %s of plan %s is told that %s is of its first action", c.Action,
			c.Plan, t.First)
	}
}

func readTarget(arguments json.RawMessage) (t target) {
	if err := json.Unmarshal(arguments, &t); err != nil {
		panic("sim: arguments that are no object: " + err.Error())
	}
	return t
}

// compared reports whether the undo of an action is asked first whether it is unchanged.
func (a *actionSpec) compared() bool {
	return a != nil && a.pair.compensation.GetUnchanged() != ""
}

// shared lets someone else write to an effect, now and then, while it is there.
func (p *provider) shared(e *effect) {
	if !e.action.compared() || !p.w.others.percent(60) {
		return
	}
	for range 1 + p.w.others.below(2) {
		p.w.after(p.w.others.between(millisecond, 90*second), func() {
			if e.stands && !p.w.healed {
				e.version++
				p.w.say("provider", "someone else has written to %s: it is version %d", e.ref, e.version)
			}
		})
	}
}

// noticed lets an operator tell of an effect, now and then, whatever its agent knows of it, and
// another one later, when its plan is over, perhaps.
func (p *provider) noticed(e *effect) {
	if e.extra {
		return
	}
	if p.w.notices.percent(8) {
		p.notice(p.w.notices, e, millisecond, 60*second)
	}
	if p.w.hindsight.percent(8) {
		p.notice(p.w.hindsight, e, 30*second, 20*minute)
	}
}

// notice lets an operator tell of an effect between two times from now: by the name of the first
// that is there, or of another one, with the others or without. A second operator says the same
// where the plan asks for that.
func (p *provider) notice(r *random, e *effect, from, to int64) {
	silent, turned, pause := r.percent(20), r.percent(40), r.between(millisecond, 5*second)
	p.w.after(r.between(from, to), func() {
		if !e.stands || p.w.healed {
			return
		}
		refs := slices.Clone(p.standing(e.action.key))
		if turned && len(refs) > 1 {
			slices.Reverse(refs)
			e.renamed, e.unseen = true, e.unseen || silent
		}
		if silent {
			refs = refs[:1]
		}
		if own := p.w.workers.spec(e.action.plan.id, e.action.id); own != nil && own != e.action {
			own.mistaken = true
		}
		plan := e.action.plan.id
		if _, is := p.w.check.audit.ledger.Plan(plan + "~1"); is { // as they are told to
			plan += "~1"
		}
		for i, name := range []string{"ann", "ben"} {
			p.w.after(int64(i)*pause, func() {
				p.w.tell(operator(name), &pb.Record{Plan: plan, Action: e.action.id,
					Kind: &pb.Record_EffectReported{EffectReported: &pb.EffectReported{ExternalRef: refs[0],
						Duplicates: refs[1:], Reason: "seen", Actor: name}}})
			})
			if !e.action.plan.opened.GetSecondApprover() {
				return
			}
		}
	})
}

// told takes note of what an operator's report that counts has named. With a second approver it may
// count for nothing yet.
func (p *provider) told(k *pb.EffectReported, committed bool) {
	for _, ref := range append([]string{k.ExternalRef}, k.Duplicates...) {
		if e := p.byRef[ref]; e != nil && !e.action.plan.opened.GetSecondApprover() {
			beside := ref != k.ExternalRef
			e.unseen, e.told = false, e.told || beside
			e.kept = e.kept || beside && committed && e.stands
		}
	}
}

// refuses reports whether an undo is conditional on another version than the one that is there:
// someone else has written to it since.
func (p *provider) refuses(c api.Command) (e *effect, refused bool) {
	t := readTarget(c.Arguments)
	e = p.find(t)
	if k := p.keys[c.Key]; k != nil && k.lastNs != 0 {
		return e, false // it says what it said
	}
	if e == nil || !e.stands || !e.action.compared() {
		return e, false
	}
	if t.IfMatch == 0 { // it bars what no one had found, or its owner wants it whatever is there
		return e, e.version > 1 && !p.overwrites(c, e)
	}
	return e, t.IfMatch != e.version
}

// overwrites reports whether an owner wants an effect undone whatever someone else has written to
// it.
func (p *provider) overwrites(c api.Command, e *effect) bool {
	return p.wanted(p.w.overwritten, c, e)
}

// wanted reports whether an owner has wanted something of an undo: of the action whose effect it
// is, or of that to which an operator has told the effect.
func (p *provider) wanted(by map[string]bool, c api.Command, e *effect) bool {
	told := p.w.workers.spec(c.Plan, c.Action)
	return by[e.action.key] || told != nil && by[told.key]
}

// find is the effect that is meant: the one named, or the first of the forward.
func (p *provider) find(t target) *effect {
	if e := p.byRef[t.External]; e != nil {
		return e
	}
	if e := p.byRef[t.Ref]; e != nil {
		return e
	}
	if list := p.forward[t.ForwardKey]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// copiesMax is how long copies of a command may be under way, and how far back a clock
// may go: after a jump, epochs do not go on for as long.
const copiesMax = 100 * second

// memory is for how long the provider keeps a key, ns: what the contract says, and
// as long as copies may be under way; 0: for ever.
func (p *provider) memory(a *actionSpec) int64 {
	if a == nil || a.pair.compensation.DedupeNs == 0 {
		return 0
	}
	return a.pair.compensation.DedupeNs + copiesMax
}

// undo takes an effect back under a key. found is false when there was nothing: then
// the forward is barred from now on.
func (p *provider) undo(c api.Command, spec *actionSpec) (found bool) {
	t := readTarget(c.Arguments)
	k := p.keys[c.Key]
	if k == nil {
		k = &keyed{}
		p.keys[c.Key] = k
	}
	keep := p.memory(spec)
	if keep != 0 {
		p.w.strikes(FaultForgetful)
	}
	if k.lastNs != 0 && (keep == 0 || p.w.now-k.lastNs < keep) {
		p.w.say("provider", "knows key %.6s already", c.Key)
		return true
	}
	if k.lastNs != 0 {
		p.w.sayFault(FaultForgetful, "provider", "has forgotten key %.6s", c.Key)
	}
	e := p.find(t)
	if e == nil {
		p.barred[t.ForwardKey] = p.w.now
		p.w.say("provider", "has nothing of %s %s to undo", c.Plan, c.Action)
		return false
	}
	k.lastNs = p.w.now
	p.act(e, k, c)
	return true
}

// act undoes one effect and counts it.
func (p *provider) act(e *effect, k *keyed, c api.Command) {
	switch {
	case !e.stands && e.byOwner:
	case !e.stands && e.by != c.Key && p.wanted(p.w.rekeyed, c, e):
		p.w.say("provider", "%s of %s %s is undone under a new key, as its owner wanted", e.ref, c.Plan,
			c.Action)
	case !e.stands && e.by != c.Key:
		named := e.named && readTarget(c.Arguments).External == e.ref
		if e.byName == c.Action || named { // otherwise a duty and a blind undo have met
			p.w.check.fail("E2", 0, "%s of plan %s, action %s is undone under key %s and again under %s",
				e.ref, c.Plan, c.Action, e.by, c.Key)
		}
	case !e.stands:
		p.w.check.fail("E2", 0, "%s of plan %s, action %s is undone twice under key %s: the provider "+
			"had forgotten it", e.ref, c.Plan, c.Action, c.Key)
	default:
		if e.version > 1 && !p.overwrites(c, e) {
			p.w.check.fail("I20", 0, "%s of plan %s, action %s is undone over what someone else has written",
				e.ref, c.Plan, c.Action)
		}
		e.stands, e.goneNs, e.by, e.byName = false, p.w.now, c.Key, c.Action
		e.named = readTarget(c.Arguments).External == e.ref
		e.undone++
		k.acts++
		p.w.say("provider", "%s of %s %s is undone under key %.6s", e.ref, c.Plan, c.Action, c.Key)
		p.w.mark(uint64(p.w.now), uint64(k.acts))
	}
}

// standing lists the effects of a forward that are still there.
func (p *provider) standing(key string) (refs []string) {
	for _, e := range p.forward[key] {
		if e.stands {
			refs = append(refs, e.ref)
		}
	}
	return refs
}

// remove is what an owner does by other means.
func (p *provider) remove(a *actionSpec) {
	for _, e := range p.forward[a.key] {
		if e.stands {
			e.stands, e.goneNs, e.byOwner = false, p.w.now, true
		}
	}
	p.barred[a.key] = p.w.now
}
