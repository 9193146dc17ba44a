package tidy_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The rules on whole packages, on the width of lines and on words, and the picture of the house.

const (
	filesPerPackageMax = 30 // that are no tests
	methodsPerTypeMax  = 88
	testColumnsMax     = 120 // columnsMax is for everything else; a tab counts as one column
)

// tooWide, tooManyFiles and tooManyMethods list what broke these rules when they were made, with
// how often. The lists only shrink: an entry that is larger than what is found fails, too.
var (
	tooWide = map[string]int{
		"cmd/sagenbaum-lab/bench_console.go":  2,
		"cmd/sagenbaum/clock/clock.go":        1,
		"cmd/sagenbaum/plan/story.go":         1,
		"coordinator/contract/parse_test.go":  4,
		"coordinator/executor_test.go":        11,
		"coordinator/replay_change_test.go":   19,
		"executor/acceptance_test.go":         5,
		"executor/cascade_answer_test.go":     1,
		"executor/cascade_depth_test.go":      1,
		"executor/explain_test.go":            1,
		"executor/fuzz_test.go":               2,
		"executor/host/progress_test.go":      2,
		"executor/host/store/manifest.go":     1,
		"executor/host/tree_test.go":          1,
		"executor/oracle_test.go":             1,
		"executor/sim/people.go":              2,
		"ledger/audit/audit.go":               1,
		"ledger/audit/forgery_test.go":        1,
		"ledger/records_test.go":              24,
		"cmd/sagenbaum-lab/tidy/tidy_test.go": 15,
		"triggers/timeline_test.go":           1,
		"triggers/timescales/timescales.go":   1,

		"coordinator/contract/compile/lint_test.go":      3,
		"coordinator/contract/compile/sensitive_test.go": 13,
		"coordinator/contract/compile/worked_test.go":    1,
	}
	tooManyFiles   = map[string]int{}
	tooManyMethods = map[string]int{}
)

// overWide counts the lines of a file that are too wide. A line whose width comes from a struct
// tag or from a raw string, where a line break would change what is said, does not count; neither
// does one that is a single word too long for any line.
func overWide(s source) (lines []int) {
	most := columnsMax
	if s.test() {
		most = testColumnsMax
	}
	text := strings.Split(string(s.text), "\n")
	whole := unbreakable(s.text)
	for i, line := range text {
		if utf8.RuneCountInString(line) > most && !whole[i+1] {
			lines = append(lines, i+1)
		}
	}
	return lines
}

// unbreakable finds the lines that hold a part of a raw string.
func unbreakable(text []byte) map[int]bool {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, text, nil, 0)
	found := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return found
		}
		if tok == token.STRING && strings.HasPrefix(literal, "`") {
			for line := range strings.Count(literal, "\n") + 1 {
				found[file.Line(pos)+line] = true
			}
		}
	}
}

// methodsOf counts the methods of each type, by folder and name.
func methodsOf(all []source) map[string]int {
	count := map[string]int{}
	for _, s := range all {
		if s.test() || s.generated() {
			continue
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			t := f.Recv.List[0].Type
			if star, ok := t.(*ast.StarExpr); ok {
				t = star.X
			}
			if index, ok := t.(*ast.IndexExpr); ok {
				t = index.X
			}
			if id, ok := t.(*ast.Ident); ok {
				count[s.folder()+"."+id.Name]++
			}
		}
	}
	return count
}

// filesOf counts the files of each folder that are neither tests nor generated.
func filesOf(all []source) map[string]int {
	count := map[string]int{}
	for _, s := range all {
		if !s.test() && !s.generated() {
			count[s.folder()]++
		}
	}
	return count
}

// ratchet compares counts with what the list allows: nothing new, nothing more, and nothing that
// has been mended and is still listed.
func ratchet(what string, found, listed map[string]int, most int) (findings []string) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if n := found[name]; n > max(most, listed[name]) {
			findings = append(findings, fmt.Sprintf("%s: %d %s, at most %d", name, n, what, most))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if n := found[name]; n < listed[name] {
			findings = append(findings, fmt.Sprintf(
				"%s: listed with %d %s, and has %d; lower the list", name, listed[name], what, n))
		}
	}
	return findings
}

