package serve

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// otlp exports spans over OTLP/HTTP in protobuf. It takes the place of the exporter of the
// SDK, which brings gRPC with it (docs/adr/0019-metrics-and-traces.md).
type otlp struct {
	endpoint string
	headers  map[string]string
	client   *http.Client
	pause    time.Duration // before the second try; doubles
}

const (
	otlpTries   = 4
	otlpPause   = time.Second
	otlpTimeout = 10 * time.Second
)

// newOTLP checks where spans are to go.
func newOTLP(endpoint, headers string) (*otlp, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, cli.Fail(cli.ExitUsage, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318",
			"the endpoint for traces is no http or https URL")
	}
	client := &http.Client{Timeout: otlpTimeout, CheckRedirect: noRedirect}
	o := &otlp{endpoint: endpoint, headers: map[string]string{}, client: client, pause: otlpPause}
	for pair := range strings.SplitSeq(headers, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || err != nil {
			return nil, cli.Fail(cli.ExitUsage, "OTEL_EXPORTER_OTLP_HEADERS=name=value,name=value",
				"a header for traces is not name=value")
		}
		o.headers[strings.TrimSpace(name)] = value
	}
	return o, nil
}

// noRedirect keeps the headers, which may hold a secret, from going to another server than
// the one that was named.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// ExportSpans is as in sdktrace.SpanExporter.
func (o *otlp) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	body, err := proto.Marshal(
		&collectorpb.ExportTraceServiceRequest{ResourceSpans: resourceSpans(spans)})
	if err != nil {
		return fmt.Errorf("cannot encode spans: %w", err)
	}
	for try := 1; ; try++ {
		again, err := o.post(ctx, body)
		if err == nil || !again || try == otlpTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(o.pause << (try - 1)):
		}
	}
}

// post sends one batch; again says that a later try may do better.
func (o *otlp) post(ctx context.Context, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.endpoint,
		bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("cannot send spans: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("User-Agent", "sagenbaum")
	for name, value := range o.headers {
		request.Header.Set(name, value)
	}
	answer, err := o.client.Do(request)
	if err != nil {
		return ctx.Err() == nil, fmt.Errorf("cannot send spans: %w", err)
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 64<<10) // so that the connection can be used again
	switch code := answer.StatusCode; {
	case code/100 == 2:
		return false, nil
	case code == http.StatusTooManyRequests || code == http.StatusBadGateway ||
		code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout:
		return true, fmt.Errorf("cannot send spans: the collector answered %d", code)
	case code/100 == 3:
		const text = "cannot send spans: the collector answered %d, and redirects are not followed"
		return false, fmt.Errorf(text, code)
	default:
		return false, fmt.Errorf("cannot send spans: the collector answered %d", code)
	}
}

// Shutdown is as in sdktrace.SpanExporter.
func (o *otlp) Shutdown(context.Context) error {
	o.client.CloseIdleConnections()
	return nil
}

// resourceSpans are spans of one process, by their scope.
func resourceSpans(spans []sdktrace.ReadOnlySpan) []*tracepb.ResourceSpans {
	of := &tracepb.ResourceSpans{Resource: &resourcepb.Resource{Attributes: attributes(
		spans[0].Resource().Attributes())}}
	scopes := map[string]*tracepb.ScopeSpans{}
	for _, s := range spans {
		name := s.InstrumentationScope().Name
		if scopes[name] == nil {
			scopes[name] = &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: name}}
			of.ScopeSpans = append(of.ScopeSpans, scopes[name])
		}
		scopes[name].Spans = append(scopes[name].Spans, spanOf(s))
	}
	return []*tracepb.ResourceSpans{of}
}

func spanOf(s sdktrace.ReadOnlySpan) *tracepb.Span {
	id, traceID := s.SpanContext().SpanID(), s.SpanContext().TraceID()
	out := &tracepb.Span{
		TraceId: traceID[:], SpanId: id[:], Name: s.Name(),
		Kind: tracepb.Span_SpanKind(s.SpanKind()), Attributes: attributes(s.Attributes()),
		StartTimeUnixNano: uint64(s.StartTime().UnixNano()),
		EndTimeUnixNano:   uint64(s.EndTime().UnixNano()),
		Flags:             uint32(s.SpanContext().TraceFlags()),
	}
	if parent := s.Parent(); parent.SpanID().IsValid() {
		id := parent.SpanID()
		out.ParentSpanId = id[:]
	}
	for _, l := range s.Links() {
		id, traceID := l.SpanContext.SpanID(), l.SpanContext.TraceID()
		out.Links = append(out.Links,
			&tracepb.Span_Link{TraceId: traceID[:], SpanId: id[:],
				Attributes: attributes(l.Attributes), Flags: uint32(l.SpanContext.TraceFlags())})
	}
	if status := s.Status(); status.Code == codes.Error {
		out.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR,
			Message: status.Description}
	}
	return out
}

// attributes writes what our spans say: texts and whole numbers, the rest as text.
func attributes(list []attribute.KeyValue) (out []*commonpb.KeyValue) {
	for _, kv := range list {
		value := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: kv.Value.String()}}
		if kv.Value.Type() == attribute.INT64 {
			value.Value = &commonpb.AnyValue_IntValue{IntValue: kv.Value.AsInt64()}
		}
		out = append(out, &commonpb.KeyValue{Key: string(kv.Key), Value: value})
	}
	return out
}
