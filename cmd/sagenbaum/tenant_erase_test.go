package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/executor/view"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// copied copies a data folder, with these files of the folder of keys beside it.
func copied(t *testing.T, dir string, keys ...string) string {
	t.Helper()
	to := dataDir(t)
	err := os.CopyFS(to, os.DirFS(dir))
	// A copy that keeps no modes is refused: its credentials could be read by others.
	err = errors.Join(err, os.Chmod(filepath.Join(to, "auth", "local.creds"), 0o600))
	for _, name := range keys {
		text, problem := os.ReadFile(filepath.Join(dir+".keys", name))
		if err = errors.Join(err, problem); err == nil {
			secretFile(t, filepath.Join(to+".keys", name), string(text))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// hidden wants none of the secrets in any file of a folder, and none of the texts.
func hidden(t *testing.T, dir string, texts ...string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		hides(t, path, string(content))
		for _, text := range texts {
			if strings.Contains(string(content), text) {
				t.Errorf("%s has %q", path, text)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// unnamed waits until no manifest of the state names a row any more: a host that starts again
// takes its time for it.
func unnamed(t *testing.T, dir, row string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), torturePace)
	defer cancel()
	until(t, ctx, "the manifest that names rows of before is gone", func() bool {
		names, err := filepath.Glob(filepath.Join(dir, "executor", "state", "MANIFEST-*"))
		snapshots, problem := filepath.Glob(filepath.Join(dir, "executor", "snapshots", "*", "MANIFEST-*"))
		err = errors.Join(err, problem)
		for _, name := range append(names, snapshots...) {
			text, problem := os.ReadFile(name)
			if err = errors.Join(err, problem); strings.Contains(string(text), row) {
				return false
			}
		}
		return err == nil
	})
}

// TestTenantEraseIsForGoodAlsoForCopies: what was sealed is read by no one any more, not from a
// copy of the data that was made before either, with the master key; and what is left says who
// has erased the tenant, under its signature.
func TestTenantEraseIsForGoodAlsoForCopies(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	if err := p.charge(t, "trip-to-erase").Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.leave(t)
	p.stop(t)
	all := copied(t, p.dir, "master.key", filepath.Join("tenants", "default.key"))
	most := copied(t, p.dir, "master.key")

	s := serveFor(t, p.dir)
	erase := func(code int, typed string, args ...string) result {
		t.Helper()
		command := sagenbaum(t, append([]string{"tenant", "erase", "default", "--server", s.url, "--actor", "ana"},
			args...)...)
		command.Stdin = strings.NewReader(typed)
		r := finished(t, command)
		r.wants(t, "tenant erase "+strings.Join(args, " "), code)
		return r
	}
	erase(cli.ExitUsage, "default\n")
	erase(cli.ExitUsage, "defualt\n", "--reason", "x")
	erase(cli.ExitUsage, "", "--reason", "x")
	s.ask(t, "default", "plan", "show", "trip-to-erase", "--reveal").wants(t, "plan show", cli.ExitGood)
	first := erase(cli.ExitGood, "default\n", "--reason", "the contract has ended")
	says(t, first, "tenant default was erased by ana (", "the contract has ended", "root ", "signed by", "destroyed",
		"by host ")
	if again := erase(cli.ExitGood, "", "--reason", "y", "--confirm", "default"); again.stdout != first.stdout {
		t.Errorf("again: %s", again.stdout)
	}
	shown := s.ask(t, "default", "tenant", "show", "default")
	shown.wants(t, "tenant show", cli.ExitGood)
	says(t, shown, "erased", "the contract has ended")
	s.ask(t, "default", "plan", "ls").wants(t, "plan ls", cli.ExitFailed, "was erased by ana")
	s.ask(t, "default", "doctor").wants(t, "doctor", cli.ExitGood)
	asked := s.ask(t, "default", "tenant", "show", "default", "-o", "json")
	e := decoded[view.Status](t, asked).Erased
	if e == nil || len(e.Notes) != 2 {
		t.Fatalf("%+v", e)
	}
	said, err := proof.OpenErasure("default", e.Key, e.Notes[1])
	if err != nil || said.Done == nil || said.Actor != "ana" {
		t.Errorf("%+v, %v", said, err)
	}
	s.end(t).wants(t, "serve", cli.ExitGood)

	s = serveFor(t, p.dir) // the name is not used again
	s.ask(t, "default", "tenant", "show", "default").wants(t, "after a restart", cli.ExitGood)
	unnamed(t, p.dir, "trip-to-erase")
	s.end(t).wants(t, "serve", cli.ExitGood)
	hidden(t, p.dir, "trip-to-erase", "pay.charge", "pay.refund")
	if _, err := os.Stat(filepath.Join(p.dir+".keys", "tenants", "default.key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tenant's key: %v", err)
	}
	s = serveFor(t, p.dir, "--tenant", "other") // nobody serves the name
	says(t, s.ask(t, "default", "tenant", "show", "default"), "was erased by ana")
	s.end(t).wants(t, "serve", cli.ExitGood)

	hidden(t, most)
	s = serveFor(t, most)
	r := s.ask(t, "default", "plan", "show", "trip-to-erase", "--reveal")
	r.wants(t, "with the copy and the master key", cli.ExitFailed, "there is no key of this tenant")
	hides(t, "plan show", r.stdout+r.stderr)
	s.end(t).wants(t, "serve", cli.ExitGood)
	s = serveFor(t, all) // what the erasure does not reach, so that the test before shows something
	says(t, s.ask(t, "default", "plan", "show", "trip-to-erase", "--reveal"), cardNumber, token)
	s.end(t).wants(t, "serve", cli.ExitGood)
}

// TestTenantEraseConvergesOverKills, whenever the server is killed.
func TestTenantEraseConvergesOverKills(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond,
		100 * time.Millisecond, 200 * time.Millisecond} {
		p := newPaying(t)
		if err := p.charge(t, "p1").Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.leave(t)
		line := []string{"tenant", "erase", "default", "--reason", "x", "--actor", "ana", "--confirm", "default", "--server",
			p.url}
		erase := sagenbaum(t, line...)
		if err := erase.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(pause)
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
		_ = erase.Process.Kill()
		_ = erase.Wait()
		s := serveAs(t, p.dir, serveCommand(t, p.dir, "--listen", strings.TrimPrefix(p.url, "nats://")))
		finished(t, sagenbaum(t, line...)).wants(t, "tenant erase again", cli.ExitGood, "")
		shown := s.ask(t, "default", "tenant", "show", "default")
		shown.wants(t, "tenant show", cli.ExitGood)
		says(t, shown, "was erased by ana", "by host ")
		s.end(t).wants(t, "serve", cli.ExitGood)
		if left, err := os.ReadDir(filepath.Join(p.dir+".keys", "tenants")); err != nil || len(left) != 0 {
			t.Errorf("after %s: %v, %v", pause, left, err)
		}
	}
}
