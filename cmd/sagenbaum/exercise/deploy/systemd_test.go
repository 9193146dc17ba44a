//go:build exercise

package deploy

import (
	"os"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// The command line of the systemd unit is one that serve takes: it is run here
// as it stands, but for the folder and the port.
func TestTheSystemdUnitStartsTheServer(t *testing.T) {
	unit, err := os.ReadFile(cmdtest.InCheckout(t, "deploy", "systemd", "sagenbaum.service"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(unit),
		"\nExecStart=/usr/local/bin/sagenbaum serve --data /var/lib/sagenbaum "+
			"--tenant-keys /var/lib/sagenbaum-keys --listen 127.0.0.1:4222 --metrics 127.0.0.1:9464 ")
	if !found {
		t.Fatal("the unit does not start serve on /var/lib/sagenbaum, with its keys beside that, " +
			"on 127.0.0.1:4222, with metrics on 127.0.0.1:9464")
	}
	line, _, _ := strings.Cut(rest, "\n")
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t),
		append([]string{"--tenant-keys", t.TempDir(), "--listen", "127.0.0.1:0",
			"--metrics", "127.0.0.1:0"}, strings.Fields(line)...)...)
	s.Ask(t, "default", "status").Wants(t, "status", cli.ExitGood)
}