func TestPackagesTypesAndLinesHaveASize(t *testing.T) {
	all := sources(t)
	wide := map[string]int{}
	for _, s := range all {
		if lines := overWide(s); !s.generated() && len(lines) > 0 {
			wide[s.path] = len(lines)
			if len(lines) > tooWide[s.path] {
				t.Logf("%s: lines %v are wider than %d columns", s.path, lines, columnsMax)
			}
		}
	}
	for _, finding := range slices.Concat(
		ratchet("lines that are too wide", wide, tooWide, 0),
		ratchet("files", filesOf(all), tooManyFiles, filesPerPackageMax),
		ratchet("methods", methodsOf(all), tooManyMethods, methodsPerTypeMax),
	) {
		t.Error(finding)
	}
}

func TestTheSizesCanFail(t *testing.T) {
	long := strings.Repeat("a ", columnsMax)
	s, err := parse("ledger/a.go", []byte("package ledger\n\n// "+long+"\nfunc (s *Big[T]) F() {}\n"+
		"var x = `"+long+"`\nfunc (s Big[T]) G() {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(overWide(s)); got != "[3]" {
		t.Errorf("too wide: %s, want [3]", got)
	}
	if got := methodsOf([]source{s})["ledger.Big"]; got != 2 {
		t.Errorf("%d methods, want 2", got)
	}
	if got := filesOf([]source{s})["ledger"]; got != 1 {
		t.Errorf("%d files, want 1", got)
	}
	for _, c := range []struct {
		found, listed, findings int
	}{{2, 0, 0}, {3, 0, 1}, {3, 3, 0}, {4, 3, 1}, {3, 4, 1}, {0, 3, 1}} {
		found, listed := map[string]int{"x": c.found}, map[string]int{"x": c.listed}
		if c.listed == 0 {
			listed = nil
		}
		if got := ratchet("files", found, listed, 2); len(got) != c.findings {
			t.Errorf("found %d, listed %d: %q", c.found, c.listed, got)
		}
	}
}

// hidden are the packages that a contract as data does not show: what a reader of one has to
// know is in package contract itself.
var hidden = []string{module + "/proto/sagenbaum/v1", module + "/triggers", module + "/ledger/seal"}

// shown finds where the exported declarations of a file name one of the packages: in what a
// function takes or returns, in exported fields, and in the types of constants and variables.
func shown(s source, packages []string) (findings []string) {
	names := map[string]string{}
	for _, spec := range s.file.Imports {
		where := strings.Trim(spec.Path.Value, `"`)
		if !slices.Contains(packages, where) {
			continue
		}
		names[path.Base(where)] = where
		if spec.Name != nil {
			names[spec.Name.Name] = where
		}
	}
	var look func(in ast.Node)
	look = func(in ast.Node) {
		ast.Inspect(in, func(n ast.Node) bool {
			if body, ok := n.(*ast.StructType); ok {
				for _, field := range body.Fields.List {
					if field.Names == nil || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
						look(field.Type)
					}
				}
				return false
			}
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && names[x.Name] != "" {
					findings = append(findings, fmt.Sprintf("%s:%d: an exported declaration names %s of %s",
						s.path, s.fset.Position(sel.Pos()).Line, sel.Sel.Name, names[x.Name]))
				}
			}
			return true
		})
	}
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				look(d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch v := spec.(type) {
				case *ast.TypeSpec:
					if v.Name.IsExported() {
						look(v.Type)
					}
				case *ast.ValueSpec:
					if slices.ContainsFunc(v.Names, (*ast.Ident).IsExported) {
						look(v)
					}
				}
			}
		}
	}
	return findings
}

