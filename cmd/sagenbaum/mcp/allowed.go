package mcp

import (
	"errors"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// allowed refuses to go on where the server has not let this user listen to what a gateway or a
// worker has to hear: it would say that it serves, and no one would reach it. does says what the
// user may not do, next what would be right.
func allowed(conn *nats.Conn, s *cli.Settings, does, next string) error {
	if err := conn.FlushTimeout(s.Timeout); err != nil {
		return nil // the connection is lost, and there again later: then it is in the log
	}
	denied := conn.LastError() // one comes before the answer to the flush
	if !errors.Is(denied, nats.ErrPermissionViolation) {
		return nil
	}
	who := "this user"
	if s.Self != nil {
		who = string(s.Self.Role) + " " + s.Self.Name
	}
	return cli.Fail(cli.ExitNotAllowed, next, "%s may not %s: %v", who, does, denied)
}

// asAgent says how to get credentials of a gateway.
func asAgent(tenant, agent string) string {
	return "the credentials of that agent: sagenbaum --tenant " + tenant + " user add " + agent +
		" --role agent --out " + agent + ".creds"
}

// asWorker says how to get credentials of the worker of servers.
func asWorker(tenant string, servers []*mcp.Server) string {
	line := []string{"the credentials of a worker: sagenbaum --tenant", tenant,
		"user add NAME --role worker"}
	for _, server := range servers {
		for _, capability := range append([]string{server.Undo()}, server.Deliveries()...) {
			line = append(line, "--serve", capability)
		}
	}
	return strings.Join(append(line, "--out NAME.creds"), " ")
}
