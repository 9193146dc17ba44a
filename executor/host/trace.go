package host

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// tracing has the spans of one tenant while this host holds it. They are hints, as
// logs are: what is not over when the term ends is cut off there, and no decision
// reads them. It belongs to the actor's goroutine. Without a tracer it does nothing.
//
// An unwind is a trace of its own, for the agent's may be weeks old and gone: its
// spans have links to what was recorded with the plan and with the forwards.
type tracing struct {
	tracer trace.Tracer
	tenant string
	plans  map[string]trace.Span       // unwinds
	spans  map[turn.Attempt]trace.Span // attempts and questions on their way
}

func newTracing(tracer trace.Tracer, tenant string) *tracing {
	return &tracing{tracer: tracer, tenant: tenant, plans: map[string]trace.Span{},
		spans: map[turn.Attempt]trace.Span{}}
}

// send begins the span of a command, and has the command carry it to the worker.
func (t *tracing) send(c executor.Command) executor.Command {
	id := turn.Attempt{About: turn.About{Plan: c.Plan, Action: c.Action}, Purpose: c.Purpose,
		Number: c.Attempt}
	if t.tracer == nil || t.spans[id] != nil || len(t.spans) >= spansMax {
		return c
	}
	of := []attribute.KeyValue{
		attribute.String("sagenbaum.tenant", t.tenant), attribute.String("sagenbaum.plan", c.Plan),
		attribute.String("sagenbaum.action", c.Action),
		attribute.String("sagenbaum.capability", c.Capability),
		attribute.String("sagenbaum.forward", c.Forward),
		attribute.String("sagenbaum.address", c.Address),
		attribute.Int64("sagenbaum.attempt", int64(c.Attempt)),
		attribute.String("messaging.system", "nats"),
	}
	ctx, span := t.tracer.Start(t.unwind(c), c.Purpose+" "+c.Capability,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(of...),
		trace.WithLinks(linksTo(c.ForwardTrace, "forward")...))
	t.spans[id] = span
	if at := trace.SpanContextFromContext(ctx); at.IsValid() {
		c.Traceparent = ledger.FormatTraceparent(at.TraceID(), at.SpanID(), byte(at.TraceFlags()))
	}
	return c
}

// unwind is the context of a plan's unwind, begun with its first command.
func (t *tracing) unwind(c executor.Command) context.Context {
	ctx := context.Background()
	if span := t.plans[c.Plan]; span != nil {
		return trace.ContextWithSpan(ctx, span)
	}
	if len(t.plans) >= spansMax {
		return ctx
	}
	ctx, span := t.tracer.Start(ctx, "unwind", trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithLinks(linksTo(c.PlanTrace, "plan")...),
		trace.WithAttributes(attribute.String("sagenbaum.tenant", t.tenant),
			attribute.String("sagenbaum.plan", c.Plan)))
	t.plans[c.Plan] = span
	return ctx
}

// linksTo is a link to a recorded trace context; none where there is none, or none
// that can be read.
func linksTo(recorded, what string) []trace.Link {
	traceID, spanID, flags, ok := ledger.ParseTraceparent(recorded)
	if !ok {
		return nil
	}
	return []trace.Link{{
		SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID,
			TraceFlags: trace.TraceFlags(flags), Remote: true}),
		Attributes: []attribute.KeyValue{attribute.String("sagenbaum.link", what)},
	}}
}

// settle ends the span of an attempt that the ledger has settled.
func (t *tracing) settle(id turn.Attempt, problem string) {
	if span := t.spans[id]; span != nil {
		delete(t.spans, id)
		endSpan(span, problem)
	}
}

// abandon ends what is on its way for an action that nothing is asked about any more.
func (t *tracing) abandon(of turn.About, why string) {
	for id, span := range t.spans {
		if id.About == of {
			delete(t.spans, id)
			endSpan(span, why)
		}
	}
}

// ended ends the span of a plan's unwind.
func (t *tracing) ended(plan, state string) {
	if span := t.plans[plan]; span != nil {
		delete(t.plans, plan)
		span.SetAttributes(attribute.String("sagenbaum.state", state))
		endSpan(span,
			map[bool]string{true: "something waits for the plan's owner"}[state == ledger.StateQuarantined])
	}
}

// stop ends all spans with the term.
func (t *tracing) stop() {
	for id := range t.spans {
		t.settle(id, "this host holds the tenant no more")
	}
	for plan, span := range t.plans {
		delete(t.plans, plan)
		endSpan(span, "this host holds the tenant no more")
	}
}

func endSpan(span trace.Span, problem string) {
	if problem != "" {
		span.SetStatus(codes.Error, problem)
	}
	span.End()
}

