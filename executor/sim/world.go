package sim

import (
	"fmt"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

const (
	tenant      = "t"
	loadNs      = 60 * second  // in which plans begin
	healNs      = 150 * second // after which faults have ended
	endNs       = 60 * minute  // after which nothing may be left to do
	stepsMax    = 20_000       // events of a world; more is a turn that never ends
	programsMax = 4096         // compiled texts that a run keeps
)

// Streams of random numbers; a plan's is streamPlan and its number.
const (
	streamFaults uint64 = iota + 1
	streamQueue
	streamNet
	streamHosts
	streamPeople
	streamWorkers
	streamStrikes
	streamEnd
	streamNotary
	streamErasing
	streamEarly
	streamTenant
	streamForger
	streamCuts
	streamDoubt  = 500
	streamKept   = 600
	streamRun    = 700
	streamLast   = 800
	streamTwice  = 850
	streamLeft   = 870
	streamStaged = 900
	streamMoves  = 950
	streamPlan   = 1000
	streamReview = 1 << 18 // and 16 times the number of the plan
	streamScope  = 1 << 19 // and 16 times the number of the plan
	streamHeld   = 1 << 17 // and 16 times the number of the plan
	streamSecond = 1 << 20 // and the number of the agent
	streamAdopt  = 1 << 21 // and the number of the agent
	streamAttach = 1 << 22 // and the number of the agent
	streamIdle   = 1 << 23 // and the number of the plan
)

// world is one run.
type world struct {
	options Options
	faults  Faults
	now     int64
	healed  bool
	named   int  // records of people so far
	over    bool // a guard has found what was lost: the run ends well

	queue                             queue
	ties, net, people, labour, strike *random
	// of no one who serves, and of owners who do not wait
	early, haste *random
	impatience   map[turn.About]bool // they have answered
	forger, cuts *random             // of workers who lie, and of agents who are cut off
	keys         *random             // of owners who ask for new keys
	rekeyed      map[string]bool     // keys of forwards whose undo has got one
	notices      *random             // of those who see effects and report them
	hindsight    *random             // and of those who do so later
	confessions  *random             // of agents who tell late of what happened twice; nil: none does
	denials      *random             // of agents who take a silence for a failure; nil: there are none
	others       *random             // of those who write to what forwards have made
	overwritten  map[string]bool     // keys of forwards whose owner has had it undone all the same

	stream     *stream
	hosts      []*host
	rule       lease
	agents     []*agent
	strays     []stray // what processes did that are not their plan's writer
	provider   *provider
	workers    workers
	check      *checker
	erasing    *erasing
	archive    archive
	programs   *triggers.Cache
	notary     notary
	control    governance
	deliveries deliveries

	settings settings
	steps    int
	hash     uint64
	trace    []Line
	struck   Faults
}

// settings are what a seed decides for a whole world.
type settings struct {
	memoryMax int64
	cascade   executor.CascadeLimits
	json      bool // some writers write JSON
	batch     int  // messages that a turn folds
	ahead     int  // dispatches recorded behind another one
	runs      bool // there is a plan whose undos may go so
	reviews   bool // some actions wait for a verdict
	holds     bool // conditions are held after the commit
	lasts     bool // there is a plan with children that end with an irreversible act
	twice     bool // there is a plan whose commit finds too much, and that is undone instead
	left      bool // there is a plan of doubts that is left open
	stages    bool // plans stage acts, which are delivered after their commit
}

// Run runs one world to its end.
func Run(o Options) Result {
	w := newWorld(o)
	w.populate()
	w.play()
	w.finish()
	return w.result()
}

// play lets everything happen that is due, one event after the other, to the world's end.
func (w *world) play() {
	for !w.over && len(w.queue.events) > 0 && w.steps < stepsMax && w.now < epoch0+endNs {
		e := w.queue.pop()
		w.now = e.at
		w.steps++
		e.after()
	}
}

func newWorld(o Options) *world {
	w := &world{
		options: o, now: epoch0, hash: 14695981039346656037, programs: o.Programs,
		ties: newRandom(o.Seed, streamQueue), net: newRandom(o.Seed, streamNet),
		people: newRandom(o.Seed, streamPeople),
		labour: newRandom(o.Seed, streamWorkers), strike: newRandom(o.Seed, streamStrikes),
		notary: newNotary(o.Seed), control: newGovernance(o.Seed), deliveries: newDeliveries(o.Seed),
	}
	if w.programs == nil {
		w.programs = triggers.NewCache(programsMax)
	}
	r := newRandom(o.Seed, streamFaults)
	w.faults = faultsOf(r)
	w.settings = settings{json: r.percent(10), batch: pick(r, 1, 2, 8, 64)}
	if r.percent(30) {
		w.settings.memoryMax = r.between(100, 900)
	}
	if r.percent(30) {
		w.settings.cascade = executor.CascadeLimits{Depth: uint32(1 + r.below(3)),
			Plan: uint32(1 + r.below(3))}
	}
	run := newRandom(o.Seed, streamRun-1)
	w.settings.ahead, w.settings.runs = pick(run, 15, 15, 3, 1, 0), run.percent(40)
	w.settings.reviews = newRandom(o.Seed, streamReview-1).percent(20)
	w.settings.holds = newRandom(o.Seed, streamRun-5).percent(25)
	w.settings.lasts = newRandom(o.Seed, streamLast-1).percent(15)
	w.settings.left = newRandom(o.Seed, streamLeft-1).percent(15)
	w.settings.stages = Stages(o.Seed)
	hosts := 1
	if w.faults.Has(FaultRivals) || r.percent(15) {
		hosts = 2 + r.below(2)
	}
	if o.Hosts != 0 {
		hosts = min(hosts, o.Hosts)
	}
	w.faults &^= o.Without
	w.erasing = newErasing(o.Seed)
	w.early, w.haste = newRandom(o.Seed, streamEarly), newRandom(o.Seed, streamRun-2)
	w.forger, w.cuts = newRandom(o.Seed, streamForger), newRandom(o.Seed, streamCuts)
	w.keys, w.rekeyed = newRandom(o.Seed, streamRun-3), map[string]bool{}
	w.others, w.overwritten = newRandom(o.Seed, streamRun-4), map[string]bool{}
	w.notices, w.hindsight = newRandom(o.Seed, streamRun-5), newRandom(o.Seed, streamRun-8)
	if confessions := newRandom(o.Seed, streamRun-7); confessions.percent(25) {
		w.confessions = confessions
		w.settings.twice = newRandom(o.Seed, streamTwice-1).percent(40)
	}
	if denials := newRandom(o.Seed, streamRun-6); denials.percent(25) {
		w.denials = denials
	}
	w.impatience = map[turn.About]bool{}
	w.stream = newStream(w)
	w.archive = archive{w: w}
	w.provider = newProvider(w)
	w.workers.init(w)
	w.check = newChecker(w)
	for n := range hosts {
		w.hosts = append(w.hosts, newHost(w, n))
	}
	return w
}

// populate lets everything begin that begins by itself.
func (w *world) populate() {
	w.openPlans()
	w.control.begin(w)
	beginMoves(w)
	for _, h := range w.hosts {
		h.start()
	}
	w.rule.begin(w)
	if !w.options.Alone {
		w.peopleBegin()
		w.erasing.begin(w)
	}
	w.faultsBegin()
	w.after(healNs, w.heal)
}

// after lets f happen in d ns.
func (w *world) after(d int64, f func()) { w.queue.push(w.now+max(d, 0), w.ties.next(), f) }

// chance is true in so many of 100 draws, while a fault is there; it then strikes.
func (w *world) chance(r *random, f Fault, percent int) bool {
	// drawn first: leaving a fault out changes no other
	if hit := r.percent(percent); !hit || !w.faults.Has(f) || w.healed {
		return false
	}
	w.strikes(f)
	return true
}

// strikes notes that a fault has happened.
func (w *world) strikes(f Fault) {
	w.struck |= 1 << f
	if w.options.Seen != nil {
		w.options.Seen.Faults[f.String()]++
	}
}

// point notes where a host or a worker has died.
func (w *world) point(name string) {
	if w.options.Seen != nil {
		w.options.Seen.Points[name]++
	}
}

// mark takes what has happened into the trace hash.
func (w *world) mark(words ...uint64) {
	for _, x := range words {
		w.hash = (w.hash ^ x) * 1099511628211
		w.hash ^= w.hash >> 29
	}
}

func (w *world) markText(text string) {
	for i := range len(text) {
		w.hash = (w.hash ^ uint64(text[i])) * 1099511628211
	}
}

// say adds a line to the trace, if one is kept.
func (w *world) say(actor, format string, args ...any) {
	if w.options.Trace {
		w.trace = append(w.trace,
			Line{AtNs: w.now - epoch0, Actor: actor, Text: fmt.Sprintf(format, args...)})
	}
}

// sayFault adds the line of a fault.
func (w *world) sayFault(f Fault, actor, format string, args ...any) {
	if w.options.Trace {
		w.trace = append(w.trace,
			Line{AtNs: w.now - epoch0, Actor: actor, Text: fmt.Sprintf(format, args...), Fault: f.String()})
	}
}

// halt ends the run: a guard has found what the stream has lost.
func (w *world) halt(actor string, h *ledger.Halted) {
	w.say(actor, "%s", h.Error())
	w.check.halted(h)
}

func (w *world) result() Result {
	halted := ""
	if w.check.guard != nil {
		halted = w.check.guard.Error()
	}
	return Result{
		Seed: w.options.Seed, Faults: w.struck.String(), Plans: w.plansOpened(), Hosts: len(w.hosts),
		Steps: w.steps, Records: w.check.records,
		SpanNs: w.now - epoch0, TraceHash: fmt.Sprintf("%016x", w.hash), Halted: halted,
		Violations: w.check.violations, Trace: w.trace,
	}
}

func (w *world) plansOpened() (n int) {
	for _, a := range w.agents {
		if a.began {
			n++
		}
	}
	return n
}
