package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// documentedAudits are the commands that docs/audit.md lists for an auditor, about a plan.
func documentedAudits(t *testing.T, plan string) (commands [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "## An auditor's user")
	_, rest, fenced := strings.Cut(rest, "```sh\n")
	block, _, _ := strings.Cut(rest, "```")
	if !found || !fenced {
		t.Fatal("docs/audit.md lists no commands of an auditor")
	}
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(strings.ReplaceAll(line, "PLAN", plan))
		if len(words) == 0 {
			continue
		}
		if words[0] != "sagenbaum" {
			t.Fatalf("%q is no command of ours", line)
		}
		commands = append(commands, words[1:])
	}
	if len(commands) < 10 {
		t.Fatalf("%d commands", len(commands))
	}
	return commands
}

// usersServer serves with a plan in its ledger, and gives what runs a command as a user that it
// adds first.
func usersServer(t *testing.T) (s *cmdtest.Served, as func(user string, args ...string) cmdtest.Result) {
	t.Helper()
	s = cmdtest.ServeFor(t, cmdtest.DataDir(t), "--listen", "127.0.0.1:0")
	cmdtest.OpenPlan(t, cmdtest.Dial(t, s.URL), "default", "p1")
	return s, func(user string, args ...string) cmdtest.Result {
		return s.Ask(t, "default", append(args, "--creds", s.User(t, user, user), "--timeout", "20s")...)
	}
}

