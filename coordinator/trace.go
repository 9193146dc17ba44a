package coordinator

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// traceparent is the trace context that a call is part of, as it is recorded; nil for
// none. What undoes the action later, perhaps in weeks, is linked to it.
func traceparent(ctx context.Context) []byte {
	at := trace.SpanContextFromContext(ctx)
	if !at.IsValid() {
		return nil
	}
	return []byte(ledger.FormatTraceparent(at.TraceID(), at.SpanID(), byte(at.TraceFlags())))
}
