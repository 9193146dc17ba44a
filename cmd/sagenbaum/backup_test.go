package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// shown is the script of the guide to backups that has a text.
func shown(t *testing.T, text string) string {
	t.Helper()
	page, err := os.ReadFile(cmdtest.InCheckout(t, "docs", "guide", "backup.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(page), "```sh\n")[1:] {
		if script, _, _ := strings.Cut(block, "```"); strings.Contains(script, text) {
			return script
		}
	}
	t.Fatalf("the guide has no script with %q", text)
	return ""
}

// backup runs a script that copies a server's folders, and gives where the copy is.
func (p *paying) backup(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = cmdtest.DataDir(t)
	copying := exec.CommandContext(t.Context(), "sh", "-c", script)
	copying.Env = append(os.Environ(), "DATA="+p.Dir, "BACKUP="+dir, "KEYS="+dir+".keys")
	if said, err := copying.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	} else if len(said) > 0 {
		t.Logf("the copy says %s", said)
	}
	return dir
}

// restored starts a copy and wants these plans of it as they were: readable, and undone when someone
// asks. A user who is in the copy gets in. It reports whether the tenant was halted.
func (p *paying) restored(t *testing.T, dir, creds string, plans []string) (halted bool) {
	t.Helper()
	s := cmdtest.ServeFor(t, dir)
	status := s.Ask(t, "default", "status")
	if halted = strings.Contains(status.Stdout, "G3"); halted {
		status.Wants(t, "status", cli.ExitLook)
		repaired := s.Ask(t, "default", "ledger", "repair", "--reason", "restored")
		repaired.Wants(t, "ledger repair", cli.ExitGood)
		says(t, repaired, "lost         none")
	}
	for _, plan := range plans {
		got := s.Ask(t, "default", "plan", "show", plan, "--reveal")
		got.Wants(t, "plan show "+plan, cli.ExitGood)
		says(t, got, cardNumber, token)
	}
	p.Served = s
	p.join(t)
	last := plans[len(plans)-1]
	s.Ask(t, "default", "undo", "--plan", last, "--reason", "sold out", "--yes").Wants(t, "undo "+last, cli.ExitGood)
	cmdtest.Run(t, "plan", "show", last, "--server", s.URL, "--creds", creds, "--tenant", "default").Wants(t,
		"plan show with the credentials of a user", cli.ExitGood)
	p.leave(t)
	s.End(t).Wants(t, "serve", cli.ExitGood)
	return halted
}

// TestABackupIsRestored, whichever way of docs/guide/backup.md has made it: what was acknowledged
// before is there, with its sealed values, and is undone. Users get in with what they have.
func TestABackupIsRestored(t *testing.T) {
	t.Parallel()
	const whole = `cp -a "$DATA" "$BACKUP" && cp -a "$DATA.keys" "$KEYS"`
	// cp fails where a file is removed meanwhile, with a copy of all others
	const busy = `cp -a "$DATA" "$BACKUP"; cp -a "$DATA.keys" "$KEYS"`
	for name, c := range map[string]struct {
		script      string
		stop, whole bool
	}{
		"stopped":                  {whole, true, true},
		"while it serves":          {shown(t, "SAGA_"), false, true},
		"while it serves, at once": {busy, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPaying(t)
			creds := p.User(t, "ana", "operator", "--tenant", "default")
			var plans []string
			for i := range 5 {
				plans = append(plans, fmt.Sprintf("before-%d", i))
				if err := p.charge(t, plans[i]).Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var dir string
			if c.stop {
				p.leave(t)
				p.stop(t)
				dir = p.backup(t, c.script)
			} else {
				p.working(t, func() { dir = p.backup(t, c.script) })
				p.leave(t)
				p.stop(t)
			}
			if halted := p.restored(t, dir, creds, plans); halted && c.whole {
				t.Error("a tenant of the copy was halted")
			}
		})
	}
}

// working has the agent charge one card after another while something is done.
func (p *paying) working(t *testing.T, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			if err := p.charge(t, fmt.Sprintf("during-%d", i)).Commit(t.Context()); err != nil {
				t.Error(err)
				return
			}
			if i == 0 {
				close(begun)
			}
		}
	}()
	defer func() {
		cancel()
		<-ended
	}()
	select {
	case <-begun:
		do()
	case <-ended:
	}
}
