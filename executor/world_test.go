package executor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/audit"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// world is a ledger, a state that folds it and a worker pool, all driven by the
// test: nothing happens unless a method is called.
type world struct {
	t     *testing.T
	kv    *rows.MemoryKV
	state *State
	log   []ledger.Message
	// programs has what is compiled, for its states and its readers.
	programs *triggers.Cache
	now      int64
	// worker answers a command; nil means done.
	worker func(Command) *api.Reply
	calls  []string // "capability#attempt" in order of dispatch
	undone []string // actions whose undo a worker did, in order
	order  OrderCheck
	hold   bool // the clock guard holds
	limits CascadeLimits

	memoryMax int64        // capacity of working memory
	recalls   []string     // what the archive was asked for, in order
	lost      func() error // why the archive does not answer; nil: it does

	audit    *audit.Ledger // the second fold of the same messages
	audited  int           // messages that it has
	unserved []Answer      // of commands that nobody takes, as a host gives them again and again
	deciding bool          // what is appended is what Decide has proposed
	ahead    int           // dispatches that go behind another one
	held     []Command     // that were recorded ahead
	early    []string      // that were sent before they counted
}

const second = int64(time.Second)

var epoch0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, triggers.NewCache(ExpressionsMax))
}

// newWorldWith shares what is compiled between many worlds.
func newWorldWith(t *testing.T, programs *triggers.Cache) *world {
	t.Helper()
	w := &world{t: t, kv: rows.NewMemoryKV(), now: epoch0, programs: programs, audit: audit.NewWith("t", programs)}
	w.state = OpenWith(w.kv, "t", w, programs)
	w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}, &pb.Record{
		Term: 1, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h1", FoldVersion: FoldVersion}}})
	return w
}

// worldOf is the world behind a ledger.
func worldOf(t *testing.T, programs *triggers.Cache, log []ledger.Message) *world {
	t.Helper()
	w := &world{t: t, kv: rows.NewMemoryKV(), programs: programs, audit: audit.NewWith("t", programs)}
	w.state = OpenWith(w.kv, "t", w, programs)
	for _, m := range log {
		w.now = m.StampNs
		w.raw(m.Subject, m.ContentType, m.Data)
	}
	return w
}

// append stores one commit and folds it; it returns the results of its records.
func (w *world) append(source ledger.Source, records ...*pb.Record) []Result {
	w.t.Helper()
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		w.t.Fatal(err)
	}
	if n := len(w.log); source.Class == ledger.ClassFact && n > 0 && w.log[n-1].StampNs == w.now {
		w.now++ // as on a server: no two messages have one stamp
	}
	return w.raw(source.Subject(), "", data)
}

func (w *world) raw(subject, contentType string, data []byte) []Result {
	w.t.Helper()
	m := ledger.Message{Sequence: uint64(len(w.log) + 1), StampNs: w.now, Subject: subject, ContentType: contentType,
		Data: data}
	w.log = append(w.log, m)
	entries, err := ledger.Decode("t", m)
	if err != nil {
		w.t.Fatal(err)
	}
	var results []Result
	for _, e := range entries {
		broken := w.order.Check(w.state, e)
		r := w.state.Apply(e)
		results = append(results, r)
		if r.Verdict != Effective {
			continue
		}
		if w.order.Count(w.state, e); broken != nil {
			w.t.Fatal(broken)
		}
	}
	w.state.Flush()
	if err := CheckKept(w.state, w); err != nil {
		w.t.Fatal(err)
	}
	if err := CheckRows(w.t, w.kv); err != nil {
		w.t.Fatal(err)
	}
	if w.audit == nil {
		return results
	}
	for ; w.audited < len(w.log)-1; w.audited++ { // what a broken fold has left out
		w.audit.Add(w.log[w.audited])
	}
	w.audited++
	if err := Follow(w.audit, w.state, m, results, w.deciding); err != nil {
		w.t.Fatal(err)
	}
	return results
}

