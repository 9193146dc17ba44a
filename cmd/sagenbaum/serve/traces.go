package serve

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// traces are the spans of `serve` on their way to a collector. Without an endpoint
// in the environment there are none, and they cost nothing.
type traces struct {
	provider *sdktrace.TracerProvider // nil: off
	log      *slog.Logger
}

// tracesFromEnvironment reads what OpenTelemetry names: OTEL_EXPORTER_OTLP_ENDPOINT
// or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT turn traces on; _HEADERS, OTEL_SERVICE_NAME
// and OTEL_SDK_DISABLED are heeded; the protocol is http/protobuf. The rest of its
// variables, as for sampling, the SDK reads by itself.
func tracesFromEnvironment(log *slog.Logger) (*traces, error) {
	endpoint := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); endpoint == "" && base != "" {
		endpoint = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return &traces{log: log}, nil
	}
	exporter, err := newOTLP(endpoint,
		cli.Environment("OTEL_EXPORTER_OTLP_TRACES_HEADERS",
			os.Getenv("OTEL_EXPORTER_OTLP_HEADERS")))
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces are lost",
			"error", err)
	}))
	of := resource.NewSchemaless(attribute.String("service.name",
		cli.Environment("OTEL_SERVICE_NAME", "sagenbaum")),
		attribute.String("service.version", cli.ReadVersion().Version))
	return &traces{log: log,
		provider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter),
			sdktrace.WithResource(of))}, nil
}

// tracer is nil while traces are off.
func (t *traces) tracer() trace.Tracer {
	if t == nil || t.provider == nil {
		return nil
	}
	return t.provider.Tracer("github.com/sagenbaum/sagenbaum/executor")
}

// stop sends what is left, for a moment.
func (t *traces) stop() {
	if t == nil || t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeMax)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last traces were not sent", "error", err)
	}
}
