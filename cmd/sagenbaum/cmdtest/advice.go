package cmdtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
)

// examined is how long the doctor is let alone between two looks, which cost something.
const examined = 500 * time.Millisecond

// Asking runs a command line against a server.
type Asking func(args ...string) Result

// Asks is how a server is asked about a tenant, by processes of their own.
func (s *Served) Asks(t *testing.T, tenant string) Asking {
	return func(args ...string) Result {
		t.Helper()
		return s.Ask(t, tenant, args...)
	}
}

// diskCheck is of what no test has a hand in: this machine's disk gets full. Tests that fill
// a disk of their own ask for its finding.
const diskCheck = "disk"

// Checks are the findings of a doctor that was asked with -o json, but of this machine's disk.
func (r Result) Checks(t *testing.T) []doctor.Finding {
	t.Helper()
	return slices.DeleteFunc(Decoded[map[string][]doctor.Finding](t, r)["checks"],
		func(f doctor.Finding) bool { return f.Check == diskCheck })
}

// Findings are what the doctor finds, by check: of several of one check the first, which is the
// worst where it is of a kind.
func (ask Asking) Findings(t *testing.T) map[string]doctor.Finding {
	t.Helper()
	found, ended := ask.look(t)
	if ended != "" {
		t.Fatal(ended)
	}
	return found
}

// look is Findings; ended says how the doctor has ended without any.
func (ask Asking) look(t *testing.T) (found map[string]doctor.Finding, ended string) {
	t.Helper()
	r := ask("doctor", "-o", "json")
	if r.Code != cli.ExitGood && r.Code != cli.ExitLook {
		return nil, fmt.Sprintf("doctor ends with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	found = map[string]doctor.Finding{}
	for _, f := range Decoded[map[string][]doctor.Finding](t, r)["checks"] {
		if _, twice := found[f.Check]; !twice {
			found[f.Check] = f
		}
	}
	return found, ""
}

// Advised waits until the doctor warns of a check, and returns what it says with its advice.
func (ask Asking) Advised(t *testing.T, check string) (f doctor.Finding) {
	t.Helper()
	eventually(t, "the doctor warns of "+check, examined, func() (string, bool) {
		found, ended := ask.look(t)
		f = found[check]
		return ended + wrong(found), (f.State == "warn" || f.State == "FAIL") && f.Next != ""
	})
	return f
}

// Content waits until the doctor has nothing to say, but of checks that the test leaves as they
// are, and of this machine's disk.
func (ask Asking) Content(t *testing.T, but ...string) {
	t.Helper()
	eventually(t, "a doctor that is content", examined, func() (string, bool) {
		found, left := ask.look(t)
		left += wrong(found, append(but, diskCheck)...)
		return left, left == ""
	})
}

// wrong is what findings say that are not well, a line each.
func wrong(found map[string]doctor.Finding, but ...string) string {
	var lines []string
	for check, f := range found {
		if f.State != "ok" && f.State != "skip" && !slices.Contains(but, check) {
			lines = append(lines, check+": "+f.Text+"; next: "+f.Next)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Follow runs the commands of an advice as they stand, one after the other, and returns what they
// printed. None may fail; one that ends with 1 has something to look at.
func (ask Asking) Follow(t *testing.T, f doctor.Finding) (said string) {
	t.Helper()
	for _, line := range Commands(f.Next) {
		r := ask(line...)
		if r.Code != cli.ExitGood && r.Code != cli.ExitLook {
			t.Fatalf("advice of %s: %q ends with %d: %s%s", f.Check, line, r.Code, r.Stdout, r.Stderr)
		}
		said += r.Stdout
	}
	return said
}

// command is a command line in an advice: it ends before what is in parentheses, a comma, a colon,
// a semicolon or the end, and quotation marks keep an argument together.
var command = regexp.MustCompile(`sagenbaum ((?:"[^"]*"|[^;,:()"])+)`)

// argument is one of its arguments.
var argument = regexp.MustCompile(`"[^"]*"|[^\s"]+`)

// Commands are the command lines in an advice, without the program's name.
func Commands(advice string) (lines [][]string) {
	for _, found := range command.FindAllStringSubmatch(advice, -1) {
		var line []string
		for _, arg := range argument.FindAllString(found[1], -1) {
			line = append(line, strings.Trim(arg, `"`))
		}
		lines = append(lines, line)
	}
	return lines
}