// foldMessage folds one message and flushes.
func foldMessage(t testing.TB, s *State, m ledger.Message) []Result {
	t.Helper()
	entries, err := ledger.Decode("t", m)
	if err != nil {
		t.Fatal(err)
	}
	var results []Result
	for _, e := range entries {
		results = append(results, s.Apply(e))
	}
	s.Flush()
	return results
}

// agent appends records of agent a1.
func (w *world) agent(plan string, records ...*pb.Record) []Result {
	w.t.Helper()
	for _, r := range records {
		r.Plan = plan
	}
	return w.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "a1", Plan: plan}, records...)
}

func (w *world) must(results []Result) {
	w.t.Helper()
	for i, r := range results {
		if r.Verdict != Effective {
			w.t.Fatalf("record %d: %+v", i, r)
		}
	}
}

func opened(deadlineNs int64, triggers ...*pb.Trigger) *pb.Record {
	return &pb.Record{Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{Label: "test", DeadlineNs: deadlineNs,
		Triggers: triggers}}}
}

// openedUnder is the opening of a child.
func openedUnder(parent string) *pb.Record {
	r := opened(0)
	r.GetPlanOpened().ParentPlan = parent
	return r
}

// accepting is the opening of a plan that is committed whatever is in doubt.
func accepting(r *pb.Record) *pb.Record {
	r.GetPlanOpened().DoubtAtCommit = pb.DoubtAtCommit_DOUBT_AT_COMMIT_ACCEPT
	return r
}

// pair registers a compensable action whose inverse is undo.<id>.
func pair(id string, change ...func(*pb.ForwardRegistered, *pb.CompensationRegistered)) []*pb.Record {
	f := &pb.ForwardRegistered{Capability: "do." + id, Class: pb.Class_CLASS_COMPENSABLE, Late: pb.Late_LATE_NEVER,
		GraceNs: graceOfTests}
	c := &pb.CompensationRegistered{Capability: "undo." + id, Attempts: 2, BackoffNs: second}
	for _, f2 := range change {
		f2(f, c)
	}
	return []*pb.Record{
		{Action: id, Kind: &pb.Record_ForwardRegistered{ForwardRegistered: f},
			Payload: &pb.Payload{Input: []byte(`{"id":"` + id + `"}`)}},
		{Action: id, Kind: &pb.Record_CompensationRegistered{CompensationRegistered: c}},
	}
}

// graceOfTests is the grace of the forwards of most tests, in ns: those are not about
// what lands late.
const graceOfTests = int64(1e6)

// undoKey is the key of the undo of an action of plan p.
func undoKey(id string) string { return ledger.Key("t", "p", id, ledger.PurposeUndo) }

func completed(id string) *pb.Record {
	return &pb.Record{Action: id, Payload: &pb.Payload{Output: []byte(`{"ref":"` + id + `"}`)},
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}}
}

func failedForward(id string) *pb.Record {
	return &pb.Record{Action: id, Kind: &pb.Record_ForwardFailed{ForwardFailed: &pb.ForwardFailed{Message: "no"}}}
}

func inDoubt(id string) *pb.Record {
	return &pb.Record{Action: id, Kind: &pb.Record_ForwardInDoubt{ForwardInDoubt: &pb.ForwardInDoubt{Message: "timeout"}}}
}

func planFailed() *pb.Record {
	return &pb.Record{Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "step failed"}}}
}

func planCommitted() *pb.Record {
	return &pb.Record{Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}}
}

// do registers and completes actions one after the other.
func (w *world) do(plan string, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		w.must(w.agent(plan, pair(id)...))
		w.must(w.agent(plan, completed(id)))
	}
}

