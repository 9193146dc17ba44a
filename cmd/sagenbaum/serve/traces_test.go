package serve

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func TestTracesAreOffUntilAnEndpointIsNamed(t *testing.T) {
	off, err := tracesFromEnvironment(nil)
	if err != nil || off.tracer() != nil {
		t.Errorf("%+v, %v", off, err)
	}
	off.stop()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")
	if _, err := tracesFromEnvironment(nil); err == nil {
		t.Error("an endpoint without http passes")
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	if off, err := tracesFromEnvironment(nil); err != nil || off.tracer() != nil {
		t.Errorf("disabled: %+v, %v", off, err)
	}
}

func TestACollectorThatRefusesIsNotAskedAgain(t *testing.T) {
	posts := 0
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		posts++
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer refusing.Close()
	o, err := newOTLP(refusing.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	o.pause = time.Millisecond
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(o))
	_, span := provider.Tracer("test").Start(t.Context(), "x")
	span.End()
	if posts != 1 {
		t.Errorf("%d posts", posts)
	}
}

// TestTheHeadersOfACollectorGoToNoOtherServer: they may hold a secret.
func TestTheHeadersOfACollectorGoToNoOtherServer(t *testing.T) {
	asked := make(chan http.Header, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header }))
	defer other.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Api-Key") != "secret" {
				t.Errorf("%d: the collector itself got %v", code, r.Header)
			}
			http.Redirect(w, r, other.URL, code)
		}))
		o, err := newOTLP(collector.URL, "Api-Key=secret")
		if err != nil {
			t.Fatal(err)
		}
		again, err := o.post(t.Context(), []byte("spans"))
		if err == nil || again || !strings.Contains(err.Error(), "redirects are not followed") {
			t.Errorf("%d: %v, again %v", code, err, again)
		}
		collector.Close()
	}
	if len(asked) > 0 {
		t.Errorf("another server got %v", <-asked)
	}
}