// TestAnAuditorNeedsNoJetStream: with what the documents give to an auditor every command
// works that they list for one, and the API of JetStream is refused.
func TestAnAuditorNeedsNoJetStream(t *testing.T) {
	t.Parallel()
	s, as := usersServer(t)
	bundle := filepath.Join(t.TempDir(), "audit.bundle")
	for _, command := range documentedAudits(t, "p1") {
		for i, word := range command {
			if word == "audit.bundle" {
				command[i] = bundle
			}
		}
		if slices.Contains(command, "--follow") {
			f := follow(t, s, append(command, "--creds", s.User(t, "auditor", "auditor"))...)
			f.until(t, "forward_registered")
			f.end(t)
			continue
		}
		r := as("auditor", command...)
		if r.Code != cli.ExitGood && r.Code != cli.ExitLook {
			t.Errorf("%s: %d\n%s%s", strings.Join(command, " "), r.Code, r.Stdout, r.Stderr)
		}
	}
	if tail := as("auditor", "ledger", "tail"); !strings.Contains(tail.Stdout, "forward_registered") {
		t.Errorf("the tail is %q", tail.Stdout)
	}
	if info, err := os.Stat(bundle); err != nil || info.Size() == 0 {
		t.Errorf("no bundle: %v", err)
	}
	refused := make(chan error, 100)
	own, _, err := connect.File(s.User(t, "auditor", "auditor"), "")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(s.URL, append(own,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, subject := range []string{
		"$JS.API.INFO", "$JS.API.STREAM.INFO.SAGA_default", "$JS.API.STREAM.NAMES",
		"$JS.API.STREAM.MSG.GET.SAGA_default", "$JS.API.DIRECT.GET.SAGA_default",
		"$JS.API.CONSUMER.CREATE.SAGA_default", "$JS.API.CONSUMER.MSG.NEXT.SAGA_default.c",
		"$JS.API.STREAM.DELETE.SAGA_default", "$JS.ACK.SAGA_default.c.1.1.1.1.1",
		"saga.default.operator.auditor", "admin.default.rebuild",
	} {
		if err := errors.Join(conn.Publish(subject, []byte("{}")), conn.Flush()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
				t.Errorf("%s: %v", subject, err)
			}
		case <-time.After(testenv.Patience):
			t.Errorf("%s was not refused", subject)
		}
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// following is a command that prints lines until it is interrupted.
type following struct {
	command *exec.Cmd
	lines   <-chan string // closed when it has ended
	seen    []string
}

func follow(t *testing.T, s *cmdtest.Served, args ...string) *following {
	t.Helper()
	f := &following{command: cmdtest.Sagenbaum(t, append([]string{"--server", s.URL, "--tenant", "default"}, args...)...)}
	out, err := f.command.StdoutPipe()
	if err := errors.Join(err, f.command.Start()); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() { // ends with the command
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	f.lines = lines
	return f
}

// until reads lines to one that has a text.
func (f *following) until(t *testing.T, text string) {
	t.Helper()
	late := time.After(testenv.Patience)
	for {
		select {
		case line, ok := <-f.lines:
			if !ok {
				t.Fatalf("it ended before %s", text)
			}
			f.seen = append(f.seen, line)
			if strings.Contains(line, text) {
				return
			}
		case <-late:
			t.Fatalf("no line with %s", text)
		}
	}
}

// end interrupts the command, which is how following ends.
func (f *following) end(t *testing.T) {
	t.Helper()
	if err := f.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for range f.lines { // to the end
	}
	if err := f.command.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

// TestFollowingGoesOnWhereTheHostWasGone: a reader that follows waits for a host that is
// started again, and reads on from where it was.
func TestFollowingGoesOnWhereTheHostWasGone(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0")
	cmdtest.OpenPlan(t, cmdtest.Dial(t, s.URL), "default", "p1")
	f := follow(t, s, "ledger", "tail", "--since", "1", "--follow", "-o", "json")
	f.until(t, `"plan":"p1"`)
	listen := strings.TrimPrefix(s.URL, "nats://")
	s.End(t).Wants(t, "the first server", cli.ExitGood)
	s = cmdtest.ServeFor(t, dir, "--listen", listen)
	cmdtest.OpenPlan(t, cmdtest.Dial(t, s.URL), "default", "p2")
	f.until(t, `"plan":"p2"`)
	f.end(t)
	for i, line := range f.seen {
		at, _, _ := strings.Cut(line, `","`)
		if slices.ContainsFunc(f.seen[:i], func(other string) bool { return strings.HasPrefix(other, at) }) {
			t.Errorf("twice: %s", line)
		}
	}
	s.End(t).Wants(t, "the second server", cli.ExitGood)
}

// TestAnOperatorWithoutTheStreamHasItChecked: hosts ask JetStream in place of who may not.
func TestAnOperatorWithoutTheStreamHasItChecked(t *testing.T) {
	t.Parallel()
	s, as := usersServer(t)
	doctor := as("operator", "doctor")
	// All that it finds is that it runs as the Unix user of the server, which only Linux shows it. This
	// machine's disk is its own business.
	found := slices.DeleteFunc(regexp.MustCompile(`(?m)^(warn|FAIL) .*`).FindAllString(doctor.Stdout, -1),
		func(line string) bool { return strings.HasPrefix(line[5:], "disk ") })
	if len(found) > 1 || len(found) == 1 &&
		!strings.Contains(found[0], "can read the key of the user who runs the server") ||
		(doctor.Code == cli.ExitLook) != (len(found) == 1) {
		t.Errorf("the doctor of an operator: code %d, %q", doctor.Code, found)
	}
	all := strings.Replace(doctor.Stdout, "not checked: only the user who runs the server is told", "", 1)
	all = strings.Replace(all, "not checked: only users of all tenants are told", "", 1)
	if strings.Contains(all, "not checked") || !strings.Contains(all, "commits without a gap") {
		t.Errorf("the doctor says\n%s", doctor.Stdout)
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}

// A permission that is missing ends reading and following, with its name.
func TestReadingWithoutPermissionEnds(t *testing.T) {
	t.Parallel()
	s, as := usersServer(t)
	for _, args := range [][]string{
		{"ledger", "tail"}, {"ledger", "tail", "--since", "1", "--follow"}, {"ledger", "show", "1"},
	} {
		as("source", args...).Wants(t, strings.Join(args, " "), cli.ExitNotAllowed, "query.default.ledger.read")
	}
	s.End(t).Wants(t, "serve", cli.ExitGood)
}
