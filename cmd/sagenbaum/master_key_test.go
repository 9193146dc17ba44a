package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/executor/host/vault"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
)

var someMaster = strings.Repeat("ab", vault.MasterKeySize)

// secretFile makes a file that its owner alone may read.
func secretFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestServeTakesItsMasterKeyFromOnePlaceOutsideTheData, and says what is wrong with any other.
func TestServeTakesItsMasterKeyFromOnePlaceOutsideTheData(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	good := secretFile(t, filepath.Join(t.TempDir(), "key"), someMaster)
	inside := secretFile(t, filepath.Join(dir, "key"), someMaster)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(inside, link); err != nil {
		t.Fatal(err)
	}
	var environment string
	try := func(args ...string) cmdtest.Result {
		command := cmdtest.Sagenbaum(t, append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0"}, args...)...)
		command.Env = append(command.Env, environment)
		return cmdtest.Finished(t, command)
	}
	for _, c := range []struct {
		args        []string
		environment string
		code        int
		says        string
	}{
		{[]string{"--master-key", inside}, "", cli.ExitUsage, "lies inside --data"},
		{[]string{"--master-key", link}, "", cli.ExitUsage, "lies inside --data"},
		{[]string{"--tenant-keys", filepath.Join(dir, "keys")}, "", cli.ExitUsage, "lies inside --data"},
		{[]string{"--tenant-keys", filepath.Dir(dir)}, "", cli.ExitUsage, "lies inside the folder of tenants' keys"},
		{[]string{"--master-key", good, "--master-key-command", "true"}, "", cli.ExitUsage,
			"given twice: --master-key and --master-key-command"},
		{[]string{"--master-key", good}, someMaster, cli.ExitUsage,
			"given twice: --master-key and SAGENBAUM_MASTER_KEY"},
		{[]string{"--master-key-command", "echo no such key >&2; exit 3"}, "", cli.ExitFailed,
			"--master-key-command failed: exit status 3: no such key"},
		{[]string{"--master-key-command", "echo short"}, "", cli.ExitFailed,
			"the master key of what --master-key-command printed, is not 64 hex digits"},
		{[]string{"--master-key-command", "yes"}, "", cli.ExitFailed, "printed more than a key"},
		{nil, "tooshort", cli.ExitFailed, "the master key of SAGENBAUM_MASTER_KEY is not 64 hex digits"},
	} {
		environment = "SAGENBAUM_MASTER_KEY=" + c.environment
		r := try(c.args...)
		r.Wants(t, fmt.Sprint(c.args), c.code, c.says, "next: ")
		if strings.Contains(r.Stderr, someMaster) || strings.Contains(r.Stderr, "tooshort") {
			t.Errorf("%q: it says the key: %s", c.args, r.Stderr)
		}
	}
	for _, c := range []struct {
		args        []string
		environment string
	}{{[]string{"--master-key", good}, ""}, {[]string{"--master-key-command", "cat " + good}, ""},
		{nil, someMaster}} {
		command := cmdtest.ServeCommand(t, dir, c.args...)
		command.Env = append(command.Env, "SAGENBAUM_MASTER_KEY="+c.environment)
		s := cmdtest.ServeAs(t, dir, command)
		s.End(t).Wants(t, "serve", cli.ExitGood)
	}
	if _, err := os.Stat(filepath.Join(dir+".keys", "master.key")); err == nil {
		t.Error("a master key was made beside the one that was given")
	}
}

// TestTheMasterKeyOfAnEarlierVersionIsMovedOutOfTheData: what it has sealed is opened, no file
// of the data has it any more, and a move that was cut off goes on.
func TestTheMasterKeyOfAnEarlierVersionIsMovedOutOfTheData(t *testing.T) {
	t.Parallel()
	for _, half := range []bool{false, true} { // the kill came before the old one was removed
		dir := cmdtest.DataDir(t)
		legacy, moved := filepath.Join(dir, "master.key"), filepath.Join(dir+".keys", "master.key")
		secretFile(t, legacy, someMaster+"\n")
		if half {
			secretFile(t, moved, someMaster+"\n")
		}
		cmdtest.ServeFor(t, dir).End(t).Wants(t, "serve", cli.ExitGood)
		if text, err := os.ReadFile(moved); err != nil || strings.TrimSpace(string(text)) != someMaster {
			t.Errorf("%q, %v", text, err)
		}
		if _, err := os.Stat(legacy); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is in the data still: %v", err)
		}
		secretFile(t, legacy, strings.Repeat("cd", vault.MasterKeySize))
		cmdtest.Finished(t, cmdtest.ServeCommand(t, dir)).Wants(t, "two keys", cli.ExitFailed,
			"there are two master keys", "next: ")
	}
}

// keyed is a folder of tenants' keys under a master key in its default place.
func keyed(t *testing.T) (data string) {
	t.Helper()
	p := newPaying(t)
	if err := p.charge(t, "p1").Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.leave(t)
	p.stop(t)
	return p.Dir
}

