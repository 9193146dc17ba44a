package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/verify"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/demo"
)

// checkedFile is the report on a bundle.
func checkedFile(t *testing.T, file string, o verify.Options) *verify.Report {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := verify.Check(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// exportLedger exports the ledger of the demo whole, in part and one plan of it: nothing
// is found in any, and what is exported in two runs is what is exported in one.
func exportLedger(t *testing.T, s *served) {
	dir := t.TempDir()
	whole, plan, rest := filepath.Join(dir, "whole"), filepath.Join(dir, "plan"), filepath.Join(dir, "rest")
	s.ask(t, demo.Tenant, "ledger", "export", "-f", whole).wants(t, "ledger export", cli.ExitGood)
	r := checkedFile(t, whole, verify.Options{AtRest: true})
	if len(r.Findings) > 0 || r.Plans[ledger.StateCompensated] != 3 || r.Plans[ledger.StateResolved] != 1 ||
		r.Held != 0 || r.First != 1 {
		t.Errorf("the bundle of the demo: %+v", r)
	}
	for _, d := range r.Doubts {
		if d.About != "signatures" {
			t.Errorf("%+v", d)
		}
	}
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(whole, data[:len(data)*2/3], 0o600); err != nil {
		t.Fatal(err)
	}
	s.ask(t, demo.Tenant, "ledger", "export", "-f", whole).wants(t, "an export that goes on", cli.ExitGood)
	if again := checkedFile(t, whole, verify.Options{}); again.Size < r.Size || len(again.Findings) > 0 {
		t.Errorf("the bundle that was continued: %+v", again)
	}
	s.ask(t, demo.Tenant, "ledger", "export", "--plan", "act-three", "-f", plan).wants(t, "export of a plan",
		cli.ExitGood)
	if p := checkedFile(t, plan, verify.Options{}); len(p.Findings) > 0 || p.Withheld == 0 ||
		p.Plans[ledger.StateResolved] != 1 || len(p.Plans) != 1 {
		t.Errorf("the bundle of a plan: %+v", p)
	}
	s.ask(t, demo.Tenant, "ledger", "export", "--since", "20", "-f", rest).wants(t, "export of the rest", cli.ExitGood)
	if p := checkedFile(t, rest, verify.Options{}); len(p.Findings) > 0 || p.First != 20 {
		t.Errorf("the bundle of the rest: %+v", p)
	}
	s.ask(t, demo.Tenant, "ledger", "export", "--since", "30", "-f", rest).wants(t, "another export into a file",
		cli.ExitFailed, "holds something else")
	s.ask(t, demo.Tenant, "ledger", "export", "--since", "9999", "-f", rest+"2").wants(t,
		"export from what is not there", cli.ExitFailed, "9999")
	if _, err := os.Stat(rest + "2"); err == nil {
		t.Error("a failed export leaves an empty file")
	}
	s.ask(t, demo.Tenant, "ledger", "export", "--plan", "nobody", "-f", plan).wants(t, "export of no plan",
		cli.ExitFailed, "never opened")
	s.ask(t, demo.Tenant, "ledger", "export").wants(t, "export to nowhere", cli.ExitUsage, "-f FILE")
	s.ask(t, demo.Tenant, "ledger", "export", "--plan", "p", "--since", "2", "-f", plan).wants(t, "both", cli.ExitUsage,
		"exclude")
	if left, _ := filepath.Glob(filepath.Join(dir, ".export-*")); len(left) > 0 {
		t.Errorf("it left %v behind", left)
	}
	filtered := s.ask(t, demo.Tenant, "ledger", "tail", "--since", "1", "--filter",
		`kind == "resolved" && class == "operator"`)
	filtered.wants(t, "ledger tail --filter", cli.ExitGood)
	if !strings.Contains(filtered.stdout, "resolved") || strings.Count(filtered.stdout, "\n") != 1 {
		t.Errorf("--filter prints\n%s", filtered.stdout)
	}
	s.ask(t, demo.Tenant, "ledger", "tail", "--filter", "record.term > 1").wants(t, "a filter that is never answered",
		cli.ExitGood, "could not be answered")
	s.ask(t, demo.Tenant, "ledger", "tail", "--filter", "kid").wants(t, "a filter that is none", cli.ExitUsage,
		"did you mean kind")
}

// TestAFileOfAnotherLedgerIsNotContinued: the ledger that is served must have grown from
// what the file holds, and the file stays as it was.
func TestAFileOfAnotherLedgerIsNotContinued(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle")
	one := serveFor(t, dataDir(t))
	one.ask(t, "default", "fact", "put", "a", "1").wants(t, "fact put", cli.ExitGood)
	one.ask(t, "default", "ledger", "export", "-f", file).wants(t, "ledger export", cli.ExitGood)
	one.end(t)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	two := serveFor(t, dataDir(t))
	for _, key := range []string{"a", "b", "c"} {
		two.ask(t, "default", "fact", "put", key, "2").wants(t, "fact put", cli.ExitGood)
	}
	two.ask(t, "default", "ledger", "export", "-f", file).wants(t, "an export into the file of another ledger",
		cli.ExitFailed, "another history")
	two.end(t)
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Fatal("the file was changed", err)
	}
}

// TestAnExportGoesOnWhereTheServerWasKilled with -9 in the middle of it: what came is
// kept, and the file that was written in two runs is proven like one.
func TestAnExportGoesOnWhereTheServerWasKilled(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	s := serveFor(t, data, "--listen", "127.0.0.1:0", "--open") // the test listens to what hosts are asked
	conn := dial(t, s.url)
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
		if _, err := conn.Request(source.Subject(), commit, 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	address, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	watcher, server := dial(t, s.url), s.command.Process
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
	s.ask(t, "default", "ledger", "export", "-f", file, "--timeout", "2s").wants(t, "an export of a server that dies",
		cli.ExitNoServer)
	s.command.Wait()
	part := checkedFile(t, file, verify.Options{})
	if part.Size == 0 || part.Size >= messages*facts || len(part.Findings) > 0 || part.Verdict != verify.CannotTell {
		t.Fatalf("what came of it: %d records, %+v %+v", part.Size, part.Findings, part.Doubts)
	}
	s = serveFor(t, data, "--listen", address.Host, "--open")
	s.ask(t, "default", "ledger", "export", "-f", file).wants(t, "the export goes on", cli.ExitGood)
	key := decoded[view.Status](t, s.ask(t, "default", "status", "-o", "json")).Checkpoint.Key
	whole := checkedFile(t, file, verify.Options{Keys: []string{key}, AtRest: true})
	if whole.Verdict != verify.Proven || whole.Size < messages*facts || whole.Signed.Size != whole.Size {
		t.Fatalf("%s: %d records, %d signed, %+v %+v", whole.Verdict, whole.Size, whole.Signed.Size, whole.Findings,
			whole.Doubts)
	}
	s.end(t).wants(t, "serve", cli.ExitGood)
}
