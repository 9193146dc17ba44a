//go:build exercise && linux

package deploy

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// blocksOf has a source assert large facts until the ledger has so many blocks, and returns them.
func blocksOf(t *testing.T, s *cmdtest.Served, want int) (blocks []string) {
	t.Helper()
	conn := cmdtest.Dial(t, s.URL)
	value := base64.StdEncoding.EncodeToString([]byte(`"` + strings.Repeat("x", 45_000) + `"`))
	for n := 0; len(blocks) < want; n++ {
		if n > 1000 {
			t.Fatalf("the ledger has the blocks %v", blocks)
		}
		message := nats.NewMsg("saga.default.fact.filler")
		message.Header.Set("Content-Type", "application/json")
		message.Data = fmt.Appendf(nil, `{"records":[{"factAsserted":{"key":"k%d","value":%q}}]}`, n, value)
		reply, err := conn.RequestMsg(message, testenv.Patience)
		if err != nil || strings.Contains(string(reply.Data), `"error"`) {
			t.Fatalf("%s, %v", reply.Data, err)
		}
		if blocks, err = filepath.Glob(s.Dir + "/nats/jetstream/*/streams/SAGA_default/msgs/*.blk"); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(blocks)
	return blocks
}

// TestTheAdviceOnALedgerWithAGapIsFollowed: of the checks ledger and executor. A block in the middle
// of the stream is lost while the server is down; what it had is taken from the tiles by the two
// commands of the advice, of which the first changes nothing.
func TestTheAdviceOnALedgerWithAGapIsFollowed(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	ask, blocks := s.Asks(t, "default"), blocksOf(t, s, 3)
	ask("fact", "put", "last", "1").Wants(t, "fact put", cli.ExitGood)
	ask("ledger", "scrub").Wants(t, "ledger scrub", cli.ExitGood) // all of it is in the tiles
	s.End(t).Wants(t, "serve", cli.ExitGood)
	if err := os.Rename(blocks[1], filepath.Join(t.TempDir(), "lost")); err != nil {
		t.Fatal(err)
	}
	s = s.Again(t)
	f := ask.Advised(t, "ledger")
	if !strings.HasSuffix(f.Text, "records are missing from stream SAGA_default") ||
		ask.Advised(t, "executor").State != "FAIL" {
		t.Errorf("%+v", f)
	}
	if said := ask.Follow(t, f); !strings.Contains(said, "would be") || !strings.Contains(said, "lost         none") ||
		ask.Advised(t, "ledger").Text != f.Text {
		t.Errorf("the dry run says\n%s", said)
	}
	if !strings.Contains(f.Next, "then the same without --dry-run") {
		t.Errorf("%+v", f)
	}
	for _, line := range cmdtest.Commands(f.Next) {
		line = slices.DeleteFunc(line, func(arg string) bool { return arg == "--dry-run" })
		r := ask(append(line, "-o", "json")...)
		r.Wants(t, strings.Join(line, " "), cli.ExitGood)
		if v := cmdtest.Decoded[api.RepairAnswer](t, r); v.Lost != "none" || v.Dropped != "none" {
			t.Errorf("%+v", v)
		}
	}
	ask.Content(t)
	ask("fact", "get", "k200").Wants(t, "fact get", cli.ExitGood)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheAdviceOnAHostThatIsDegradedIsFollowed: of the check hosts. The disk of a host that stands by
// is read-only as it starts.
func TestTheAdviceOnAHostThatIsDegradedIsFollowed(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	flags := []string{"--nats", server.URL(), "--accept-lossy-broker", "--lease-ttl", "2s", "--holder"}
	holder := cmdtest.ServeFor(t, cmdtest.DataDir(t), append(flags, "host-a")...)
	ask := holder.Asks(t, "default")
	disk, data := cmdtest.SmallDisk(t), cmdtest.DataDir(t)
	onDisk(t, data, disk, "executor")
	cmdtest.ServeFor(t, data, append(flags, "host-b")...).End(t).Wants(t, "serve", cli.ExitGood)
	readOnly(t, disk, true)
	command := cmdtest.ServeCommand(t, data, append(flags, "host-b")...)
	stdin, err := command.StdinPipe()
	if err := errors.Join(err, command.Start()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }() // ends with the process
	t.Cleanup(func() { _ = command.Process.Kill() })
	f := ask.Advised(t, "hosts")
	if f.Next != "make room on its disk, or make it writable; that host then goes on by itself" ||
		!strings.HasPrefix(f.Details[0], "host-b: degraded") {
		t.Errorf("%+v", f)
	}
	readOnly(t, disk, false)
	ask.Content(t, "durability", "key") // the server need not sync, and the hosts have keys of their own
	if f := ask.Findings(t)["hosts"]; f.Text != "1 host would take over" {
		t.Errorf("%+v", f)
	}
	if err := errors.Join(stdin.Close(), <-ended); err != nil {
		t.Error(err)
	}
	holder.End(t).Wants(t, "serve", cli.ExitGood)
}