func TestContractsAsDataShowNothingElse(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() && s.folder() == "coordinator/contract" {
			for _, finding := range shown(s, hidden) {
				t.Error(finding)
			}
		}
	}
	s, err := parse("coordinator/contract/a.go", []byte(`package contract

import (
	"`+module+`/ledger/seal"
	pb "`+module+`/proto/sagenbaum/v1"
	"`+module+`/triggers"
)

type A struct {
	B *pb.Call
	c *pb.Call
}

type d struct{ E seal.Path }

func F(g *triggers.Cache) []seal.Path { return seal.Paths(pb.G) }
func h(i *triggers.Cache)             {}

var J = pb.K
`))
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, finding := range shown(s, hidden) {
		var line int
		if _, err := fmt.Sscanf(finding, s.path+":%d:", &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if want := []int{10, 16, 16, 19}; !slices.Equal(lines, want) {
		t.Errorf("found in lines %v, want %v", lines, want)
	}
}

// dialect maps a phrase that a native reader stumbles over to what to write instead. Each is
// looked for in pages, in comments and in the texts of code that is no test.
var dialect = map[string]string{
	"nobody":      "no one, or name the thing that does not do it",
	"somebody":    "someone, or the role",
	"anew":        "again",
	"for who":     "who, which, or the role",
	"who is told": "who gets the message",
	"behind":      "after; what led to it; or its place in a queue, as in goes behind",
	"stands":      "is, is still there, counts",
	"stand for":   "mean",
	"stand in":    "take the place of",
	"as what":     "as, like, or the noun",
	"of who":      "of the person who, or the role",
	"to who":      "to the caller, or the role",
	"by who":      "by the one that, or the role",
	"from who":    "from the one that, or the role",
	"with who":    "with the one that, or the role",
	"against who": "against those who",
	"as who":      "as the user who, or the role",
	"is who":      "is the one that, says who, or the noun",
	"are who":     "are those who, or the noun",
	"wakes who":   "wakes the readers, or what it is",
	"host who":    "host that, and which hosts or workers",
	"server who":  "server that",
	"servers who": "servers that",
	"worker who":  "worker that",
	"process who": "process that",
	"plan who":    "plan that",
	"gateway who": "gateway that",
}

var dialectWords = regexp.MustCompile(
	`\b(` + strings.ReplaceAll(strings.Join(slices.Sorted(maps.Keys(dialect)), "|"), " ", `\s`) + `)\b`)

// idioms are the places of such a phrase that are plain: a place in a queue or on a way, how much is
// missing, what is left, a host that stands by, a name in code, and a question.
var idioms = regexp.MustCompile(
	`\b(all|be|commits|compensated|dispatched|dispatches|each|falls|far|go|goes|held|hold|holds|is|lags|` +
		`leave|leaves|left|nothing|one|recorded|went|sent|stay|stays|those|wait|waits)\s+behind\b|` +
		`\bbehind\s+(a\s+cable|a\s+network|one\s+address|another|(the|its)\s+owner's\s+back)\b|` +
		`[.-]behind\b|%d behind\b|"(behind|stands),|^behind(:|$|\s(is|finds)\b)|\bstands\s+by\b|\b(as|so)\s+\w+\s+as\s+what\b`)

// said calls f with each comment and each text of a file, and the line where it is.
func said(s source, f func(line int, text string)) {
	for _, group := range s.file.Comments {
		f(s.fset.Position(group.Pos()).Line, group.Text())
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			f(s.fset.Position(literal.Pos()).Line, unquoted(literal))
		}
		return true
	})
}

// stumbles finds the phrases of dialect in a text.
func stumbles(text string) (findings []string) {
	rest := idioms.ReplaceAllString(strings.ToLower(text), " ")
	for _, found := range dialectWords.FindAllString(rest, -1) {
		found = strings.Join(strings.Fields(found), " ")
		findings = append(findings, fmt.Sprintf("%q; write %s", found, dialect[found]))
	}
	return findings
}

// recorded lists the texts of the fold that say such words. They become a part of records and of
// the state's digest, so that another word is another state.
var recorded = map[string]int{
	"executor/apply_ledger.go": 7,
	"executor/apply_probe.go":  1,
	"ledger/pair.go":           1,
	"ledger/tenant.go":         1,
	"triggers/error.go":        1,
	"executor/view/actions.go": 1,
	"executor/fact.go":         2,
	"executor/step.go":         2,
}

