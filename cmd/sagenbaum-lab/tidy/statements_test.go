package tidy_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The numbered statements of what the product does, which comments and the names of tests cite.

const statementsPage = "docs/statements.md"

// scriptless are the statements that no script of package executor can show: they are about
// functions that survive their process.
var scriptless = map[int]string{
	34: "What an agent's function has done is returned to it when it is run again: no forward that is " +
		"completed runs twice, and none that may have happened is called without need.",
	36: "Where the undo is code of the agent, only what is still owed waits for it, and that it waits " +
		"can be seen.",
	38: "The code that undoes an action is offered until the plan has ended for good, however its run " +
		"has ended.",
	39: "A function that takes another path when it is run again is refused, and the first difference " +
		"is named.",
	40: "Where the code that undoes an action is changed, the version that was recorded is used, or the " +
		"run is refused.",
}

var (
	cited       = regexp.MustCompile(`\bS([1-9][0-9]?|10[0-9])\b`)
	citedByTest = regexp.MustCompile(`^Test((?:S[0-9]+)+)[A-Z]`)
	testName    = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// sentence is the statement that a script begins with.
func sentence(script string) string {
	_, rest, _ := strings.Cut(script, ": ")
	rest = strings.ReplaceAll(rest, "\n# ", " ")
	rest, _, _ = strings.Cut(rest, "\n")
	text, _, _ := strings.Cut(rest, ". ")
	return strings.TrimSuffix(text, ".") + "."
}

// statements reads what each number says, and the tests that show it: those that have it in their
// name, and those that its script names.
func statements(t *testing.T, all []source) (says map[int]string, shownBy map[int][]string) {
	t.Helper()
	says, shownBy = maps.Clone(scriptless), map[int][]string{}
	tests := map[string]bool{}
	for _, s := range all {
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !s.test() {
				continue
			}
			tests[f.Name.Name] = true
			if found := citedByTest.FindStringSubmatch(f.Name.Name); found != nil {
				for _, number := range strings.Split(found[1], "S")[1:] {
					n, _ := strconv.Atoi(number)
					shownBy[n] = append(shownBy[n], f.Name.Name)
				}
			}
		}
	}
	scripts, err := fs.Glob(checkout, "executor/testdata/statements/S*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, name := range scripts {
		text, err := fs.ReadFile(checkout, name)
		n, bad := strconv.Atoi(strings.TrimSuffix(path.Base(name)[1:], ".txt"))
		if err != nil || bad != nil {
			t.Fatalf("%s: %v, %v", name, err, bad)
		}
		says[n] = sentence(string(text))
		for _, test := range testName.FindAllString(string(text), -1) {
			if !tests[test] {
				t.Errorf("%s names %s, which is nowhere", name, test)
			}
			shownBy[n] = append(shownBy[n], test)
		}
	}
	return says, shownBy
}

const statementsHead = `# Statements

What the product does, in numbered statements. Comments cite a number where the code has to do what
it says, and tests have it in their names: ` + "`go test -run S25 ./executor`" + ` runs one, and
` + "`executor/testdata/statements/S25.txt`" + ` is its script, written to be read. This page is written from
the scripts: ` + "`go test ./cmd/sagenbaum-lab/tidy -run StatementsAreListed -update`" + `.

`

// listed writes the page.
func listed(says map[int]string, shownBy map[int][]string) string {
	var page strings.Builder
	page.WriteString(statementsHead)
	for _, n := range slices.Sorted(maps.Keys(says)) {
		names := slices.Compact(slices.Sorted(slices.Values(shownBy[n])))
		line := "-"
		entry := fmt.Sprintf("**S%d** %s `%s`", n, says[n], strings.Join(names, "`, `"))
		for _, word := range strings.Fields(entry) {
			if utf8.RuneCountInString(line+" "+word) > columnsMax {
				page.WriteString(line + "\n")
				line = " "
			}
			line += " " + word
		}
		page.WriteString(line + "\n")
	}
	return page.String()
}

// TestStatementsAreListed: docs/statements.md says what each number demands that code, tests or
// pages cite, and which tests show it.
func TestStatementsAreListed(t *testing.T) {
	all := sources(t)
	says, shownBy := statements(t, all)
	for n := range says {
		if len(shownBy[n]) == 0 {
			t.Errorf("no test shows S%d", n)
		}
	}
	cites := func(where, text string) {
		for _, found := range cited.FindAllStringSubmatch(text, -1) {
			if n, _ := strconv.Atoi(found[1]); says[n] == "" {
				t.Errorf("%s cites %s, which %s does not list; say what it says", where, found[0], statementsPage)
			}
		}
	}
	for n, tests := range shownBy {
		if says[n] == "" {
			t.Errorf("%s cites S%d, which %s does not list", tests, n, statementsPage)
		}
	}
	for _, s := range all {
		if !s.generated() {
			said(s, func(line int, text string) { cites(fmt.Sprintf("%s:%d", s.path, line), text) })
		}
	}
	for name, text := range pages(t) {
		cites(name, text)
	}
	want := listed(says, shownBy)
	if *update {
		if err := os.WriteFile(filepath.Join(top, statementsPage), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text, err := fs.ReadFile(checkout, statementsPage); err != nil || string(text) != want {
		t.Errorf("%s is not what code and scripts say (%v); go test ./cmd/sagenbaum-lab/tidy "+
			"-run StatementsAreListed -update", statementsPage, err)
	}
	script, want := "# S5: Any one; that\n# has two lines. More.\n# In files: x.\n\nplay\n", "Any one; that has two lines."
	if got := sentence(script); got != want {
		t.Errorf("the statement is %q", got)
	}
}
