// Package masterkey reads the hosts' master key from where an operator keeps it: a file, a
// command, or the environment.
package masterkey

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Bounds of what gives a key.
const (
	textMax     = 4 << 10     // bytes of a file, or of what a command prints
	commandWait = time.Minute // for a command
)

// Source is where a master key comes from. Make one with Flags; at most one of its three
// places may be used.
type Source struct {
	flag, variable string
	file, command  string
}

// Flags adds --FLAG and --FLAG-command; variable is the environment variable.
func (s *Source) Flags(f *pflag.FlagSet, flag, variable, usage string) {
	s.flag, s.variable = flag, variable
	f.StringVar(&s.file, flag, "", usage)
	f.StringVar(&s.command, flag+"-command", "",
		"`COMMAND` that prints this key, for a key service; a shell runs it (env "+variable+
			" has the key itself, which is weaker)")
}

// Given reports whether any place was named.
func (s *Source) Given() bool {
	return s.file != "" || s.command != "" || os.Getenv(s.variable) != ""
}

// fail is an error of the key, with what would be right.
func fail(code int, hint, format string, args ...any) error {
	return cli.Fail(code, hint, format, args...)
}

// File is the file that the key was read from, and can be read from again; empty: from no file.
func (s *Source) File() string {
	if info, err := os.Stat(s.file); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return s.file
}

const hint = "openssl rand -hex 32 > FILE; chmod 600 FILE; the same on every host of these tenants"

// Read returns the key, from the one place that was named, and takes it out of the
// environment, so that no process that is started from here on gets it. A file must not lie
// in the folder data, nor be readable by others.
func (s *Source) Read(ctx context.Context, data string) ([]byte, error) {
	text := os.Getenv(s.variable)
	var places []string
	for _, place := range [...]struct{ name, value string }{
		{"--" + s.flag, s.file}, {"--" + s.flag + "-command", s.command}, {s.variable, text},
	} {
		if place.value != "" {
			places = append(places, place.name)
		}
	}
	switch {
	case len(places) == 0:
		return nil, fail(cli.ExitUsage, "--"+s.flag+" FILE", "no master key is given")
	case len(places) > 1:
		return nil, fail(cli.ExitUsage, "name one place of the key", "the key is given twice: %s",
			strings.Join(places, " and "))
	case s.file != "":
		if Inside(s.file, data) {
			return nil, fail(cli.ExitUsage,
				"move it out of "+data+": who copies the data must not copy the key",
				"--%s %s lies inside --data %s", s.flag, s.file, data)
		}
		return ReadFile(s.file)
	case s.command != "":
		return s.run(ctx)
	}
	if err := os.Unsetenv(s.variable); err != nil {
		return nil, fail(cli.ExitFailed, hint, "cannot take %s out of the environment: %v",
			s.variable, err)
	}
	return parse([]byte(text), s.variable)
}

// ReadFile reads a key from a file that others may not read.
func ReadFile(file string) ([]byte, error) {
	text, err := access.ReadOwn("the master key", file)
	var refused *ledger.Refused
	switch {
	case errors.As(err, &refused):
		return nil, cli.Failed("read the master key", err)
	case err != nil:
		return nil, fail(cli.ExitFailed, hint, "cannot read the master key: %v", err)
	}
	return parse(text, file)
}

// parse reads the text of a key; where names its place.
func parse(text []byte, where string) ([]byte, error) {
	key, err := vault.ParseMasterKey(text)
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		return nil, fail(cli.ExitFailed, hint, "the master key of %s %s", where, refused.Problem)
	}
	return key, err
}

// run has the command print the key. What it says on stderr is for the operator.
func (s *Source) run(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	shell, option := "/bin/sh", "-c"
	if runtime.GOOS == "windows" {
		shell, option = "cmd", "/C"
	}
	command := exec.CommandContext(ctx, shell, option, s.command)
	command.WaitDelay = time.Second
	out, said := bounded{end: cancel}, bounded{end: func() {}}
	command.Stdout, command.Stderr = &out, &said
	err := command.Run()
	name := "--" + s.flag + "-command"
	switch {
	case out.over:
		return nil, fail(cli.ExitFailed, "a command that prints the key and nothing else",
			"%s printed more than a key", name)
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err()
	case ctx.Err() != nil:
		return nil, fail(cli.ExitFailed, "try the command by hand", "%s has not ended after %s", name,
			commandWait)
	case err != nil:
		return nil, fail(cli.ExitFailed, "try the command by hand", "%s failed: %v: %s", name, err,
			bytes.TrimSpace(said.kept.Bytes()))
	}
	key, err := parse(out.kept.Bytes(), "what "+name+" printed,")
	clear(out.kept.Bytes())
	return key, err
}

