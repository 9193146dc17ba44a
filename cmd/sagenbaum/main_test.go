package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/serve"
)

// asCommand makes the test binary behave as sagenbaum itself, so that tests
// drive real processes without building another binary. Children inherit it.
const asCommand = "SAGENBAUM_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	if os.Getenv(asNATS) != "" {
		runAsNATS(os.Args[1:])
		return
	}
	if role := os.Getenv(asActor); role != "" {
		os.Exit(playActor(role))
	}
	testenv.Parallel(6) // they wait for processes, elections and leases
	os.Exit(m.Run())
}

// sagenbaum returns a command line of the binary, in an empty folder and with
// nothing of the caller's settings.
func sagenbaum(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), self, args...)
	command.Dir = t.TempDir()
	command.Env = []string{asCommand + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + command.Dir,
		"TMPDIR=" + command.Dir, "USER=tester"}
	for i, arg := range args[:max(len(args)-1, 0)] {
		if creds, ok := localOf(args[i+1]); ok && arg == "--server" {
			command.Env = append(command.Env, "SAGENBAUM_CREDS="+creds)
		}
	}
	return command
}

// credsOf has the credentials of who runs a server, a file, by the server's URL.
var credsOf sync.Map

// localOf is the file of the credentials of who runs the server at a URL, once it is there.
func localOf(url string) (string, bool) {
	file, ok := credsOf.Load(url)
	if !ok {
		return "", false
	}
	_, err := os.Stat(file.(string))
	return file.(string), err == nil
}

// asLocal connects as who runs a server, where a test runs it.
func asLocal(url string, options ...nats.Option) (*nats.Conn, error) {
	if creds, ok := localOf(url); ok {
		own, _, err := connect.File(creds, "")
		if err != nil {
			return nil, err
		}
		options = append(own, options...)
	}
	return nats.Connect(url, options...)
}

// result is how a command line ended.
type result struct {
	code           int
	stdout, stderr string
}

func finished(t *testing.T, command *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// served is a `serve` process of a test.
type served struct {
	url     string
	console string // URL, where it has one
	dir     string
	command *exec.Cmd
	stderr  *bytes.Buffer // read after the process has ended
	stdin   interface{ Close() error }
	said    string // the line that it said when it was ready
}

// serveFor starts `serve` on a free port and returns when it is ready.
func serveFor(t *testing.T, dir string, args ...string) *served {
	t.Helper()
	return serveAs(t, dir, serveCommand(t, dir, args...))
}

// serveCommand is `serve` on a free port, unless the arguments name another.
func serveCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	if !slices.Contains(args, "--listen") && !slices.Contains(args, "--nats") {
		args = append([]string{"--listen", "127.0.0.1:0"}, args...)
	}
	if i := slices.Index(args, "--listen"); i >= 0 {
		credsOf.LoadOrStore("nats://"+args[i+1], filepath.Join(dir, "auth", "local.creds"))
		// The torture is about disks and deaths; its actors are several tenants' on one connection,
		// and its judges read the streams.
		if strings.HasPrefix(args[i+1], "127.78.") && !slices.Contains(args, "--open") {
			args = append(args, "--open")
		}
	}
	return sagenbaum(t,
		append([]string{"serve", "--data", dir, "--console", serve.ConsoleOff, "--http", serve.HTTPOff,
			"--stop-on-eof", "-o", "json"},
			args...)...)
}

// serveAs starts a command of serveCommand and returns when it is ready.
func serveAs(t *testing.T, dir string, command *exec.Cmd) *served {
	t.Helper()
	s, err := startServed(dir, command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.command.Process.Kill() })
	return s
}

// startServed starts a command of `serve` and returns when it is ready; whoever calls
// it ends the process.
func startServed(dir string, command *exec.Cmd) (*served, error) {
	s := &served{dir: dir, stderr: new(bytes.Buffer), command: command}
	s.command.Stderr = s.stderr
	var err error
	if s.stdin, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		s.command.Wait()
		return nil, fmt.Errorf("serve said nothing: %s", s.stderr)
	}
	var r serve.Ready
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
		s.command.Process.Kill()
		s.command.Wait()
		return nil, fmt.Errorf("serve said %q: %v", lines.Text(), err)
	}
	s.url, s.console, s.said = r.URL, r.Console, lines.Text()
	if r.Creds != "" {
		credsOf.Store(r.URL, r.Creds)
	}
	return s, nil
}

// end stops a server by its input and returns how it ended.
func (s *served) end(t *testing.T) result {
	t.Helper()
	s.stdin.Close()
	late := time.AfterFunc(testenv.Patience, func() { s.command.Process.Kill() })
	defer late.Stop()
	s.command.Wait()
	r := result{code: s.command.ProcessState.ExitCode(), stderr: s.stderr.String()}
	for line := range strings.Lines(r.stderr) {
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

func TestADoubledKeyOfALogLineIsSeen(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`time=2026 level=WARN msg="a tenant=b, tenant=c" tenant=default error="x \" key=1 key=2"`: "",
		`time=2026 level=WARN msg="the first key was made" tenant=default tenant=default key=k`:   "tenant",
		`time=2026 level=INFO msg=attached tenant=default applied=0 applied=0`:                    "applied",
		`panic: tenant=a tenant=a`: "",
	} {
		if got := doubledKey(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// ask runs a command line against a server.
func (s *served) ask(t *testing.T, tenant string, args ...string) result {
	t.Helper()
	return finished(t, sagenbaum(t, append(args, "--server", s.url, "--tenant", tenant)...))
}

func (r result) wants(t *testing.T, what string, code int, inStderr ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", what, r.code, code, r.stdout, r.stderr)
	}
	for _, text := range inStderr {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("%s: stderr %q does not say %q", what, r.stderr, text)
		}
	}
}

func decoded[T any](t *testing.T, r result) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		t.Fatalf("stdout is no JSON: %v\n%s", err, r.stdout)
	}
	return v
}

func dataDir(t *testing.T) string { return filepath.Join(t.TempDir(), "data") }
