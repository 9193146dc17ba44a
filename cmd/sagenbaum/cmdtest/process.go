package cmdtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

// Sagenbaum returns a command line of the binary, in an empty folder and with
// nothing of the caller's settings.
func Sagenbaum(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), Program(t), args...)
	command.Dir = t.TempDir()
	command.Env = Environment(command.Dir)
	for i, arg := range args[:max(len(args)-1, 0)] {
		if creds, ok := LocalOf(args[i+1]); ok && arg == "--server" {
			command.Env = append(command.Env, "SAGENBAUM_CREDS="+creds)
		}
	}
	return command
}

// CredsOf has the credentials of the user who runs a server, a file, by the server's URL.
var CredsOf sync.Map

// LocalOf is the file of the credentials of the user who runs the server at a URL, once it is
// there.
func LocalOf(url string) (string, bool) {
	file, ok := CredsOf.Load(url)
	if !ok {
		return "", false
	}
	_, err := os.Stat(file.(string))
	return file.(string), err == nil
}

// AsLocal connects as the user who runs a server, where a test runs it.
func AsLocal(url string, options ...nats.Option) (*nats.Conn, error) {
	if creds, ok := LocalOf(url); ok {
		own, _, err := connect.File(creds, "")
		if err != nil {
			return nil, err
		}
		options = append(own, options...)
	}
	return nats.Connect(url, options...)
}

// Result is how a command line ended.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command line of the binary, as Sagenbaum returns it, until it ends.
func Run(t *testing.T, args ...string) Result {
	t.Helper()
	return Finished(t, Sagenbaum(t, args...))
}

// Finished runs a command until it ends. A doctor who has found only that this machine's disk gets
// full ends as one who has found nothing.
func Finished(t *testing.T, command *exec.Cmd) Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := Result{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	if r.Code == cli.ExitLook && slices.Contains(command.Args, "doctor") && onlyDisk(r.Stdout) {
		r.Code = cli.ExitGood
	}
	return r
}

// badLine is a finding that is not well, as the doctor prints it for people.
var badLine = regexp.MustCompile(`(?m)^(?:warn|FAIL) +([a-z]+)`)

// onlyDisk says that all the doctor has found is that this machine's disk gets full.
func onlyDisk(said string) bool {
	var bad []string
	var all map[string][]doctor.Finding
	if json.Unmarshal([]byte(said), &all) == nil {
		for _, f := range all["checks"] {
			if f.State == "warn" || f.State == "FAIL" {
				bad = append(bad, f.Check)
			}
		}
	} else {
		for _, found := range badLine.FindAllStringSubmatch(said, -1) {
			bad = append(bad, found[1])
		}
	}
	return slices.Equal(bad, []string{diskCheck})
}

// Served is a `serve` process of a test.
type Served struct {
	URL     string
	Console string // URL, where it has one
	Dir     string
	Command *exec.Cmd
	Stderr  *bytes.Buffer // read after the process has ended
	Stdin   interface{ Close() error }
	Said    string // the line that it said when it was ready
}

// ServeFor starts `serve` on a free port and returns when it is ready.
func ServeFor(t *testing.T, dir string, args ...string) *Served {
	t.Helper()
	return ServeAs(t, dir, ServeCommand(t, dir, args...))
}

// ServeCommand is `serve` on a free port, unless the arguments name another. Nothing else is given
// that port while the test runs, so a server that has ended can be started there again.
func ServeCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	if !slices.Contains(args, "--listen") && !slices.Contains(args, "--nats") {
		args = append([]string{"--listen", "127.0.0.1:0"}, args...)
	}
	if i := slices.Index(args, "--listen"); i >= 0 {
		if args[i+1] == "127.0.0.1:0" {
			args = slices.Clone(args)
			args[i+1] = FreeAddress(t)
		}
		CredsOf.LoadOrStore("nats://"+args[i+1], filepath.Join(dir, "auth", "local.creds"))
		// The torture is about disks and deaths; its actors are several tenants' on one connection,
		// and its judges read the streams.
		if strings.HasPrefix(args[i+1], "127.78.") && !slices.Contains(args, "--open") {
			args = append(args, "--open")
		}
	}
	line := []string{"serve", "--data", dir, "--console", serve.ConsoleOff, "--http", serve.HTTPOff,
		"--stop-on-eof", "-o", "json"}
	return Sagenbaum(t, append(line, args...)...)
}

// ServeAs starts a command of serveCommand and returns when it is ready.
func ServeAs(t *testing.T, dir string, command *exec.Cmd) *Served {
	t.Helper()
	s, err := StartServed(dir, command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Command.Process.Kill() // it has ended, as a rule
		_ = s.Command.Wait()         // its folder is removed next
	})
	return s
}

// outputWait is how long the output of a server that has ended is waited for: a process that it has
// left behind may hold it open.
const outputWait = 10 * time.Second

