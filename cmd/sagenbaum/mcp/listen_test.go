package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// listening are the options of a gateway with --listen.
func listening(t *testing.T) *options {
	t.Helper()
	o := new(options)
	flags := pflag.NewFlagSet("mcp", pflag.ContinueOnError)
	o.gatewayFlags(flags)
	if err := flags.Parse([]string{"--listen", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	return o
}

// Whoever sets the variable of the token wants one, also where a file that it comes from is empty.
func TestATokenThatIsEmptyIsRefused(t *testing.T) {
	for _, empty := range []string{"", " \n"} {
		t.Setenv(tokenVariable, empty)
		var f *cli.Failure
		_, err := listening(t).config()
		if !errors.As(err, &f) || f.Code != cli.ExitUsage || !strings.Contains(err.Error(), tokenVariable) {
			t.Errorf("%q: %v", empty, err)
		}
	}
	t.Setenv(tokenVariable, "secret\n")
	o := listening(t)
	if _, err := o.config(); err != nil || o.token != "secret" {
		t.Errorf("%q, %v", o.token, err)
	}
}

// A gateway says at its start who may call.
func TestAGatewaySaysWhoMayCall(t *testing.T) {
	for token, want := range map[string]string{
		"":       "warning: there is no token (SAGENBAUM_MCP_TOKEN): whoever reaches this address from this machine",
		"secret": "whoever brings the token",
	} {
		got := whoMayCall(token, "ann")
		if !strings.Contains(got, want) || !strings.Contains(got, "agent ann") || strings.Contains(got, "secret") {
			t.Errorf("token %q: it says %s", token, got)
		}
	}
}

// stalled sends a request of which the rest does not come, and waits until its connection is closed.
func stalled(t *testing.T, address, text string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testenv.Patience / 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, text); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil {
		t.Errorf("after %q: %q, %v", text, answer, err)
	}
}

// A client that sends nothing more holds no connection. A call, or a stream, may take longer: one whose
// request has come goes on when the time of others is over.
func TestARequestThatDoesNotComeHoldsNoConnection(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came, goOn := make(chan context.Context), make(chan struct{})
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = http.NewResponseController(w).Flush() // as a stream begins
		came <- r.Context()
		<-goOn
	}), 100*time.Millisecond)
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	address := listener.Addr().String()
	const head = " / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
	for method, body := range map[string]io.Reader{http.MethodPost: strings.NewReader("{}"), http.MethodGet: nil} {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address, body)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			response, err := http.DefaultClient.Do(request)
			if err == nil {
				_, err = io.ReadAll(response.Body)
				err = errors.Join(err, response.Body.Close())
			}
			ended <- err
		}()
		working := <-came
		for _, rest := range []string{"", "Content-Length: 10\r\n\r\n", "Content-Length: 10\r\n\r\n{"} {
			stalled(t, address, method+head+rest)
		}
		if err := working.Err(); err != nil {
			t.Errorf("%s that has come: %v", method, err)
		}
		goOn <- struct{}{}
		if err := <-ended; err != nil {
			t.Errorf("%s that has come is answered with %v", method, err)
		}
	}
}