// bounded keeps the beginning of what is written to it, and calls end when that is not all.
// The buffer is no part of it, since that would read without a bound.
type bounded struct {
	kept bytes.Buffer
	end  func()
	over bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	kept := p
	if room := textMax - b.kept.Len(); len(p) > room {
		kept, b.over = p[:room], true
		b.end()
	}
	_, err := b.kept.Write(kept)
	return len(p), err
}

// Make makes a key in a file, where there is none. It is synced before it is there, so that a
// power cut leaves a whole one or none.
func Make(file string) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key := make([]byte, vault.MasterKeySize)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return store.WriteSynced(file, []byte(hex.EncodeToString(key)+"\n"))
}

// Inside reports whether a path lies in a folder, or is it, by whatever links. What is not
// there yet is where its path says.
func Inside(path, folder string) bool {
	inner, outer := resolved(path), resolved(folder)
	rel, err := filepath.Rel(outer, inner)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

func resolved(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	rest := ""
	for at := path; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return path
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// Folder is the folder of tenants' keys of a data folder: the one that was named, or DATA.keys
// beside it. It must lie outside the data, and not around them.
func Folder(named, data string) (string, error) {
	folder := named
	if folder == "" {
		clean := filepath.Clean(data)
		switch filepath.Base(clean) {
		case ".", "..", string(filepath.Separator):
			abs, err := filepath.Abs(data)
			if err != nil || abs == filepath.Dir(abs) {
				return "", fail(cli.ExitUsage, "--tenant-keys DIR outside --data",
					"there is no folder beside --data %s", data)
			}
			clean = abs
		}
		folder = clean + ".keys"
	}
	switch {
	case Inside(folder, data):
		return "", fail(cli.ExitUsage,
			"--tenant-keys DIR outside --data: who copies the data must not copy the keys",
			"the folder of tenants' keys %s lies inside --data %s", folder, data)
	case Inside(data, folder):
		return "", fail(cli.ExitUsage, "--tenant-keys DIR beside --data",
			"--data %s lies inside the folder of tenants' keys %s", data, folder)
	}
	return folder, nil
}

// DefaultName is the file of the master key in the folder of tenants' keys, where none was named.
const DefaultName = "master.key"

// legacyName is where versions before this one had it, in the data.
const legacyName = "master.key"

// Default reads the master key of a host on its own server, which it makes at the first
// start. One that an earlier version has made inside the data is moved out of it.
func Default(folder, data string) ([]byte, error) {
	file, legacy := filepath.Join(folder, DefaultName), filepath.Join(data, legacyName)
	if err := moveOut(file, legacy); err != nil {
		return nil, err
	}
	if err := Make(file); err != nil {
		return nil, fail(cli.ExitFailed, "--master-key FILE, or --tenant-keys DIR that can be written",
			"cannot make the master key: %v", err)
	}
	return ReadFile(file)
}

// moveOut moves the key of an earlier version to file: it is on disk there before it is
// overwritten where it was.
func moveOut(file, legacy string) error {
	switch _, err := os.Stat(legacy); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil: // whether it is there cannot be seen
		data := filepath.Dir(legacy)
		chown := cli.CommandLine("chown", "-R", cmp.Or(cli.DefaultActor(), "USER"), data,
			filepath.Dir(file))
		return fail(cli.ExitFailed, chown+", or serve as the user whose they are",
			"cannot read the folder %s: %v", data, err)
	}
	text, err := os.ReadFile(legacy)
	cannot := func(err error) error {
		return fail(cli.ExitFailed, "move it by hand, then start again",
			"cannot move the master key from %s to %s: %v", legacy, file, err)
	}
	if err != nil {
		return cannot(err)
	}
	there, err := os.ReadFile(file)
	switch {
	case err == nil && !bytes.Equal(bytes.TrimSpace(there), bytes.TrimSpace(text)):
		return fail(cli.ExitFailed, "keep the one that is in use, and move the other away",
			"there are two master keys: %s and %s", legacy, file)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return cannot(err)
	case err != nil:
		if _, err := parse(text, legacy); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return cannot(err)
		}
		if err := store.WriteSynced(file, text); err != nil {
			return cannot(err)
		}
	}
	if err := vault.Shred(legacy); err != nil {
		return cannot(err)
	}
	return nil
}

// Names of the environment variables.
const (
	Variable    = "SAGENBAUM_MASTER_KEY"
	NewVariable = "SAGENBAUM_NEW_MASTER_KEY"
)
