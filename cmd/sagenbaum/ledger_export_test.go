package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestAFileOfAnotherLedgerIsNotContinued: the ledger that is served must have grown from
// what the file holds, and the file stays as it was.
func TestAFileOfAnotherLedgerIsNotContinued(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle")
	one := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	one.Ask(t, "default", "fact", "put", "a", "1").Wants(t, "fact put", cli.ExitGood)
	one.Ask(t, "default", "ledger", "export", "-f", file).Wants(t, "ledger export", cli.ExitGood)
	one.End(t)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	two := cmdtest.ServeFor(t, cmdtest.DataDir(t))
	for _, key := range []string{"a", "b", "c"} {
		two.Ask(t, "default", "fact", "put", key, "2").Wants(t, "fact put", cli.ExitGood)
	}
	two.Ask(t, "default", "ledger", "export", "-f", file).Wants(t, "an export into the file of another ledger",
		cli.ExitFailed, "another history")
	two.End(t)
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Fatal("the file was changed", err)
	}
}

// TestAnExportGoesOnWhereTheServerWasKilled with -9 in the middle of it: what came is
// kept, and the file that was written in two runs is proven like one.
func TestAnExportGoesOnWhereTheServerWasKilled(t *testing.T) {
	t.Parallel()
	data := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, data, "--listen", "127.0.0.1:0", "--open") // the test listens to what hosts are asked
	conn := cmdtest.Dial(t, s.URL)
	source := ledger.Source{Tenant: "default", Class: ledger.ClassFact, Name: "filler"}
	const messages, facts = 120, 40
	for n := range messages {
		var records []*pb.Record
		for i := range facts {
			value := make([]byte, 1000)
			for at := range value { // that no packer makes smaller
				value[at] = '0' + byte(uint32((n*facts+i)*7919+at*104729)>>3%10)
			}
			value[0] = '1'
			records = append(records,
				&pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{Key: fmt.Sprint("k", n, ".", i),
					Value: value}}})
		}
		commit, err := ledger.EncodeCommit(records)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Request(source.Subject(), commit, testenv.Patience); err != nil {
			t.Fatal(err)
		}
	}
	address, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	watcher, server := cmdtest.Dial(t, s.URL), s.Command.Process
	_, err = watcher.Subscribe(api.AdminSubject("default", "ledger.export"), func(*nats.Msg) {
		if asked++; asked == 7 {
			server.Kill()
		}
	})
	if err == nil {
		err = watcher.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bundle")
	s.Ask(t, "default", "ledger", "export", "-f", file, "--timeout", "2s").Wants(t, "an export of a server that dies",
		cli.ExitNoServer)
	s.Command.Wait()
	part := cmdtest.CheckedFile(t, file, verify.Options{})
	if part.Size == 0 || part.Size >= messages*facts || len(part.Findings) > 0 || part.Verdict != verify.CannotTell {
		t.Fatalf("what came of it: %d records, %+v %+v", part.Size, part.Findings, part.Doubts)
	}
	s = cmdtest.ServeFor(t, data, "--listen", address.Host, "--open")
	s.Ask(t, "default", "ledger", "export", "-f", file).Wants(t, "the export goes on", cli.ExitGood)
	key := cmdtest.Decoded[api.Status](t, s.Ask(t, "default", "status", "-o", "json")).Checkpoint.Key
	whole := cmdtest.CheckedFile(t, file, verify.Options{Keys: []string{key}, AtRest: true})
	if whole.Verdict != verify.Proven || whole.Size < messages*facts || whole.Signed.Size != whole.Size {
		t.Fatalf("%s: %d records, %d signed, %+v %+v", whole.Verdict, whole.Size, whole.Signed.Size, whole.Findings,
			whole.Doubts)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestAnExportAsksAHostThatHasJustStartedAgain: it holds the tenant in a moment, and signs then.
func TestAnExportAsksAHostThatHasJustStartedAgain(t *testing.T) {
	t.Parallel()
	url := answering(t, nil)
	conn := cmdtest.Dial(t, url)
	var asked atomic.Int32
	for verb, answer := range map[string]func([]byte) any{
		api.LedgerSign.Name:   func([]byte) any { return api.SignAnswer{Later: asked.Add(1) < 3} },
		api.LedgerExport.Name: func([]byte) any { return api.ExportAnswer{} },
	} {
		answers(t, conn, api.AdminSubject("default", verb), answer)
	}
	r := cmdtest.Run(t, "ledger", "export", "--tiles", filepath.Join(t.TempDir(), "tiles"), "--server", url)
	r.Wants(t, "ledger export", cli.ExitFailed, "no checkpoint yet", "sagenbaum status")
	if n := asked.Load(); n != 3 {
		t.Errorf("the host was asked %d times to sign", n)
	}
}