// StartServed starts a command of `serve` and returns when it is ready; whoever calls
// it ends the process.
func StartServed(dir string, command *exec.Cmd) (*Served, error) {
	s := &Served{Dir: dir, Stderr: new(bytes.Buffer), Command: command}
	s.Command.Stderr = s.Stderr
	s.Command.WaitDelay = outputWait
	var err error
	if s.Stdin, err = s.Command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.Command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Command.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		s.Command.Wait()
		return nil, fmt.Errorf("serve said nothing: %s", s.Stderr)
	}
	var r serve.Ready
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
		s.Command.Process.Kill()
		s.Command.Wait()
		return nil, fmt.Errorf("serve said %q: %v", lines.Text(), err)
	}
	s.URL, s.Console, s.Said = r.URL, r.Console, lines.Text()
	if r.Creds != "" {
		CredsOf.Store(r.URL, r.Creds)
	}
	return s, nil
}

// End stops a server by its input and returns how it ended.
func (s *Served) End(t *testing.T) Result {
	t.Helper()
	s.Stdin.Close()
	late := time.AfterFunc(testenv.Patience, func() { s.Command.Process.Kill() })
	defer late.Stop()
	s.Command.Wait()
	r := Result{Code: s.Command.ProcessState.ExitCode(), Stderr: s.Stderr.String()}
	for line := range strings.Lines(r.Stderr) {
		if key := doubledKey(line); key != "" {
			t.Errorf("a log line has the key %s twice: %s", key, line)
		}
	}
	return r
}

// logKey finds the keys of a line of the log in text; what is quoted has none.
var logKey = regexp.MustCompile(`(?:^| )([a-zA-Z_.]+)=(?:"(?:[^"\\]|\\.)*"|\S*)`)

// doubledKey is a key that a line of the log has twice; empty: it has none.
func doubledKey(line string) string {
	if !strings.HasPrefix(line, "time=") {
		return "" // it is none of the log
	}
	seen := map[string]bool{}
	for _, found := range logKey.FindAllStringSubmatch(line, -1) {
		if seen[found[1]] {
			return found[1]
		}
		seen[found[1]] = true
	}
	return ""
}

// Ask runs a command line against a server.
func (s *Served) Ask(t *testing.T, tenant string, args ...string) Result {
	t.Helper()
	return Run(t, append(args, "--server", s.URL, "--tenant", tenant)...)
}

// Wants fails the test where a command line ended with another exit code, or stderr lacks a text.
func (r Result) Wants(t *testing.T, what string, code int, inStderr ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", what, r.Code, code, r.Stdout,
			r.Stderr)
	}
	for _, text := range inStderr {
		if !strings.Contains(r.Stderr, text) {
			t.Errorf("%s: stderr %q does not say %q", what, r.Stderr, text)
		}
	}
}

// Decoded is what a command line printed, as JSON of a T.
func Decoded[T any](t *testing.T, r Result) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
		t.Fatalf("stdout is no JSON: %v\n%s", err, r.Stdout)
	}
	return v
}

// DataDir is a folder for the data of a server, which is not there yet.
func DataDir(t *testing.T) string { return filepath.Join(t.TempDir(), "data") }

// Again starts a server again on its folder and address, as a supervisor would.
func (s *Served) Again(t *testing.T, args ...string) *Served {
	t.Helper()
	address, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(s.Command.Args, "--open") {
		args = append(args, "--open")
	}
	return ServeFor(t, s.Dir, append([]string{"--listen", address.Host}, args...)...)
}

// Confess shows a server's log when the test has failed.
func (s *Served) Confess(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			_ = s.Command.Process.Kill() // it may be gone
			_ = s.Command.Wait()
			t.Logf("the server said:\n%s", s.Stderr)
		}
	})
}

// Ended reports whether a server has ended by itself; it was not waited for.
func (s *Served) Ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Command.Process.Pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

// Kill9 ends a server at once and waits until it is gone.
func (s *Served) Kill9(t *testing.T) {
	t.Helper()
	if err := s.Command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.Command.Wait() // it says that it was killed
}

// StatePath is the folder of the executor's folded state.
func (s *Served) StatePath() string { return filepath.Join(s.Dir, "executor", "state") }

// Brief runs `user add` for a user who expires within a second, again where that has passed on a
// busy machine before the server was asked.
func (s *Served) Brief(t *testing.T, args ...string) (added Result) {
	t.Helper()
	Eventually(t, "a user who expires", func() (string, bool) {
		added = s.Ask(t, "default", append([]string{"user", "add", "--expires", "1s"}, args...)...)
		return added.Stderr, !strings.Contains(added.Stderr, "a time to come")
	})
	added.Wants(t, "user add", cli.ExitGood)
	return added
}

// User adds a user, unless it is there, and gives the file of its credentials. Its flags may
// follow its role.
func (s *Served) User(t *testing.T, name, role string, flags ...string) string {
	t.Helper()
	file := filepath.Join(s.Dir, name+".creds")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	args := append([]string{"user", "add", name, "--role", role}, flags...)
	added := s.Ask(t, "default", args...)
	added.Wants(t, strings.Join(args, " "), cli.ExitGood)
	if err := os.WriteFile(file, []byte(added.Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