// turn decides, appends, folds and lets workers answer, until nothing is left
// to do at this instant; answers are what workers have said before.
func (w *world) turn(answers ...Answer) {
	w.t.Helper()
	for range 10_000 {
		answers = append(answers, w.workAll(w.state.Commands())...)
		gone := func(a Answer) bool { return !w.state.Awaits(a) }
		answers, w.unserved = slices.DeleteFunc(answers, gone), slices.DeleteFunc(w.unserved, gone)
		records := w.decide(slices.Concat(answers, w.unserved))
		if len(records) == 0 {
			if next, ok := w.settling(); ok {
				w.now = next
				continue
			}
			if w.state.HasWork() && !w.hold {
				w.t.Error("nothing is decided, and a plan is on the list of those that have something to do")
			}
			return
		}
		w.deciding = true
		w.must(w.append(ledger.Source{Tenant: "t", Class: ledger.ClassExecutor}, records...))
		w.deciding = false
	}
	w.t.Fatal("decisions never end")
}

// workAll has workers answer commands, and those that were recorded behind one that is done.
func (w *world) workAll(commands []Command) (answers []Answer) {
	for len(commands) > 0 {
		c := commands[0]
		commands = commands[1:]
		if c.Behind != "" {
			w.held = append(w.held, c)
			continue
		}
		w.held = slices.DeleteFunc(w.held, func(x Command) bool { return x.Plan == c.Plan && x.Action == c.Action })
		name := fmt.Sprintf("%s/%s %s#%d", c.Plan, c.Action, c.Purpose, c.Attempt)
		if i := slices.Index(w.early, name); i >= 0 && c.UntilNs == 0 {
			w.early = slices.Delete(w.early, i, i+1)
			continue
		}
		if c.UntilNs != 0 {
			w.early = append(w.early, name)
		}
		answer := w.work(c)
		if answer == nil {
			continue
		}
		answers = append(answers, *answer)
		i := slices.IndexFunc(w.held, func(x Command) bool { return x.Plan == c.Plan && x.Behind == c.Action })
		for _, x := range commands { // it may be known only now
			if i < 0 && x.Plan == c.Plan && x.Behind == c.Action {
				w.held = append(w.held, x)
				i = len(w.held) - 1
			}
		}
		if i < 0 || answer.Reply == nil || answer.Reply.Status != api.StatusDone {
			continue
		}
		next := w.held[i]
		w.held = slices.Delete(w.held, i, i+1)
		if commands = slices.DeleteFunc(commands, func(x Command) bool {
			return x.Behind != "" && x.Plan == next.Plan && x.Action == next.Action
		}); w.state.Expected(next.Plan, next.Number, next.Purpose, next.Attempt) {
			next.Behind = ""
			commands = append(commands, next)
		}
	}
	return answers
}

// settling is when the next action is done with its grace, where only that of tests is
// waited for.
func (w *world) settling() (ns int64, ok bool) {
	for k := range w.kv.Scan(rows.Due.Prefix(), rows.After(rows.Due.Prefix())) {
		if k[9] != rows.DueRetry {
			continue
		}
		at := rows.ParseInstant(k)
		ns, ref := at.Ns, at.Lease
		if ns > w.now+2*graceOfTests+int64(ledger.NeverSettles) {
			return 0, false
		}
		a := w.planOf(ref.Plan).Action(ref.N)
		soon := ns <= w.now+2*graceOfTests || a.Fixed.Forward.GetGraceNs() == graceOfTests &&
			a.Fixed.Forward.GetLate() == pb.Late_LATE_NEVER
		if ns > w.now && soon && a.Row.Undo == rowspb.Undo_UNDO_SETTLING {
			return ns, true
		}
	}
	return 0, false
}

// decide asks twice: the same state and input give the same records (I9).
func (w *world) decide(answers []Answer) []*pb.Record {
	w.t.Helper()
	in := Input{EpochNs: w.now, HoldClock: w.hold, Answers: answers, Cascade: w.limits, SizeMax: 60 << 10,
		MemoryMax: w.memoryMax, Ahead: w.ahead}
	records := w.state.Decide(in)
	if !sameRecords(records, w.state.Decide(in)) {
		w.t.Fatal("two runs of Decide differ")
	}
	return records
}

