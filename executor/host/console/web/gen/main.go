// Gen compiles the .templ files of a folder to Go, with the parser and the generator of templ,
// pinned in this folder's go.mod, which keeps them out of the product's own module.
//
//	go run . DIR
//
// It then shortens what templ writes: every piece of text there handles an error of its own, and
// every component takes part in a context and a pool of buffers. Pages are made in memory, where
// writing cannot fail, so that a call of package web does (out.go), in a quarter of the code and
// without the runtime of templ, which imports html/template. What is not replaced does not
// compile: package web imports no templ, and has none of its variables.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/a-h/templ/generator"
	"github.com/a-h/templ/parser/v2"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen DIR")
		os.Exit(64)
	}
	names, err := filepath.Glob(filepath.Join(os.Args[1], "*.templ"))
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no .templ file in %s", os.Args[1])
	}
	for _, name := range names {
		if err == nil {
			err = compile(name)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot generate:", err)
		os.Exit(2)
	}
}

// compile writes NAME_templ.go for NAME.templ.
func compile(name string) error {
	file, err := parser.Parse(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var long bytes.Buffer
	if _, err := generator.Generate(file, &long); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	code, err := format.Source(long.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if code, err = format.Source([]byte(shorten(string(code)))); err != nil {
		return fmt.Errorf("%s, shortened: %w", name, err)
	}
	return os.WriteFile(strings.TrimSuffix(name, ".templ")+"_templ.go", code, 0o644)
}

// classes are the texts of class attributes, which templ keeps in variables.
var classes = regexp.MustCompile(`\s*var (templ_\w+) = \[\]any\{(.+)\}\n`)

// shorter are the replacements, in order, in code that is formatted.
var shorter = []struct {
	long *regexp.Regexp
	code string
}{
	{regexp.MustCompile(`import (templruntime )?"github\.com/a-h/templ.*\n`), ""},
	{regexp.MustCompile(`var _ = templruntime\..*\n`), ""},
	{regexp.MustCompile(`//lint:file-ignore .*\n`), ""},
	// Without the pragma, Go copies each component into all that call it: a megabyte.
	{regexp.MustCompile(`\n(func .*) templ\.Component \{\n\treturn templruntime\.Generated` +
		`Template\((?s:.*?)ctx = templ\.ClearChildren\(ctx\)\n`),
		"\n//go:noinline\n$1 component {\n\treturn func(out *out) {\n"},
	{regexp.MustCompile(`\n\t\treturn nil\n\t\}\)\n\}`), "\n\t}\n}"},
	{regexp.MustCompile(`if templ_\w+_Err != nil \{\s+return .+\s+\}\n`), ""},
	{regexp.MustCompile(`templ_\w+_Err = templ\.RenderCSSItems\(.*\)\n`), ""},
	{regexp.MustCompile(`var templ_\w+ (string|templ\.SafeURL)\n`), ""},
	{regexp.MustCompile(`_, templ_\w+_Err = templ_\w+_Buffer\.WriteString\(templ\.Escape` +
		`String\(templ_\w+\)\)\n`), ""},
	{regexp.MustCompile(`templ_\w+, templ_\w+_Err = templ\.JoinURLErrs\(`), "out.link("},
	{regexp.MustCompile(`templ_\w+, templ_\w+_Err = templ\.JoinStringErrs\(`), "escaped(out, "},
	{regexp.MustCompile(`templ_\w+_Err = templruntime\.WriteString\(\w+, \d+, `), "out.markup("},
	{regexp.MustCompile(`templ_\w+_Err = (?s:(.+?))\.Render\(ctx, templ_\w+_Buffer\)\n`),
		"$1(out)\n"},
	{regexp.MustCompile(`\s*\n(\s*\n)+`), "\n\n"},
}

func shorten(code string) string {
	for _, found := range classes.FindAllStringSubmatch(code, -1) {
		code = strings.Replace(code, found[0], "\n", 1)
		code = strings.ReplaceAll(code, "templ.CSSClasses("+found[1]+").String()", found[2])
	}
	for _, s := range shorter {
		code = s.long.ReplaceAllString(code, s.code)
	}
	return code
}