func TestWordsArePlain(t *testing.T) {
	found := map[string]int{}
	for _, s := range sources(t) {
		if s.test() || s.generated() {
			continue
		}
		said(s, func(line int, text string) {
			for _, finding := range stumbles(text) {
				if found[s.path]++; found[s.path] > recorded[s.path] {
					t.Errorf("%s:%d says %s", s.path, line, finding)
				}
			}
		})
	}
	for _, finding := range ratchet("phrases that are not plain", found, recorded, 0) {
		t.Error(finding)
	}
	for name, text := range pages(t) {
		prose(text, func(n int, line string) {
			for _, finding := range stumbles(line) {
				t.Errorf("%s:%d says %s", name, n, finding)
			}
		})
	}
	for text, want := range map[string]int{
		"Nobody is there": 1, "`TestNobodyIsThere`": 0,
		"it is stored behind the last one":               1,
		"it goes behind the last one":                    0,
		"a record behind\nan undo, as what\nit fires":    2,
		"a host that stands by is as good as what holds": 0,
		"it stands for the key of who asks":              2,
	} {
		if found := stumbles(text); len(found) != want {
			t.Errorf("%q: found %q, want %d", text, found, want)
		}
	}
}

var update = flag.Bool("update", false, "write the picture of the house into docs/architecture.md")

const (
	houseFrom = "<!-- The picture: go test ./cmd/sagenbaum-lab/tidy -run IsDrawn -update -->\n"
	houseTo   = "<!-- end of the picture -->"
)

// room is where a package is drawn: the packages of one command are one.
func room(folder string) string {
	if parts := strings.Split(folder, "/"); parts[0] == "cmd" && len(parts) > 2 {
		return path.Join(parts[:2]...)
	}
	return folder
}

// house draws the packages of the module and who imports whom as a Mermaid chart, from the
// imports of all code that is no test. An arrow that a longer way says already is left out, and
// so is a package without arrows.
func house(all []source) string {
	imported, linked := map[string]map[string]bool{}, map[string]bool{}
	for _, s := range all {
		if s.test() || s.folder() == "cmd/sagenbaum/cmdtest" {
			continue
		}
		from := room(s.folder())
		for _, p := range imports(s) {
			if folder, ours := strings.CutPrefix(p, module+"/"); ours && room(folder) != from {
				if imported[from] == nil {
					imported[from] = map[string]bool{}
				}
				imported[from][room(folder)] = true
				linked[room(folder)] = true
			}
		}
	}
	for folder := range linked {
		if imported[folder] == nil {
			imported[folder] = map[string]bool{}
		}
	}
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		for next := range imported[from] {
			if next == to || reaches(next, to) {
				return true
			}
		}
		return false
	}
	tops := map[string][]string{}
	for _, folder := range slices.Sorted(maps.Keys(imported)) {
		top, _, _ := strings.Cut(folder, "/")
		tops[top] = append(tops[top], folder)
	}
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TB\n")
	node := strings.NewReplacer("/", "_", "-", "_")
	for _, top := range slices.Sorted(maps.Keys(tops)) {
		fmt.Fprintf(&b, "  subgraph %s_house [%s]\n", node.Replace(top), top)
		for _, folder := range tops[top] {
			fmt.Fprintf(&b, "    %s[%s]\n", node.Replace(folder), strings.TrimPrefix(folder, top+"/"))
		}
		b.WriteString("  end\n")
	}
	for _, from := range slices.Sorted(maps.Keys(imported)) {
		for _, to := range slices.Sorted(maps.Keys(imported[from])) {
			longer := func(by string) bool { return by != to && reaches(by, to) }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(imported[from])), longer) {
				fmt.Fprintf(&b, "  %s --> %s\n", node.Replace(from), node.Replace(to))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

func TestTheHouseIsDrawnFromItsImports(t *testing.T) {
	name := path.Join("docs", "architecture.md")
	text, err := fs.ReadFile(checkout, name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), houseFrom)
	old, after, closed := strings.Cut(rest, houseTo)
	if !found || !closed {
		t.Fatalf("%s has no place for the picture, from %q to %q", name, houseFrom, houseTo)
	}
	drawn := house(sources(t))
	if *update {
		if err := os.WriteFile(filepath.Join(top, name), []byte(before+houseFrom+drawn+houseTo+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != drawn {
		t.Errorf("%s shows another house; draw it: go test ./cmd/sagenbaum-lab/tidy -run IsDrawn -update", name)
	}
}
