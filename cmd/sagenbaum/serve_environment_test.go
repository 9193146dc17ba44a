package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// TestServeTakesItsServerFromTheEnvironment: a password on the command line is in the
// list of processes. And a host has the inboxes that its user may subscribe.
func TestServeTakesItsServerFromTheEnvironment(t *testing.T) {
	t.Parallel()
	const host = "host s3cret pub=> sub=query.> sub=admin.> sub=key.> sub=reveal.> sub=reply.>\n"
	users, err := embedded.ParseUsers([]byte(host))
	if err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, Users: users})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	url := strings.Replace(server.URL(), "nats://", "nats://host:s3cret@", 1)
	dir := dataDir(t)
	command := serveCommand(t, dir, "--accept-lossy-broker", "--inbox", embedded.InboxPrefix("host"))
	command.Env = append(command.Env, "SAGENBAUM_NATS="+url)
	s := serveAs(t, dir, command)
	if strings.Contains(s.said, "s3cret") {
		t.Errorf("it says the password: %s", s.said)
	}
	s.url = url
	s.ask(t, "default", "status", "--inbox", embedded.InboxPrefix("host")).wants(t, "status", cli.ExitGood)
	help := finished(t, func() *exec.Cmd {
		c := sagenbaum(t, "serve", "--help")
		c.Env = append(c.Env, "SAGENBAUM_NATS="+url, "SAGENBAUM_SYSTEM_NATS="+url)
		return c
	}())
	if strings.Contains(help.stdout+help.stderr, "s3cret") {
		t.Error("the help shows the environment")
	}
	s.end(t).wants(t, "serve", cli.ExitGood)
}
