// Command flaky reads what `go test -json` printed while tests that failed were run again, and
// says what that means. It prints the tests that failed first and did not fail last, after the word
// FLAKY and with the output of their first failure. It ends with 1 where a failure cannot be
// excused by a second run: a package that failed although none of its tests did, or a test that
// began and has no end, because its process has died and what came after it never ran.
//
//	go run ./cmd/sagenbaum-lab/flaky FILE
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "flaky: want the name of one file")
		os.Exit(64)
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "flaky:", err)
		os.Exit(2)
	}
	failed, err := report(file, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "flaky:", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

// lineMax is the longest event, in bytes: one has a line that a test has printed.
const lineMax = 64 << 20

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
}

// subject is a test, or a package where test is empty.
type subject struct {
	of, test string
}

func (s subject) String() string { return strings.TrimSpace(s.of + " " + s.test) }

// course is what became of a subject in all runs.
type course struct {
	output []string // of the run at hand, and from its first failure on of that one
	failed bool     // once
	open   bool     // it began and has no end
	last   string   // how it ended
}

// report reads events and writes what they mean; failed says that something may not be excused.
func report(events io.Reader, to io.Writer) (failed bool, err error) {
	courses := map[subject]*course{}
	var order []subject
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, lineMax)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return false, fmt.Errorf("line %.200q is no event: %w", lines.Text(), err)
		}
		s := subject{e.Package, e.Test}
		c := courses[s]
		if c == nil {
			c = new(course)
			courses[s] = c
			order = append(order, s)
		}
		c.take(e)
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	excused := map[string]bool{} // packages with a test that failed
	for s, c := range courses {
		if s.test != "" && (c.failed || c.open) {
			excused[s.of] = true
		}
	}
	for _, s := range order {
		c := courses[s]
		word := ""
		switch {
		case s.test != "" && c.open:
			word, failed = "DIED", true
		case s.test == "" && c.failed && !excused[s.of]:
			word, failed = "FAILED", true
		case s.test != "" && c.failed && c.last != "fail":
			word = "FLAKY"
		default:
			continue
		}
		if _, err := fmt.Fprintf(to, "\n%s %s\n%s", word, s, strings.Join(c.output, "")); err != nil {
			return failed, err
		}
	}
	return failed, nil
}

func (c *course) take(e event) {
	switch {
	case e.Action == "run" || e.Action == "start":
		c.open = e.Action == "run"
		if !c.failed {
			c.output = nil
		}
	case e.Action == "output" && !c.failed:
		c.output = append(c.output, e.Output)
	case slices.Contains([]string{"pass", "skip", "fail"}, e.Action):
		c.open, c.last = false, e.Action
		c.failed = c.failed || e.Action == "fail"
	}
}
