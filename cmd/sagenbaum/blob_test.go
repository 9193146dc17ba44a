package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/blob"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// interrupted reads a value, and does something else when half of it was read.
type interrupted struct {
	io.Reader
	half int
	then func()
}

func (r *interrupted) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.half -= n; r.half <= 0 && r.then != nil {
		r.then()
		r.then = nil
	}
	return n, err
}

// TestABlobIsWrittenByThoseWhoMaySeeIt, byte for byte, also where its server was killed while it
// was stored; whatever else is asked for changes nothing.
func TestABlobIsWrittenByThoseWhoMaySeeIt(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	agent, err := coordinator.New(coordinator.Config{Conn: cmdtest.Dial(t, s.URL), Tenant: "default", Agent: "coder"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 3<<20+17)
	_, _ = rand.Read(value)
	ref, err := p.PutBlob(t.Context(), &interrupted{bytes.NewReader(value), len(value) / 2, func() {
		s.Kill9(t)
		s = s.Again(t)
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	reveals, plain := s.User(t, "ana", "operator", "--reveal"), s.User(t, "bob", "operator")
	text, file := ref.Plan+"/"+ref.Digest, filepath.Join(t.TempDir(), "f")
	run := func(code int, says string, args ...string) cmdtest.Result {
		t.Helper()
		r := cmdtest.Run(t, append([]string{"plan", "blob", "--server", s.URL, "--timeout", "60s"}, args...)...)
		r.Wants(t, "plan blob", code, says)
		return r
	}
	if r := run(cli.ExitGood, "", text, "--out", "-", "--creds", reveals); r.Stdout != string(value) {
		t.Errorf("%d bytes", len(r.Stdout))
	}
	run(cli.ExitGood, "", text, "--out", file)
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	run(cli.ExitFailed, "exists", text, "--out", file)
	other := filepath.Join(t.TempDir(), "g")
	missing := blob.Ref{Plan: "p", Digest: ref.Digest[32:] + ref.Digest[:32]}
	run(cli.ExitFailed, "not in the store", "p/"+missing.Digest, "--out", other)
	run(cli.ExitFailed, "not in the ledger", "q/"+ref.Digest, "--out", other)
	run(cli.ExitNotAllowed, "operator gives bob", text, "--out", other, "--creds", plain)
	run(cli.ExitUsage, "--out", text)
	run(cli.ExitUsage, "PLAN/DIGEST", "p", "--out", other)
	run(cli.ExitUsage, "PLAN/DIGEST", "p/XYZ", "--out", other)
	run(cli.ExitFailed, "no such file", text, "--out", filepath.Join(other, "in", "none"))
	if left, err := os.ReadDir(filepath.Dir(other)); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
