package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A key is made before the server starts, rotated while it runs, and signs the
// checkpoint that status shows; a host that has lost it says so, and an operator puts
// another one in its place.
func TestKeysAreMadeListedAndRotatedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dir, keys := cmdtest.DataDir(t), filepath.Join(t.TempDir(), "keys")
	s := new(cmdtest.Served)
	made := s.Ask(t, "default", "key", "new", "--keys", keys)
	made.Wants(t, "key new", cli.ExitGood)
	first := strings.TrimSpace(made.Stdout)
	if !strings.HasPrefix(first, "sagenbaum/default+") {
		t.Fatalf("key new said %q", made.Stdout)
	}
	s.Ask(t, "default", "key", "new", "--keys", keys).Wants(t, "key new twice", cli.ExitConflict, "key rotate")
	s.Ask(t, "default", "key", "rotate").Wants(t, "key rotate without a reason", cli.ExitUsage, "--reason")
	s = cmdtest.ServeFor(t, dir, "--keys", keys, "--sign-after", "100ms")
	s.Ask(t, "default", "fact", "put", "k", "1").Wants(t, "fact put", cli.ExitGood)
	rotated := s.Ask(t, "default", "key", "rotate", "--reason", "a year is over", "--actor", "alice", "-o", "json")
	rotated.Wants(t, "key rotate", cli.ExitGood)
	answer := cmdtest.Decoded[api.RotationAnswer](t, rotated)
	if answer.OldKey != first || !answer.Signed {
		t.Fatalf("%+v, the first key is %s", answer, first)
	}
	listed := s.Ask(t, "default", "key", "ls", "--keys", keys, "-o", "json")
	listed.Wants(t, "key ls", cli.ExitGood)
	if have := cmdtest.Decoded[[]proof.Key](t, listed); len(have) != 2 || have[0].Verifier != first ||
		have[1].Verifier != answer.NewKey || !have[1].Signs {
		t.Fatalf("%+v", have)
	}
	ask := s.Asks(t, "default")
	rotation := cmdtest.Decoded[api.Status](t, ask("status", "-o", "json")).Records
	ask("fact", "put", "k", "2").Wants(t, "fact put", cli.ExitGood)
	checkpoint := awaitSigned(t, ask, rotation) // of a record after it
	if checkpoint.Key != answer.NewKey || len(checkpoint.Rotations) != 1 || checkpoint.Rotations[0].Actor != "alice" {
		t.Fatalf("%+v", checkpoint)
	}
	text, err := os.ReadFile(filepath.Join(dir, "executor", "tiles", "default", "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(answer.NewKey)
	if err != nil {
		t.Fatal(err)
	}
	if c, _, err := ledger.OpenCheckpoint(text, "default", note.VerifierList(verifier)); err != nil ||
		c.Size < checkpoint.Size {
		t.Fatalf("%+v, %v", c, err)
	}
	if doctor := s.Ask(t, "default", "doctor"); doctor.Code != cli.ExitGood ||
		!strings.Contains(doctor.Stdout, "checkpoint") {
		t.Errorf("doctor:\n%s", doctor.Stdout)
	}
	s.End(t)
	s = cmdtest.ServeFor(t, dir, "--keys", t.TempDir(), "--sign-after", "100ms")
	f := asking(t, s.URL).Advised(t, "checkpoint")
	if !strings.HasPrefix(f.Text, "nothing is signed") {
		t.Errorf("%+v", f)
	}
	if status := s.Ask(t, "default", "status"); !strings.Contains(status.Stdout,
		answer.NewKey[len("sagenbaum/default+"):][:8]) {
		t.Errorf("status does not name the key:\n%s", status.Stdout)
	}
	if said := asking(t, s.URL).Follow(t, f); !strings.Contains(said, answer.NewKey) ||
		!strings.Contains(said, "the old key was lost and has signed nothing") {
		t.Errorf("%+v says %s", f, said)
	}
	asking(t, s.URL).Content(t)
	s.End(t)
}

// A folder that is none of keys is said to be so, and is no empty list; a file beside the
// keys is left alone, and a key that cannot sign is not said to.
func TestKeyLsOfAFolderThatIsNotOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := func(name string, files ...string) string {
		for _, file := range files {
			path := filepath.Join(dir, name, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
				os.WriteFile(path, []byte("x\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Join(dir, name)
	}
	list := func(keys string) cmdtest.Result {
		return cmdtest.Run(t, "key", "ls", "--keys", keys, "-o", "json")
	}
	ours := filepath.Join(dir, "ours")
	made := cmdtest.Run(t, "key", "new", "--keys", ours)
	made.Wants(t, "key new", cli.ExitGood)
	cmdtest.Run(t, "key", "new", "--keys", filepath.Join(dir, "second"), "--tenant", "second").Wants(t,
		"key new", cli.ExitGood)
	second := filepath.Join(dir, "second", "second")
	if err := os.CopyFS(filepath.Join(dir, "another's", "default"), os.DirFS(second)); err != nil {
		t.Fatal(err)
	}
	for keys, said := range map[string]string{
		filepath.Join(dir, "nothing"):                                 "there is no such folder",
		folder("home", "id_ed25519.pub", "known_hosts"):               "has no keys, and other things",
		folder("stranger", "default/readme.pub"):                      "has no keys, and other things",
		filepath.Join(folder("file", "default"), "default"):           "is no folder",
		filepath.Join(ours, "default"):                                "is the folder of one tenant's keys",
		filepath.Join(dir, "another's"):                               `the key of "sagenbaum/second"`,
		folder("broken", "default/0123abcd.pub"):                      `"x" is no verifier key`,
		filepath.Join(folder("tiles", "default/tile/0/000"), "tiles"): "there is no such folder",
	} {
		r := list(keys)
		r.Wants(t, "key ls of "+keys, cli.ExitFailed, said, "next: ")
		if r.Stdout != "" {
			t.Errorf("key ls of %s prints %q", keys, r.Stdout)
		}
	}
	if have := cmdtest.Decoded[[]proof.Key](t, list(t.TempDir())); len(have) != 0 {
		t.Errorf("in an empty folder: %+v", have)
	}
	if have := cmdtest.Decoded[[]proof.Key](t, list(filepath.Join(dir, "second"))); len(have) != 0 {
		t.Errorf("where another tenant's keys are: %+v", have)
	}
	folder("ours", "default/notes.txt", "default/copy.pub", "default/9.pub")
	have := cmdtest.Decoded[[]proof.Key](t, list(ours))
	if len(have) != 1 || have[0].Verifier != strings.TrimSpace(made.Stdout) || !have[0].Signs || have[0].Problem != "" {
		t.Fatalf("beside other files: %+v", have)
	}
	secret := strings.TrimSuffix(have[0].Path, ".pub") + ".key"
	if err := os.WriteFile(secret, []byte("not a key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if have := cmdtest.Decoded[[]proof.Key](t, list(ours)); len(have) != 1 || have[0].Signs ||
		!strings.Contains(have[0].Problem, "is no key") {
		t.Errorf("with a key that is none: %+v", have)
	}
}
