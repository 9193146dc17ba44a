package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// copied copies a data folder, with these files of the folder of keys beside it.
func copied(t *testing.T, dir string, keys ...string) string {
	t.Helper()
	to := cmdtest.DataDir(t)
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
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	cmdtest.Until(t, ctx, "the manifest that names rows of before is gone", func() bool {
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
	all := copied(t, p.Dir, "master.key", filepath.Join("tenants", "default.key"))
	most := copied(t, p.Dir, "master.key")

	s := cmdtest.ServeFor(t, p.Dir)
	erase := func(code int, typed string, args ...string) cmdtest.Result {
		t.Helper()
		command := cmdtest.Sagenbaum(t, append([]string{"tenant", "erase", "default", "--server", s.URL, "--actor", "ana"},
			args...)...)
		command.Stdin = strings.NewReader(typed)
		r := cmdtest.Finished(t, command)
		r.Wants(t, "tenant erase "+strings.Join(args, " "), code)
		return r
	}
	erase(cli.ExitUsage, "default\n")
	erase(cli.ExitUsage, "defualt\n", "--reason", "x")
	erase(cli.ExitUsage, "", "--reason", "x")
	s.Ask(t, "default", "plan", "show", "trip-to-erase", "--reveal").Wants(t, "plan show", cli.ExitGood)
	first := erase(cli.ExitGood, "default\n", "--reason", "the contract has ended")
	says(t, first, "tenant default was erased by ana (", "the contract has ended", "root ", "signed by", "destroyed",
		"by host ")
	if again := erase(cli.ExitGood, "", "--reason", "y", "--confirm", "default"); again.Stdout != first.Stdout {
		t.Errorf("again: %s", again.Stdout)
	}
	shown := s.Ask(t, "default", "tenant", "show", "default")
	shown.Wants(t, "tenant show", cli.ExitGood)
	says(t, shown, "erased", "the contract has ended")
	s.Ask(t, "default", "plan", "ls").Wants(t, "plan ls", cli.ExitFailed, "was erased by ana")
	s.Ask(t, "default", "doctor").Wants(t, "doctor", cli.ExitGood)
	asked := s.Ask(t, "default", "tenant", "show", "default", "-o", "json")
	e := cmdtest.Decoded[api.Status](t, asked).Erased
	if e == nil || len(e.Notes) != 2 {
		t.Fatalf("%+v", e)
	}
	said, err := proof.OpenErasure("default", e.Key, e.Notes[1])
	if err != nil || said.Done == nil || said.Actor != "ana" {
		t.Errorf("%+v, %v", said, err)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)

	s = cmdtest.ServeFor(t, p.Dir) // the name is not used again
	s.Ask(t, "default", "tenant", "show", "default").Wants(t, "after a restart", cli.ExitGood)
	unnamed(t, p.Dir, "trip-to-erase")
	s.End(t).Wants(t, "serve", cli.ExitGood)
	hidden(t, p.Dir, "trip-to-erase", "pay.charge", "pay.refund")
	if _, err := os.Stat(filepath.Join(p.Dir+".keys", "tenants", "default.key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tenant's key: %v", err)
	}
	s = cmdtest.ServeFor(t, p.Dir, "--tenant", "other") // nobody serves the name
	says(t, s.Ask(t, "default", "tenant", "show", "default"), "was erased by ana")
	s.End(t).Wants(t, "serve", cli.ExitGood)

	hidden(t, most)
	s = cmdtest.ServeFor(t, most)
	r := s.Ask(t, "default", "plan", "show", "trip-to-erase", "--reveal")
	r.Wants(t, "with the copy and the master key", cli.ExitFailed, "there is no key of this tenant")
	hides(t, "plan show", r.Stdout+r.Stderr)
	s.End(t).Wants(t, "serve", cli.ExitGood)
	s = cmdtest.ServeFor(t, all) // what the erasure does not reach, so that the test before shows something
	says(t, s.Ask(t, "default", "plan", "show", "trip-to-erase", "--reveal"), cardNumber, token)
	s.End(t).Wants(t, "serve", cli.ExitGood)
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
			p.URL}
		erase := cmdtest.Sagenbaum(t, line...)
		if err := erase.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(pause)
		_ = p.Command.Process.Kill()
		_ = p.Command.Wait()
		_ = erase.Process.Kill()
		_ = erase.Wait()
		s := cmdtest.ServeAs(t, p.Dir, cmdtest.ServeCommand(t, p.Dir, "--listen", strings.TrimPrefix(p.URL, "nats://")))
		cmdtest.Run(t, line...).Wants(t, "tenant erase again", cli.ExitGood, "")
		shown := s.Ask(t, "default", "tenant", "show", "default")
		shown.Wants(t, "tenant show", cli.ExitGood)
		says(t, shown, "was erased by ana", "by host ")
		s.End(t).Wants(t, "serve", cli.ExitGood)
		if left, err := os.ReadDir(filepath.Join(p.Dir+".keys", "tenants")); err != nil || len(left) != 0 {
			t.Errorf("after %s: %v, %v", pause, left, err)
		}
	}
}

