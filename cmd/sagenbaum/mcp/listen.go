package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// tokenVariable has the token of clients over HTTP.
const tokenVariable = "SAGENBAUM_MCP_TOKEN"

// headerMax is how long a client may take to send the headers of a request.
const headerMax = 10 * time.Second

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

// listen serves clients over HTTP until the command is interrupted.
func listen(cmd *cobra.Command, gateway *mcp.Gateway, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return cli.Fail(cli.ExitFailed, "another port", "cannot listen: %v", err)
	}
	token := strings.TrimSpace(os.Getenv(tokenVariable))
	server := &http.Server{Handler: gateway.Handler(token), ReadHeaderTimeout: headerMax}
	fmt.Fprintf(cmd.ErrOrStderr(), "serving MCP on http://%s/\n", listener.Addr())
	stop := context.AfterFunc(cmd.Context(), func() { _ = server.Close() }) // clients connect again
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
