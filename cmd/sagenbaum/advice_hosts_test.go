package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/host/proof/witnesstest"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// twoHosts are hosts on NATS servers that need not sync, with their folders in one.
type twoHosts struct{ dir string }

func (h twoHosts) path(name string, of ...string) string {
	return filepath.Join(append([]string{h.dir, name, "executor"}, of...)...)
}

func (h twoHosts) start(t *testing.T, url, name string) *cmdtest.Served {
	t.Helper()
	return cmdtest.ServeFor(t, filepath.Join(h.dir, name), "--nats", url, "--accept-lossy-broker", "--holder", name,
		"--lease-ttl", "2s")
}

// stop stops a host that holds or stands by.
func (h twoHosts) stop(t *testing.T, s *cmdtest.Served) {
	t.Helper()
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// facts has a source assert so many facts that a checkpoint is due at once.
func facts(t *testing.T, url, what string) {
	t.Helper()
	var records []string
	for i := range 1000 {
		records = append(records, fmt.Sprintf(`{"factAsserted":{"key":"%s%d","value":"MQ=="}}`, what, i))
	}
	publishJSON(t, cmdtest.Dial(t, url), "saga.default.fact.src", `{"records":[`+strings.Join(records, ",")+`]}`)
}

// awaitSigned waits for a checkpoint of more than so many records.
func awaitSigned(t *testing.T, ask cmdtest.Asking, above uint64) (signed api.Checkpoint) {
	t.Helper()
	cmdtest.Eventually(t, "a checkpoint", func() (string, bool) {
		r := ask("status", "-o", "json")
		if r.Code != cli.ExitGood && r.Code != cli.ExitLook {
			return r.Stderr, false
		}
		if c := cmdtest.Decoded[api.Status](t, r).Checkpoint; c != nil {
			signed = *c
		}
		return r.Stdout, signed.Size > above && signed.Problem == ""
	})
	return signed
}

// TestTheAdviceOnSeveralHostsIsFollowed: of the checks key, hosts and executor. A host has no key, a
// host comes back with a copy of another ledger, and the holder is killed.
func TestTheAdviceOnSeveralHostsIsFollowed(t *testing.T) {
	t.Parallel()
	url, elsewhere, hosts := bare(t), bare(t), twoHosts{cmdtest.DataDir(t)}
	ask := asking(t, url)
	a := hosts.start(t, url, "host-a")
	facts(t, url, "k")
	awaitSigned(t, ask, 0)
	b := hosts.start(t, url, "host-b")
	if f := ask.Advised(t, "key"); !strings.HasPrefix(f.Next, "copy the files of executor/keys/default ") ||
		!strings.Contains(f.Next, " from host-a to host-b") {
		t.Errorf("%+v", f)
	}
	must(t, os.CopyFS(hosts.path("host-b", "keys", "default"), os.DirFS(hosts.path("host-a", "keys", "default"))))
	ask.Content(t, lossy)

	c := hosts.start(t, elsewhere, "host-c")
	facts(t, elsewhere, "another")
	hosts.stop(t, c)
	hosts.stop(t, a)
	for _, folder := range []string{"state", "tiles"} {
		must(t, errors.Join(os.RemoveAll(hosts.path("host-a", folder)),
			os.CopyFS(hosts.path("host-a", folder), os.DirFS(hosts.path("host-c", folder)))))
	}
	a = hosts.start(t, url, "host-a")
	f := ask.Advised(t, "hosts")
	if !strings.HasPrefix(f.Next, "on that host: stop serve, move executor/state and executor/tiles/default of its data "+
		"away, and start serve again") || !strings.HasPrefix(f.Details[0], "host-a: halted") {
		t.Errorf("%+v", f)
	}
	if lines := cmdtest.Commands(f.Next); len(lines) != 0 {
		t.Errorf("a command would be the holder's: %v", lines)
	}
	hosts.stop(t, a)
	for _, of := range [][]string{{"state"}, {"tiles", "default"}} {
		must(t, os.Rename(hosts.path("host-a", of...), filepath.Join(t.TempDir(), "away")))
	}
	a = hosts.start(t, url, "host-a")
	ask.Content(t, lossy)

	b.Kill9(t) // the other takes over while the doctor looks again, as a rule
	f = ask.Findings(t)["executor"]
	if f.State != "ok" && !strings.Contains(f.Next, "in a few seconds: a host that stands by takes over") {
		t.Errorf("%+v", f)
	}
	ask.Content(t, lossy)
	hosts.stop(t, a)
}

// TestTheAdviceOnAKeyThatIsAwayIsFollowed: of the check checkpoint. The keys of the host are put back
// from a copy, and when there is none any more another one takes the place of the lost one.
func TestTheAdviceOnAKeyThatIsAwayIsFollowed(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	keys, backup := filepath.Join(dir, "executor", "keys"), filepath.Join(t.TempDir(), "backup")
	s := cmdtest.ServeFor(t, dir, "--sign-after", "100ms")
	ask := asking(t, s.URL)
	facts(t, s.URL, "k")
	size := awaitSigned(t, ask, 0).Size
	auditors := cmdtest.Decoded[api.Status](t, ask("status", "-o", "json")).Checkpoint.Key
	s.End(t).Wants(t, "serve", cli.ExitGood)
	must(t, os.Rename(keys, backup))
	s = s.Again(t, "--sign-after", "100ms")
	facts(t, s.URL, "l")
	if f := ask.Advised(t, "checkpoint"); !strings.HasPrefix(f.Next, "copy the folder of keys from the host that has "+
		"signed, or from a backup") {
		t.Errorf("%+v", f)
	}
	must(t, os.CopyFS(keys, os.DirFS(backup)))
	signing, err := filepath.Glob(filepath.Join(keys, "*", "*.key"))
	must(t, err)
	for _, key := range signing { // the copy has the modes of new files
		must(t, os.Chmod(key, 0o600))
	}
	ask.Content(t)
	awaitSigned(t, ask, size)

	s.End(t).Wants(t, "serve", cli.ExitGood)
	must(t, os.RemoveAll(keys))
	s = s.Again(t, "--sign-after", "100ms")
	facts(t, s.URL, "m")
	f := ask.Advised(t, "checkpoint")
	if !strings.Contains(f.Next, "if no copy is left, with the one that auditors have: sagenbaum key rotate --lost") {
		t.Errorf("%+v", f)
	}
	f.Next = strings.Replace(f.Next, "VERIFIER-KEY", auditors, 1)
	if said := ask.Follow(t, f); !strings.Contains(said, "the old key was lost and has signed nothing") {
		t.Errorf("%+v says %s", f, said)
	}
	ask.Content(t)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestTheAdviceOnAnotherHistoryIsFollowed: of the checks witness and checkpoint. The witness does not
// know the tenant's key, and is given it. Then an older copy of the data is put back, from which
// another history grows: the witness has seen the other one, and so has the checkpoint that is
// there. With the newest copy in its place all is well.
func TestTheAdviceOnAnotherHistoryIsFollowed(t *testing.T) {
	t.Parallel()
	dir, w := cmdtest.DataDir(t), witnesstest.New(t, "default")
	s := cmdtest.ServeFor(t, dir, "--witness", w.URL, "--witness-key", w.Key)
	again := func() {
		t.Helper()
		s = s.Again(t, "--witness", w.URL, "--witness-key", w.Key)
	}
	ask := asking(t, s.URL)
	facts(t, s.URL, "k")
	size := awaitSigned(t, ask, 0).Size
	f := ask.Advised(t, "witness")
	key := cmdtest.Decoded[api.Status](t, ask("status", "-o", "json")).Checkpoint.Key
	if !strings.HasPrefix(f.Next, "start the witness, or give it the tenant's verifier key "+key+";") {
		t.Errorf("%+v", f)
	}
	w.Trusts(key)
	facts(t, s.URL, "l")
	size = awaitSigned(t, ask, size).Size
	ask.Content(t)

	s.End(t).Wants(t, "serve", cli.ExitGood)
	older, newest := filepath.Join(t.TempDir(), "older"), filepath.Join(t.TempDir(), "newest")
	if out, err := exec.Command("cp", "-a", dir, older).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	again()
	facts(t, s.URL, "m")
	size = awaitSigned(t, ask, size).Size
	ask.Content(t)
	s.End(t).Wants(t, "serve", cli.ExitGood)
	checkpoint := filepath.Join("executor", "tiles", "default", "checkpoint")
	signed, err := os.ReadFile(filepath.Join(dir, checkpoint))
	must(t, errors.Join(err, os.Rename(dir, newest), os.Rename(older, dir)))
	again()
	facts(t, s.URL, "another")
	const history = "Was an older copy of the data put back? Then stop serve, and put the newest one back"
	cmdtest.Eventually(t, "the witness alarms", func() (string, bool) {
		f = ask.Findings(t)["witness"]
		return f.Text, f.State == "FAIL"
	})
	if !strings.Contains(f.Next, history) {
		t.Errorf("%+v", f)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
	must(t, os.WriteFile(filepath.Join(dir, checkpoint), signed, 0o600))
	again()
	facts(t, s.URL, "other")
	if f = ask.Advised(t, "checkpoint"); f.State != "FAIL" || !strings.Contains(f.Next, history) {
		t.Errorf("%+v", f)
	}

	s.End(t).Wants(t, "serve", cli.ExitGood)
	must(t, errors.Join(os.Rename(dir, filepath.Join(t.TempDir(), "away")), os.Rename(newest, dir)))
	again()
	facts(t, s.URL, "n")
	awaitSigned(t, ask, size)
	ask.Content(t)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
