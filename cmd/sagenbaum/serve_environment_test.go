package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestServeTakesItsServerFromTheEnvironment: a password on the command line is in the
// list of processes. And a host has the inboxes that its user may subscribe.
func TestServeTakesItsServerFromTheEnvironment(t *testing.T) {
	t.Parallel()
	server, err := natsd.NewServer(&natsd.Options{Host: "127.0.0.1", Port: -1, JetStream: true,
		StoreDir: t.TempDir(), NoSigs: true, NoLog: true, Users: []*natsd.User{{Username: "host", Password: "s3cret",
			Permissions: &natsd.Permissions{Subscribe: &natsd.SubjectPermission{Allow: []string{"_INBOX_host.>",
				"query.>", "hosts.*", "admin.>", "key.>", "reveal.>", "reply.>", "server.>"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(server.Shutdown)
	if !server.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	url := strings.Replace(server.ClientURL(), "nats://", "nats://host:s3cret@", 1)
	dir := cmdtest.DataDir(t)
	command := cmdtest.ServeCommand(t, dir, "--accept-lossy-broker", "--inbox", "_INBOX_host")
	command.Env = append(command.Env, "SAGENBAUM_NATS="+url)
	s := cmdtest.ServeAs(t, dir, command)
	if strings.Contains(s.Said, "s3cret") {
		t.Errorf("it says the password: %s", s.Said)
	}
	s.URL = url
	s.Ask(t, "default", "status", "--inbox", "_INBOX_host").Wants(t, "status", cli.ExitGood)
	help := cmdtest.Finished(t, func() *exec.Cmd {
		c := cmdtest.Sagenbaum(t, "serve", "--help")
		c.Env = append(c.Env, "SAGENBAUM_NATS="+url, "SAGENBAUM_SYSTEM_NATS="+url)
		return c
	}())
	if strings.Contains(help.Stdout+help.Stderr, "s3cret") {
		t.Error("the help shows the environment")
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