func sameRecords(a, b []*pb.Record) bool {
	return slices.EqualFunc(a, b, func(a, b *pb.Record) bool { return bytes.Equal(rows.Encode(a), rows.Encode(b)) })
}

// What stands in place of a worker's word when nobody takes a command: nobody ever did,
// or nobody does any more.
const (
	nobody     = "nobody"
	nobodyMore = "nobody-more"
)

func (w *world) work(c Command) *Answer {
	w.calls = append(w.calls, fmt.Sprintf("%s#%d", c.Capability, c.Attempt))
	reply := &api.Reply{Status: api.StatusDone}
	if w.worker != nil {
		reply = w.worker(c)
	}
	if reply != nil && reply.Status == api.StatusWorking {
		return nil
	}
	if reply != nil && (reply.Status == nobody || reply.Status == nobodyMore) {
		w.unserved = append(w.unserved, Answer{
			Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt, Unserved: true,
			Reached: reply.Status == nobodyMore,
		})
		return nil
	}
	if reply != nil && reply.Status == api.StatusDone && c.Purpose == ledger.PurposeUndo {
		w.undone = append(w.undone, c.Action)
	}
	return &Answer{Plan: c.Plan, Number: c.Number, Purpose: c.Purpose, Attempt: c.Attempt, Reply: reply}
}

// at moves the clock to an instant after the start and takes a turn.
func (w *world) at(d time.Duration) {
	w.t.Helper()
	w.now = epoch0 + int64(d)
	w.turn()
}

func (w *world) show(plan string) api.Plan {
	w.t.Helper()
	shown, ok := view.NewReaderWith(w.kv, "t", w, w.programs).Plan(plan)
	if !ok {
		w.t.Fatalf("no plan %s", plan)
	}
	return shown
}

// planOf is a plan as the state has it; nil: there is none.
func (w *world) planOf(id string) *Plan { return w.state.Reading().Plan(id) }

// actionOf is an action of a plan; nil: there is none.
func (w *world) actionOf(plan, action string) *Action {
	p := w.planOf(plan)
	if p == nil {
		return nil
	}
	return p.Named(action)
}

// plansOf are the plans of a flushed state.
func plansOf(kv rows.KV) (plans []*Plan) {
	reading := NewReading(kv, "t", nil, nil)
	for k := range kv.Scan(rows.Plans.Prefix(), rows.After(rows.Plans.Prefix())) {
		plans = append(plans, reading.Plan(string(k[1:])))
	}
	return plans
}

// undos is "a=compensated b=skipped ..." in order of registration.
func (w *world) undos(plan string) string {
	w.t.Helper()
	var out []string
	for _, a := range w.show(plan).Actions {
		out = append(out, a.Action+"="+a.Undo)
	}
	return strings.Join(out, " ")
}

func (w *world) wantState(plan, state, undos string) {
	w.t.Helper()
	shown := w.show(plan)
	if shown.State != state || w.undos(plan) != undos {
		b, _ := json.MarshalIndent(shown, "", " ")
		w.t.Fatalf("plan %s is %s: %s\nwant %s: %s\n%s", plan, shown.State, w.undos(plan), state, undos, b)
	}
}

// refold folds the whole log into a fresh state, `batch` messages per flush.
func (w *world) refold(batch int) *rows.MemoryKV {
	w.t.Helper()
	kv := rows.NewMemoryKV()
	s := OpenWith(kv, "t", w, w.programs)
	for i, m := range w.log {
		entries, err := ledger.Decode("t", m)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range entries {
			s.Apply(e)
		}
		if (i+1)%batch == 0 {
			s.Flush()
		}
	}
	s.Flush()
	return kv
}
