package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// collector takes spans over OTLP/HTTP. It is busy for the first request.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	posts int
	spans map[string]*tracepb.Span // by name
	said  http.Header
}

func newCollector(t *testing.T) *collector {
	c := &collector{spans: map[string]*tracepb.Span{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collectorpb.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.posts++
		c.said = r.Header
		if c.posts == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		for _, of := range request.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					c.spans[s.Name] = s
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) span(name string) *tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans[name]
}

func linked(s *tracepb.Span, to trace.SpanContext) bool {
	for _, l := range s.Links {
		if trace.TraceID(l.TraceId) == to.TraceID() && trace.SpanID(l.SpanId) == to.SpanID() {
			return true
		}
	}
	return false
}

// The forward's trace context is in its record; the undo, in another trace, by other
// processes and as much later as it may be, is linked to it.
func TestAnUndoIsLinkedToTheTraceOfItsForward(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	dir := cmdtest.DataDir(t)
	first := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0")
	plans, forwards := tracedPlan(t, first, "traced")
	first.Command.Process.Kill()
	first.Command.Wait()
	command := cmdtest.ServeCommand(t, dir, "--listen", "127.0.0.1:0")
	command.Env = append(command.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL,
		"OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20x", "OTEL_BSP_SCHEDULE_DELAY=100")
	s := cmdtest.ServeAs(t, dir, command)
	conn := cmdtest.Dial(t, s.URL)
	seen := make(chan trace.SpanContext, 1)
	w, err := worker.New(worker.Config{Conn: conn, Tenant: "default", Name: "rooms"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(context.Background())
	if err := w.Handle("room.free", func(ctx context.Context, _ api.Command) (worker.Result, error) {
		seen <- trace.SpanContextFromContext(ctx)
		return worker.Result{}, nil
	}); err != nil {
		t.Fatal(err)
	}
	s.Ask(t, "default", "plan", "cancel", "traced", "--reason", "sold out", "--wait").Wants(t, "cancel", cli.ExitGood)
	cmdtest.Eventually(t, "the spans",
		func() (string, bool) { return "", c.span("unwind") != nil && c.span("undo room.free") != nil })
	unwind, undo := c.span("unwind"), c.span("undo room.free")
	if !linked(unwind, plans) || !linked(undo, forwards) {
		t.Errorf("links %v and %v, want one to %v and one to %v", unwind.Links, undo.Links, plans, forwards)
	}
	if at := <-seen; at.TraceID() != trace.TraceID(undo.TraceId) || at.SpanID() != trace.SpanID(undo.SpanId) ||
		!at.IsRemote() {
		t.Errorf("the worker works in %v, want in %x %x", at, undo.TraceId, undo.SpanId)
	}
	if trace.TraceID(undo.TraceId) == forwards.TraceID() || string(undo.ParentSpanId) != string(unwind.SpanId) ||
		undo.EndTimeUnixNano <= undo.StartTimeUnixNano {
		t.Errorf("the undo is %v in the unwind %v", undo, unwind)
	}
	c.mu.Lock()
	if c.said.Get("Authorization") != "Bearer x" {
		t.Errorf("headers are %v", c.said)
	}
	c.mu.Unlock()
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// tracedPlan leaves an open plan whose agent traces.
func tracedPlan(t *testing.T, s *cmdtest.Served, id string) (plan, forward trace.SpanContext) {
	t.Helper()
	tracer := sdktrace.NewTracerProvider().Tracer("test")
	agent, err := coordinator.New(coordinator.Config{Conn: cmdtest.Dial(t, s.URL), Tenant: "default", Agent: "tester",
		Contracts: []contract.Contract{
			{Capability: "room.book", Class: contract.Compensable, Inverse: &contract.Inverse{Call: "room.free"}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := tracer.Start(t.Context(), "plan a trip")
	open, err := agent.Begin(ctx, coordinator.PlanSpec{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	inner, booking := tracer.Start(ctx, "book")
	if _, err := open.Do(inner, coordinator.Action{Capability: "room.book"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{}, nil
		}); err != nil {
		t.Fatal(err)
	}
	if err := agent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return span.SpanContext(), booking.SpanContext()
}
