package observe

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
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

// spansMax bounds the traces that are open, and the undos whose time is taken, per tenant.
const spansMax = 10_000

func newTracing(tracer trace.Tracer, tenant string) *tracing {
	return &tracing{tracer: tracer, tenant: tenant, plans: map[string]trace.Span{},
		spans: map[turn.Attempt]trace.Span{}}
}

// send begins the span of a command, and has the command carry it to the worker.
func (t *tracing) send(c executor.Command) executor.Command {
	id := turn.Attempt{About: turn.About{Plan: c.Plan, Action: c.Action}, Purpose: c.Purpose,
		Number: c.Attempt}
	span := t.spans[id]
	if t.tracer == nil || span == nil && len(t.spans) >= spansMax {
		return c
	}
	if span == nil {
		span = t.begun(c)
		t.spans[id] = span
	} // else it was recorded ahead, and counts now
	if at := span.SpanContext(); at.IsValid() {
		c.Traceparent = ledger.FormatTraceparent(at.TraceID(), at.SpanID(), byte(at.TraceFlags()))
	}
	return c
}

// begun begins the span of a command.
func (t *tracing) begun(c executor.Command) trace.Span {
	of := []attribute.KeyValue{
		attribute.String("sagenbaum.tenant", t.tenant), attribute.String("sagenbaum.plan", c.Plan),
		attribute.String("sagenbaum.action", c.Action),
		attribute.String("sagenbaum.capability", c.Capability),
		attribute.String("sagenbaum.forward", c.Forward),
		attribute.String("sagenbaum.address", c.Address),
		attribute.Int64("sagenbaum.attempt", int64(c.Attempt)),
		attribute.String("messaging.system", "nats"),
	}
	_, span := t.tracer.Start(t.unwind(c), c.Purpose+" "+c.Capability,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(of...),
		trace.WithLinks(linksTo(c.ForwardTrace, "forward")...))
	return span
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