// TestKeyRewrapChangesTheMasterKeyAndNothingElse: what was sealed is opened under the new one,
// no file of the data changes, and the old one opens nothing any more.
func TestKeyRewrapChangesTheMasterKeyAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := keyed(t)
	file := filepath.Join(dir+".keys", "master.key")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	old := secretFile(t, filepath.Join(t.TempDir(), "old"), string(before))
	rewrap := func(code int, args ...string) cmdtest.Result {
		t.Helper()
		r := cmdtest.Run(t, append([]string{"key", "rewrap", "--data", dir}, args...)...)
		r.Wants(t, "key rewrap", code)
		return r
	}
	says(t, rewrap(cli.ExitGood), "1 keys in "+dir+".keys", "new master key", "file")
	if after, err := os.ReadFile(file); err != nil || bytes.Equal(after, before) {
		t.Errorf("%v", err)
	}
	cmdtest.Finished(t, cmdtest.ServeCommand(t, dir, "--master-key", old)).Wants(t, "the old key", cli.ExitFailed,
		"the key of tenant default was wrapped under another master key", "next: ")
	good := secretFile(t, filepath.Join(t.TempDir(), "new"), someMaster)
	rewrap(cli.ExitUsage, "--master-key", file)
	rewrap(cli.ExitFailed, "--master-key", old, "--new-master-key", good)
	rewrap(cli.ExitFailed, "--tenant-keys", filepath.Join(t.TempDir(), "none"))
	says(t, rewrap(cli.ExitGood, "--new-master-key-command", "cat "+good), "1 keys")
	s := cmdtest.ServeFor(t, dir, "--master-key", good)
	says(t, s.Ask(t, "default", "plan", "show", "p1", "--reveal"), cardNumber)
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// TestKeyRewrapIsRefusedWhileAHostRuns, with its own server or at another's: it would go on with a
// master key that no file has any more. Nothing is changed.
func TestKeyRewrapIsRefusedWhileAHostRuns(t *testing.T) {
	t.Parallel()
	own, other := cmdtest.DataDir(t), cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, own)
	server, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	outside := cmdtest.ServeFor(t, other, "--nats", server.URL(), "--accept-lossy-broker", "--master-key",
		secretFile(t, filepath.Join(other+".keys", "master.key"), someMaster))
	for _, dir := range []string{own, other} {
		file := filepath.Join(dir+".keys", "master.key")
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cmdtest.Run(t, "key", "rewrap", "--data", dir).Wants(t, "while a host runs", cli.ExitConflict,
			"a host runs on --data "+dir, "next: stop the host")
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
			t.Errorf("the master key was changed: %v", err)
		}
		if left, err := filepath.Glob(filepath.Join(dir+".keys", "*.next")); err != nil || len(left) != 0 {
			t.Errorf("left are %q, %v", left, err)
		}
	}
	outside.End(t).Wants(t, "serve", cli.ExitGood)
	s.End(t).Wants(t, "serve", cli.ExitGood)
	says(t, cmdtest.Run(t, "key", "rewrap", "--data", own), "0 keys")
}

// TestAKeyRewrapThatIsKilledLeavesAFolderThatServes, at every operation on a file: with the
// master key that is in its place then.
func TestAKeyRewrapThatIsKilledLeavesAFolderThatServes(t *testing.T) {
	t.Parallel()
	testenv.Strace(t)
	dir := keyed(t)
	for _, calls := range []string{"fsync", "rename,renameat,renameat2", "write,pwrite64", "openat"} {
		killed := 0
		for n := 1; ; n++ {
			copied := filepath.Join(t.TempDir(), "data.keys")
			if err := os.CopyFS(copied, os.DirFS(dir+".keys")); err != nil {
				t.Fatal(err)
			}
			owned(t, copied)
			plain := cmdtest.Sagenbaum(t, "key", "rewrap", "--data", strings.TrimSuffix(copied, ".keys"))
			command := exec.CommandContext(t.Context(), "strace", append([]string{"-f", "-o", "/dev/null", "-e",
				"trace=" + calls, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", calls, n)}, plain.Args...)...)
			command.Dir, command.Env = plain.Dir, plain.Env
			r := cmdtest.Finished(t, command)
			if r.Code == cli.ExitGood {
				break
			}
			killed++
			opens(t, fmt.Sprintf("%s, call %d", calls, n), copied)
			if r := cmdtest.Run(t, "key", "rewrap", "--data", strings.TrimSuffix(copied, ".keys")); r.Code != 0 {
				t.Fatalf("%s, call %d, again: %s", calls, n, r.Stderr)
			}
			opens(t, fmt.Sprintf("%s, call %d, again", calls, n), copied)
			if n > 500 {
				t.Fatal("no end")
			}
		}
		t.Logf("%s: killed %d times", calls, killed)
	}
}

// opens checks that the master key in its place opens the keys of a folder.
func opens(t *testing.T, when, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "master.key"))
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	master, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	folder, err := vault.OpenFolder(dir)
	if err == nil {
		err = folder.Check(master)
	}
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if names, err := folder.Tenants(); err != nil || len(names) != 1 {
		t.Fatalf("%s: %q, %v", when, names, err)
	}
}

// owned takes from others what they may do with the files and folders of a copy.
func owned(t *testing.T, dir string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode().Perm()&0o700)
	})
	if err != nil {
		t.Fatal(err)
	}
}
