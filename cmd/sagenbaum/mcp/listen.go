package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// tokenVariable has the token of clients over HTTP.
const tokenVariable = "SAGENBAUM_MCP_TOKEN"

const (
	headerMax  = 10 * time.Second // that a client may take to send the headers of a request
	requestMax = 2 * time.Minute  // likewise, all of it; and that a connection may have no request
)

// checkListen wants an address of this machine: the token goes in the clear.
func checkListen(address string) error {
	const hint = "--listen 127.0.0.1:4271; a proxy with TLS makes it reachable for others"
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return cli.Fail(cli.ExitUsage, hint, "--listen cannot be %q: %v", address, err)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return cli.Fail(cli.ExitUsage, hint, "--listen %s is not an address of this machine alone",
			address)
	}
	return nil
}

// readToken reads the token of clients over HTTP. One that is set and empty is refused: whoever has
// set it does not want a gateway that lets everyone in.
func (o *options) readToken() error {
	text, set := o.variable(tokenVariable)
	if o.token = strings.TrimSpace(text); set && o.token == "" {
		return cli.Fail(cli.ExitUsage, "a token in it, or unset "+tokenVariable+" for a gateway without",
			"%s is set, and empty", tokenVariable)
	}
	return nil
}

// whoMayCall says who may call a gateway, and whom the ledger takes them for.
func whoMayCall(token, agent string) string {
	who := "whoever brings the token of " + tokenVariable
	if token == "" {
		who = "warning: there is no token (" + tokenVariable + "): whoever reaches this address from " +
			"this machine"
	}
	return who + " may call as agent " + agent + ", and see and undo what the others have done"
}

// newServer bounds how long a request may take to come. Once it has, its answer may take any time:
// the bound ends with the body.
func newServer(handler http.Handler, most time.Duration) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: min(most, headerMax), ReadTimeout: most}
}

// serve serves clients over HTTP until the command is interrupted.
func (o *options) serve(cmd *cobra.Command, gateway *mcp.Gateway, agent string) error {
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return cli.Fail(cli.ExitFailed, "another port", "cannot listen: %v", err)
	}
	server := newServer(gateway.Handler(o.token), requestMax)
	fmt.Fprintf(cmd.ErrOrStderr(), "serving MCP on http://%s/\n%s\n", listener.Addr(),
		whoMayCall(o.token, agent))
	stop := context.AfterFunc(cmd.Context(), func() { _ = server.Close() }) // clients connect again
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
