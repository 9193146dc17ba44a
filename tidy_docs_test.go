package sagenbaum_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// The rules on the pages that people read.

const columnsMax = 100

// pages are README.md, CHANGELOG.md and all of docs, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	read := func(name string) error {
		text, err := os.ReadFile(name)
		all[filepath.ToSlash(name)] = string(text)
		return err
	}
	for _, name := range []string{"README.md", "CHANGELOG.md"} {
		if err := read(name); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir("docs", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".md" {
			return err
		}
		return read(name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// prose calls f with each line that is no output, command, table row or link alone.
func prose(text string, f func(n int, line string)) {
	fenced := false
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		bare := strings.TrimSpace(line)
		if !fenced && !strings.HasPrefix(line, "    ") && !strings.HasPrefix(bare, "|") && strings.Contains(bare, " ") {
			f(n+1, line)
		}
	}
}

// TestPagesAreNarrow: a line of prose has at most 100 columns, so that it can be read in a
// terminal and compared line by line.
func TestPagesAreNarrow(t *testing.T) {
	for name, text := range pages(t) {
		prose(text, func(n int, line string) {
			if width := utf8.RuneCountInString(line); width > columnsMax {
				t.Errorf("%s:%d has %d columns, at most %d", name, n, width, columnsMax)
			}
		})
	}
}

// measured is how a block of figures names the commit that they were measured at.
var measured = regexp.MustCompile("Measured at `[0-9a-f]{7,40}`")

// figures are the sections of pages that are made of figures, by their headings' level.
var figures = map[string]string{
	"docs/performance.md":      "\n## ",
	"docs/reliability.md":      "\n### ",
	"docs/guide/simulation.md": "\n## ",
}

// unmeasured lists the sections with figures that name no commit.
func unmeasured(text, heading string) (sections []string) {
	for _, section := range strings.Split(text, heading)[1:] {
		title, body, _ := strings.Cut(section, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		if figure.MatchString(body) && !measured.MatchString(body) {
			sections = append(sections, title)
		}
	}
	return sections
}

// figure is a rate, a time or a size that was measured.
var figure = regexp.MustCompile(`\d(/s\b| (plans|records|worlds|facts|pairs)/s| ms\b| us\b| MiB resident)`)

// TestFiguresNameTheirCommit: a figure without the commit that it was measured at says
// nothing of the program that is read.
func TestFiguresNameTheirCommit(t *testing.T) {
	all := pages(t)
	for name, heading := range figures {
		for _, section := range unmeasured(all[name], heading) {
			t.Errorf("%s: %q has figures and does not say \"Measured at `COMMIT`\"", name, section)
		}
	}
	const page = "# Page\n\n## One\n\nMeasured at `abcdef0`: 3 ms.\n\n## Two\n\n400 plans/s\n"
	if got := fmt.Sprint(unmeasured(page, "\n## ")); got != "[Two]" {
		t.Errorf("the rule finds %s, want [Two]", got)
	}
}

// TestDocsNameTestsThatExist: a guide that names a test keeps its word.
func TestDocsNameTestsThatExist(t *testing.T) {
	known := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			for _, d := range s.file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					known[f.Name.Name] = true
				}
			}
		}
	}
	named := regexp.MustCompile("`(Test[A-Z]\\w+)`")
	for name, text := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if !known[m[1]] {
				t.Errorf("%s names %s, which is nowhere", name, m[1])
			}
		}
	}
}
