package observe

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Observer lets numbers and traces follow the fold of one tenant. It belongs to the
// goroutine of the tenant's loop; its Meter may be used by others too.
type Observer struct {
	Meter *Meter // nil: no numbers

	now    func() time.Time // of decisions
	traces *tracing
	shown  Levels
	sent   map[turn.About]int64 // undos under way: when they were first dispatched, unix ns
}

// NewObserver follows a tenant. No metrics, and no tracer, cost nothing.
func NewObserver(tenant string, m *Metrics, t trace.Tracer, now func() time.Time) *Observer {
	return &Observer{Meter: m.Tenant(tenant), now: now, traces: newTracing(t, tenant),
		sent: map[turn.About]int64{}}
}

// Folded follows a record that was folded while the session was attached. What was there
// when the session began is history, and counts for nothing.
func (o *Observer) Folded(e ledger.Entry, v executor.Verdict, holding bool) {
	if t := o.Meter; t != nil {
		t.verdict(v)
		if e.Address.Index == 0 {
			t.foldDelay.Observe(max(time.Since(time.Unix(0, e.StampNs)).Seconds(), 0))
		}
	}
	if v != executor.Effective {
		return
	}
	o.settle(e)
	if o.Meter != nil {
		o.count(e, holding)
	}
}

// Send begins the span of a command, and returns the command that carries it to the worker.
func (o *Observer) Send(c executor.Command) executor.Command { return o.traces.send(c) }

// Told follows a notice about a plan: of its end, or of one action.
func (o *Observer) Told(n executor.Notice) {
	if n.Action == "" && n.State != ledger.StateUnwinding && n.State != ledger.StateCommitting {
		o.traces.ended(n.Plan, n.State)
	}
}

// Show shows the numbers that a turn has changed.
func (o *Observer) Show(is Levels) {
	o.Meter.level(o.shown, is)
	o.shown = is
}

// EndTerm ends all spans with the term.
func (o *Observer) EndTerm() { o.traces.stop() }

// EndSession forgets the undos whose time is taken.
func (o *Observer) EndSession() { clear(o.sent) }

// purposeOf is the purpose of the command that asks a question.
func purposeOf(q pb.Question) string {
	if q == pb.Question_QUESTION_VERIFY {
		return api.PurposeVerify
	}
	return api.PurposeProbe
}

// count counts what a record says.
func (o *Observer) count(e ledger.Entry, holding bool) {
	t, of, r := o.Meter, turn.About{Plan: e.Record.Plan, Action: e.Record.Action}, e.Record
	switch k := r.Kind.(type) {
	case *pb.Record_LeaseFired:
		t.fired.Inc()
	case *pb.Record_CompensationDispatched:
		o.dispatchedAt(r, holding)
		if _, again := o.sent[of]; !again && k.CompensationDispatched.Attempt == 1 &&
			len(o.sent) < spansMax {
			o.sent[of] = r.EpochNs
		}
	case *pb.Record_ProbeAsked:
		o.dispatchedAt(r, holding)
	case *pb.Record_CompensationSucceeded:
		t.undone.Inc()
		if since, known := o.sent[of]; known {
			t.undoLatency.Observe(max(float64(r.EpochNs-since)/1e9, 0))
		}
		delete(o.sent, of)
	case *pb.Record_CompensationFailed:
		t.failed.Inc()
	case *pb.Record_CompensationSkipped:
		t.skipped.Inc()
		delete(o.sent, of)
	case *pb.Record_ActionQuarantined:
		t.quarantines.Inc()
		delete(o.sent, of)
	case *pb.Record_Resolved:
		delete(o.sent, of)
	case *pb.Record_UndoWindowClosing:
		t.windows.Inc()
	}
}

// dispatchedAt counts a dispatch of this host, which leaves in this turn.
func (o *Observer) dispatchedAt(r *pb.Record, holding bool) {
	o.Meter.dispatched.Inc()
	if holding {
		took := o.now().Sub(time.Unix(0, r.EpochNs))
		o.Meter.dispatchLatency.Observe(max(took.Seconds(), 0))
	}
}

// settle ends the spans that a record settles.
func (o *Observer) settle(e ledger.Entry) {
	of := turn.About{Plan: e.Record.Plan, Action: e.Record.Action}
	switch k := e.Record.Kind.(type) {
	case *pb.Record_CompensationDispatched: // the one before may have been called back
		o.traces.settle(turn.Attempt{About: of, Purpose: ledger.PurposeUndo,
			Number: k.CompensationDispatched.Attempt - 1}, "called back")
	case *pb.Record_CompensationSucceeded:
		o.traces.settle(turn.Attempt{About: of, Purpose: ledger.PurposeUndo,
			Number: k.CompensationSucceeded.Attempt}, "")
	case *pb.Record_CompensationFailed:
		f := k.CompensationFailed // its message may hold what is no one's business there
		o.traces.settle(turn.Attempt{About: of, Purpose: ledger.PurposeUndo, Number: f.Attempt},
			"failed "+f.Code)
	case *pb.Record_ProbeAsked:
		if done := k.ProbeAsked.Done; done != nil {
			o.traces.settle(turn.Attempt{About: of, Purpose: ledger.PurposeUndo, Number: done.Attempt}, "")
		}
	case *pb.Record_ProbeAnswered:
		o.traces.settle(turn.Attempt{About: of, Purpose: purposeOf(k.ProbeAnswered.Question),
			Number: k.ProbeAnswered.Attempt}, "")
	case *pb.Record_CompensationSkipped:
		o.traces.abandon(of, "")
	case *pb.Record_ActionQuarantined:
		o.traces.abandon(of, "quarantined")
	case *pb.Record_Resolved:
		o.traces.abandon(of, "resolved by its owner")
	}
}