// TestAnErasedTenantStaysErasedWithoutTheServersFolder: the record of it is beside the tiles, too. No
// flag and no `tenant add` brings the name back, and its users do not get in.
func TestAnErasedTenantStaysErasedWithoutTheServersFolder(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir)
	s.Ask(t, "default", "tenant", "add", "shop", "--reason", "sells").Wants(t, "tenant add", cli.ExitGood)
	creds := s.User(t, "clerk", "operator")
	for _, tenant := range []string{"shop", "default"} {
		s.Ask(t, tenant, "tenant", "erase", tenant, "--reason", "it is over", "--confirm", tenant, "--actor",
			"ana").Wants(t, "tenant erase", cli.ExitGood)
	}
	s.End(t)
	must(t, os.RemoveAll(filepath.Join(dir, "nats")))

	for again := range 2 { // from beside the tiles, then from the stream again
		s = cmdtest.ServeFor(t, dir)
		for _, tenant := range []string{"shop", "default"} {
			shown := s.Ask(t, tenant, "tenant", "show", tenant)
			shown.Wants(t, "tenant show", cli.ExitGood)
			says(t, shown, "was erased by ana", "it is over")
			s.Ask(t, "default", "tenant", "add", tenant, "--reason", "again").Wants(t, "tenant add", cli.ExitFailed,
				"its name is never used again")
		}
		cmdtest.Run(t, "status", "--server", s.URL, "--creds", creds, "--tenant", "default").Wants(t,
			"status as a user of it", cli.ExitNotAllowed)
		s.Ask(t, "default", "tenant", "ls").Wants(t, "tenant ls", cli.ExitGood)
		s.End(t).Wants(t, "serve", cli.ExitGood)
		for _, tenant := range []string{"shop", "default"} {
			if again == 0 {
				must(t, os.Remove(filepath.Join(dir, "executor", "tiles", tenant+".erased")))
			}
		}
	}
}

// TestAnErasedTenantIsNoTenantOfTheDoorAndOfUsers: no agent asks again for ever, and no user is made
// who never gets in.
func TestAnErasedTenantIsNoTenantOfTheDoorAndOfUsers(t *testing.T) {
	t.Parallel()
	s := cmdtest.ServeFor(t, cmdtest.DataDir(t), "--http", "127.0.0.1:0")
	creds := s.User(t, "tripper", "agent")
	if status, a := askDoor(t, creds, "plan.begin", `{"plan":"p1"}`); status != http.StatusOK {
		t.Fatalf("before the erasure: %d %v", status, a)
	}
	s.Ask(t, "default", "tenant", "erase", "default", "--reason", "it is over", "--confirm", "default",
		"--force").Wants(t, "tenant erase", cli.ExitGood)
	if status, a := askDoor(t, creds, "plan.get", `{"plan":"p1"}`); status != http.StatusNotFound {
		t.Errorf("the door answers %d %v", status, a)
	}
	s.Ask(t, "default", "user", "add", "a5b", "--role", "agent").Wants(t, "user add", cli.ExitFailed,
		"does not serve it")
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