// observe lets numbers and traces follow a record that was folded. What was there
// when the session began is history, and counts for nothing.
func (a *actor) observe(e ledger.Entry, v executor.Verdict) {
	t := a.meter
	if e.Address.Sequence <= a.machine.Attached() {
		return
	}
	if t != nil {
		t.verdict(v)
		if e.Address.Index == 0 {
			t.foldDelay.Observe(max(time.Since(time.Unix(0, e.StampNs)).Seconds(), 0))
		}
	}
	if v != executor.Effective {
		return
	}
	a.observeTrace(e)
	if t != nil {
		a.observeKind(e)
	}
}

// observeKind counts what a record says.
func (a *actor) observeKind(e ledger.Entry) {
	t, of, r := a.meter, turn.About{Plan: e.Record.Plan, Action: e.Record.Action}, e.Record
	switch k := r.Kind.(type) {
	case *pb.Record_LeaseFired:
		t.fired.Inc()
	case *pb.Record_CompensationDispatched:
		a.dispatchedAt(r)
		if _, again := a.sent[of]; !again && k.CompensationDispatched.Attempt == 1 &&
			len(a.sent) < spansMax {
			a.sent[of] = r.EpochNs
		}
	case *pb.Record_ProbeAsked:
		a.dispatchedAt(r)
	case *pb.Record_CompensationSucceeded:
		t.undone.Inc()
		if since, known := a.sent[of]; known {
			t.undoLatency.Observe(max(float64(r.EpochNs-since)/1e9, 0))
		}
		delete(a.sent, of)
	case *pb.Record_CompensationFailed:
		t.failed.Inc()
	case *pb.Record_CompensationSkipped:
		t.skipped.Inc()
		delete(a.sent, of)
	case *pb.Record_ActionQuarantined:
		t.quarantines.Inc()
		delete(a.sent, of)
	case *pb.Record_Resolved:
		delete(a.sent, of)
	case *pb.Record_UndoWindowClosing:
		t.windows.Inc()
	}
}

// dispatchedAt counts a dispatch of this host, which leaves in this turn.
func (a *actor) dispatchedAt(r *pb.Record) {
	a.meter.dispatched.Inc()
	if a.holding() {
		a.meter.dispatchLatency.Observe(max(a.host.clock.now().Sub(time.Unix(0, r.EpochNs)).Seconds(), 0))
	}
}

// observeTrace ends the spans that a record settles.
func (a *actor) observeTrace(e ledger.Entry) {
	of := turn.About{Plan: e.Record.Plan, Action: e.Record.Action}
	switch k := e.Record.Kind.(type) {
	case *pb.Record_CompensationSucceeded:
		a.traces.settle(turn.Attempt{About: of, Purpose: ledger.PurposeUndo,
			Number: k.CompensationSucceeded.Attempt}, "")
	case *pb.Record_CompensationFailed:
		f := k.CompensationFailed // its message may hold what is no one's business there
		a.traces.settle(turn.Attempt{About: of, Purpose: ledger.PurposeUndo, Number: f.Attempt},
			"failed "+f.Code)
	case *pb.Record_ProbeAsked:
		if done := k.ProbeAsked.Done; done != nil {
			a.traces.settle(turn.Attempt{About: of, Purpose: ledger.PurposeUndo, Number: done.Attempt}, "")
		}
	case *pb.Record_ProbeAnswered:
		a.traces.settle(turn.Attempt{About: of, Purpose: purposeOf(k.ProbeAnswered.Question),
			Number: k.ProbeAnswered.Attempt}, "")
	case *pb.Record_CompensationSkipped:
		a.traces.abandon(of, "")
	case *pb.Record_ActionQuarantined:
		a.traces.abandon(of, "quarantined")
	case *pb.Record_Resolved:
		a.traces.abandon(of, "resolved by its owner")
	}
}

// measure shows the numbers that the turn has changed.
func (a *actor) measure() {
	if a.meter == nil {
		return
	}
	m := a.state.Meta()
	a.mu.Lock()
	last := a.last
	a.mu.Unlock()
	is := levels{
		held: m.Held, open: m.Open, unwinding: m.Unwinding, quarantined: m.Quarantined, cuts: m.Cut,
		faulty: m.Faulty,
		behind: max(last, a.readAhead.Load(), a.cursor()) - a.cursor(),
	}
	if a.holding() {
		is.nextDueNs, _ = a.state.NextWake()
	}
	if a.pages != nil {
		a.pages.showOldest()
	}
	a.meter.level(a.levels, is)
	a.levels = is
}
