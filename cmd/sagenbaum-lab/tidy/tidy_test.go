// Package tidy_test holds the house rules as a test: who may import whom,
// what pure code may not use, sizes, names. Each ban names its replacement.
package tidy_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/sagenbaum/sagenbaum"

const (
	functionLinesMax = 70
	pureFileLinesMax = 450
	fileLinesMax     = 700

	quickstartLinesMax = 22
)

// top is the folder of this checkout, as the go command runs these tests.
var top = filepath.Join("..", "..", "..")

// checkout has the files of this checkout; the paths of all findings are those in it.
var checkout = os.DirFS(top)

// purePackages are functions of values: no clock, randomness, network,
// goroutine or map order. Their tests may use what they need.
var purePackages = []string{"ledger", "ledger/audit", "ledger/audit/ids", "ledger/bundle", "ledger/seal", "ledger/verify", "triggers", "triggers/exact", "triggers/nearest", "triggers/timescales", "proto/rawjson", "executor", "executor/expressions", "executor/ids", "executor/leases", "executor/memory", "executor/rows", "executor/view", "executor/turn", "executor/sim"}

// layers is the dependency rule: a package (by folder, the longest prefix
// counts) may import these folders of the module and no other. Tests are free
// to wire layers together.
var layers = map[string][]string{
	"proto":                     {},
	"proto/api":                 {"proto/rawjson"},
	"proto/rawjson":             {},
	"ledger":                    {"triggers/nearest", "proto/sagenbaum/v1", "proto/api", "proto/rawjson"},
	"ledger/audit":              {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/seal", "triggers"},
	"ledger/bundle":             {"ledger"},
	"ledger/verify":             {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/audit", "ledger/bundle"},
	"ledger/seal":               {"ledger", "proto/api"},
	"ledger/jetstream":          {"proto/sagenbaum/v1", "ledger"},
	"ledger/access":             {"ledger", "proto/api"},
	"ledger/tenancy":            {"ledger", "proto/api", "proto/sagenbaum/v1"},
	"ledger/access/callout":     {"ledger", "ledger/access"},
	"ledger/access/tries":       {},
	"ledger/testenv":            {"connect", "ledger/access"},
	"ledger/testenv/served":     {"ledger/jetstream/embedded"},
	"connect":                   {"ledger", "ledger/access"},
	"ledger/jetstream/embedded": {"proto/sagenbaum/v1", "ledger", "ledger/access", "ledger/jetstream"},
	"triggers":                  {"triggers/exact", "triggers/nearest", "proto/rawjson"},
	"triggers/exact":            {},
	"triggers/nearest":          {},
	"triggers/oracle":           {},
	"executor":                  {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/seal", "triggers", "executor/expressions", "executor/ids", "executor/leases", "executor/memory", "executor/rows", "executor/rowspb"},
	"executor/expressions":      {"proto/sagenbaum/v1", "ledger", "triggers"},
	"executor/ids":              {"ledger", "executor/rows", "executor/rowspb"},
	"executor/leases":           {"triggers", "executor/rows"},
	"executor/memory":           {"proto/sagenbaum/v1", "ledger", "triggers", "executor/rows", "executor/rowspb"},
	"executor/rows":             {"proto/sagenbaum/v1", "executor/rowspb"},
	"executor/rowspb":           {"proto/sagenbaum/v1"},
	"executor/view": {"proto/sagenbaum/v1", "proto/api", "ledger", "triggers", "executor", "executor/memory",
		"executor/rows", "executor/rowspb", "executor/writers"},
	"executor/turn":           {"proto/sagenbaum/v1", "proto/api", "ledger", "executor", "executor/rowspb"},
	"executor/actuators":      {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/seal", "triggers", "executor", "executor/turn"},
	"executor/sim":            {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/audit", "ledger/bundle", "ledger/verify", "triggers", "executor", "executor/memory", "executor/view", "executor/rows", "executor/rowspb", "executor/turn"},
	"executor/sim/mutants":    {},
	"executor/host":           {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/seal", "ledger/bundle", "ledger/jetstream", "ledger/tenancy", "triggers", "executor", "executor/memory", "executor/view", "executor/rows", "executor/rowspb", "executor/turn", "executor/actuators"},
	"executor/host/inprocess": {"ledger", "ledger/jetstream/embedded", "executor/host", "executor/host/pause"},
	"executor/host/observe": {"proto/sagenbaum/v1", "proto/api", "ledger", "executor",
		"executor/actuators", "executor/turn"},
	"executor/host/blob": {"ledger", "ledger/jetstream", "ledger/seal", "executor/host/pause"},
	"executor/host/ask": {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/access", "ledger/jetstream", "ledger/seal",
		"triggers", "executor", "executor/actuators", "executor/rows", "executor/turn", "executor/view",
		"executor/host/observe", "executor/host/pause", "executor/host/store", "executor/host/tiles",
		"executor/host/blob", "executor/host/vault"},
	"executor/host/page": {"proto/api", "ledger", "executor", "executor/actuators", "executor/turn",
		"executor/host/pause", "executor/host/webclient"},
	"executor/host/pause": {},
	"executor/host/proof": {"proto/sagenbaum/v1", "proto/api", "executor/host/vault", "ledger", "ledger/access",
		"executor/rowspb", "executor/host/pause", "executor/host/store", "executor/host/tiles", "executor/host/webclient"},
	"executor/host/repair": {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/jetstream", "executor", "executor/turn",
		"executor/host/pause", "executor/host/store", "executor/host/tiles"},
	"executor/host/vault": {"proto/api", "ledger", "ledger/access", "ledger/jetstream", "ledger/seal", "executor",
		"executor/turn", "executor/host/pause", "executor/host/store"},
	"executor/host/webclient": {},
	"executor/host/console": {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/jetstream", "ledger/seal",
		"executor", "executor/view", "executor/host/ask", "executor/host/tiles",
		"executor/host/console/access", "executor/host/console/web", "ledger/access/tries"},
	"executor/host/console/access": {"ledger", "ledger/access", "ledger/access/tries", "executor/host/webclient"},
	"executor/host/console/web":    {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/seal", "executor"},
	"coordinator":                  {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/seal", "ledger/jetstream", "triggers"},
	"coordinator/blob":             {"proto/api", "ledger", "ledger/seal", "coordinator/internal/pause"},
	"coordinator/door": {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/access", "ledger/access/tries",
		"ledger/jetstream", "coordinator", "coordinator/blob", "triggers/nearest"},
	"coordinator/contract": {"triggers/nearest", "proto/api", "ledger", "triggers"},
	"coordinator/contract/compile": {"proto/sagenbaum/v1", "proto/api", "ledger", "ledger/seal", "triggers",
		"triggers/nearest", "coordinator/contract", "coordinator/contract/internal/argument"},
	"coordinator/mcp": {"proto/api", "proto/rawjson", "ledger", "triggers", "coordinator", "coordinator/contract",
		"coordinator/contract/compile", "coordinator/worker", "ledger/access/tries"},
	"cmd":                  {"..."},
	"cmd/sagenbaum-verify": {"ledger", "ledger/audit", "ledger/bundle", "ledger/verify"},
}

// owners says which folders alone may import a foreign module; below them too.
var owners = []struct {
	importPath string
	folders    []string
	want       string
}{
	{module + "/ledger/testenv", []string{"cmd/sagenbaum/cmdtest"}, "it in tests only"},
	{module + "/ledger/testenv/served", nil, "it in tests only"},
	{module + "/cmd/sagenbaum/cmdtest", nil, "it in tests only"},
	{module + "/executor/rowspb", []string{"executor"}, "what package executor shows of its rows"},
	{"cel.dev/cel-go", []string{"triggers"}, "package triggers"},
	{"github.com/google/cel-go", nil, "cel.dev/cel-go, its canonical path, through package triggers"},
	{"github.com/nats-io/nats.go/jetstream", []string{"ledger/jetstream"}, "package ledger/jetstream"},
	{"github.com/nats-io/nats-server", []string{"ledger/jetstream/embedded"}, "package ledger/jetstream/embedded"},
	{"github.com/nats-io/nats.go", []string{"connect", "ledger/access/callout", "ledger/testenv", "ledger/jetstream", "coordinator", "executor/host", "executor/actuators", "cmd"}, "package ledger/jetstream or coordinator"},
	{"github.com/cockroachdb/pebble", []string{"executor/host"}, "package executor/host"},
	{"github.com/RaduBerinde/btreemap", []string{"ledger/audit"}, "an index of package rows"},
	{"github.com/modelcontextprotocol/go-sdk", []string{"coordinator/mcp", "cmd/sagenbaum"}, "package coordinator/mcp"},
	{"github.com/spf13/cobra", []string{"cmd"}, "package cmd/sagenbaum"},
	{"go.yaml.in/yaml", []string{"coordinator/contract", "cmd/sagenbaum"}, "package coordinator/contract, or -o yaml of cmd/sagenbaum"},
	{"github.com/coreos/go-oidc", []string{"executor/host/console/access", "ledger/access/callout"}, "access.Provider"},
	{"golang.org/x/oauth2", []string{"executor/host/console/access"}, "access.Provider"},
	{"golang.org/x/crypto", []string{"executor/host/console/access"}, "what package access keeps of tokens"},
	{"github.com/zitadel/oidc", nil, "github.com/coreos/go-oidc, and it in tests"},
	{"github.com/prometheus", []string{"executor/host/observe"}, "observe.Metrics"},
	{"go.opentelemetry.io/otel/sdk", []string{"cmd/sagenbaum"}, "a trace.Tracer that is passed in"},
	{"go.opentelemetry.io/otel", []string{"coordinator", "executor/host", "cmd/sagenbaum"}, "a trace context as bytes, as it is recorded"},
	{"go.opentelemetry.io/proto", []string{"cmd/sagenbaum"}, "the exporter of cmd/sagenbaum"},
	{"github.com/synadia-io/orbit.go", []string{"cmd/sagenbaum"}, "package cmd/sagenbaum"},
	{"html/template", nil, "a .templ file: it keeps every exported method linked"},
	{"text/template", nil, "a .templ file, for the same reason"},
	{"github.com/a-h/templ", []string{"executor/host/console/web/gen"}, "package executor/host/console/web"},
	{"golang.org/x/net", nil, "it in tests only"},
	{"github.com/google/jsonschema-go", []string{"coordinator/contract"}, "package coordinator/contract"},
}

// impureImports are banned in pure packages.
var impureImports = []struct{ importPath, want string }{
	{"math/rand", "an id or number that comes in as an input"},
	{"crypto/rand", "an id that comes in as an input"},
	{"net", "the shell: executor/host or ledger/jetstream"},
	{"os", "the shell, which reads and passes values in"},
	{"io/ioutil", "the shell, which reads and passes values in"},
	{"log", "a value the shell can log"},
	{"runtime", "nothing: pure code does not look at its machine"},
	{"sync", "one owner: the actor's goroutine"},
	{"github.com/nats-io", "the ledger.Store interface"},
	{"github.com/cockroachdb", "the executor's key-value transaction"},
}

// impureCalls are banned selectors of package time in pure packages.
var impureCalls = map[string]string{
	"Now": "the epoch of the turn", "Since": "the epoch of the turn", "Until": "the epoch of the turn",
	"Sleep": "a due instant", "After": "a due instant", "AfterFunc": "a due instant", "Tick": "a due instant",
	"NewTimer": "a due instant", "NewTicker": "a due instant",
	"Local": "time.UTC", "LoadLocation": "time.UTC",
}

// excused lists what the bans let pass, each with its reason.
var excused = map[string]string{
	"ledger/memory.go: import sync": "the in-memory store is called from several goroutines, as any Store",
}

var folderNames = []string{"util", "utils", "common", "types", "models", "mocks", "internal", "helpers", "misc"}

var topLevel = []string{
	".ci", ".git", ".gitattributes", ".github", ".gitignore", ".golangci.yml", ".dockerignore", "bin", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
	"LICENSE", "Makefile", "README.md", "go.mod", "go.sum", "sagenbaum-data",
	"cmd", "connect", "coordinator", "deploy", "docs", "executor", "internal", "ledger", "proto", "triggers",
}

// source is one Go file of the module.
type source struct {
	path string // with slashes, from the root
	text []byte
	file *ast.File
	fset *token.FileSet
}

func (s source) folder() string { return path.Dir(s.path) }
func (s source) test() bool     { return strings.HasSuffix(s.path, "_test.go") }
func (s source) generated() bool {
	return strings.HasSuffix(s.path, ".pb.go") || strings.HasSuffix(s.path, "_templ.go")
}
func (s source) pure() bool { return !s.test() && slices.Contains(purePackages, s.folder()) }

func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(n.Pos()).Line)
}

func parse(name string, text []byte) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{path: name, text: text, file: file, fset: fset}, err
}

// rules are all bans on single files.
var rules = []func(source) []string{
	checkLayers, checkOwners, checkPureImports, checkPureCalls, checkGo, checkInit,
	checkSizes, checkDocs, checkSleeps, checkRequests, checkUnfinished, checkWords, checkTimers, checkNoUndoing, checkProcess, checkShort, checkNumbers,
}

func TestHouseRules(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated() {
			continue
		}
		for _, rule := range rules {
			for _, finding := range rule(s) {
				t.Error(finding)
			}
		}
	}
}

// sources parses every Go file of the module, but not of the proto compiler's
// own module.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := fs.WalkDir(checkout, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (name == ".git" || name == "bin" || name == "proto/gen" || name == "sagenbaum-data") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := fs.ReadFile(checkout, name)
		if err != nil {
			return err
		}
		s, err := parse(name, text)
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPureCodeNeverDependsOnMapOrder type-checks the pure packages and looks
// at what each range statement ranges over.
func TestPureCodeNeverDependsOnMapOrder(t *testing.T) {
	exports := exportData(t)
	for _, folder := range purePackages {
		var files []source
		for _, s := range sources(t) {
			if s.folder() == folder && !s.test() {
				files = append(files, s)
			}
		}
		findings, err := mapRanges(folder, files, exports)
		if err != nil {
			t.Errorf("cannot check %s: %v", folder, err)
		}
		for _, finding := range findings {
			t.Error(finding)
		}
	}
}

// exportData finds the compiled form of everything the pure packages import.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	for _, folder := range purePackages {
		args = append(args, "./"+folder)
	}
	list := exec.Command("go", args...)
	list.Dir = top
	out, err := list.Output()
	if err != nil {
		t.Fatalf("cannot list the pure packages: %v", err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		importPath, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[importPath] = file
	}
	return exports
}

func mapRanges(folder string, files []source, exports map[string]string) (findings []string, err error) {
	// One file set for all: the files are parsed again, into it.
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, s := range files {
		file, err := parser.ParseFile(fset, s.path, s.text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(importPath string) (io.ReadCloser, error) {
		return os.Open(exports[importPath])
	})}
	info := types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	if _, err := config.Check(module+"/"+folder, fset, parsed, &info); err != nil {
		return nil, err
	}
	for _, file := range parsed {
		sorted := map[ast.Expr]bool{} // arguments of slices.Sorted and its kin
		ast.Inspect(file, func(n ast.Node) bool {
			switch v := n.(type) {
			case *ast.RangeStmt:
				if _, ok := info.Types[v.X].Type.Underlying().(*types.Map); ok {
					findings = append(findings, fmt.Sprintf("%s: ranges over a map; use slices.Sorted(maps.Keys(m))", fset.Position(v.Pos())))
				}
			case *ast.CallExpr:
				if name := selects(v.Fun, "slices"); strings.HasPrefix(name, "Sorted") {
					sorted[v.Args[0]] = true
				}
				if name := selects(v.Fun, "maps"); (name == "Keys" || name == "Values" || name == "All") && !sorted[v] {
					findings = append(findings, fmt.Sprintf("%s: maps.%s has no order; use slices.Sorted(maps.Keys(m))", fset.Position(v.Pos()), name))
				}
			}
			return true
		})
	}
	return findings, nil
}

func TestFoldersSayWhatTheyHold(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(folderNames, path.Base(s.folder())) || slices.Contains(folderNames, s.file.Name.Name) {
			t.Errorf("%s: a folder or package name that says nothing; name it for its noun", s.path)
		}
	}
	entries, err := fs.ReadDir(checkout, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(topLevel, entry.Name()) {
			t.Errorf("%s: a top-level name that docs/architecture.md does not know; move it, or list it in topLevel", entry.Name())
		}
	}
}

func TestGoModExplainsThePathOfCEL(t *testing.T) {
	text, err := fs.ReadFile(checkout, "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if problem := celComment(string(text)); problem != "" {
		t.Error(problem)
	}
}

// celComment wants the reason for cel-go's path on its line or just above it.
func celComment(gomod string) string {
	said := ""
	for line := range strings.Lines(gomod) {
		requirement, comment, commented := strings.Cut(line, "//")
		if commented {
			said += comment
		}
		if strings.Contains(requirement, "cel.dev/cel-go v") {
			if !strings.Contains(said, "github.com/google/cel-go") {
				return "go.mod: say beside cel.dev/cel-go that it is the canonical path of github.com/google/cel-go (docs/adr/0002)"
			}
			return ""
		}
		if strings.TrimSpace(requirement) != "" {
			said = ""
		}
	}
	return "go.mod: cel.dev/cel-go is missing"
}

func TestTheQuickstartOfTheReadmeIsTheCompiledExample(t *testing.T) {
	readme, err := fs.ReadFile(checkout, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := fs.ReadFile(checkout, "coordinator/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	snippet, _, found := strings.Cut(rest, "```")
	if n := strings.Count(snippet, "\n"); !found || n < 10 || n > quickstartLinesMax {
		t.Fatalf("README.md has a quickstart in Go of %d lines, want 10 to %d", n, quickstartLinesMax)
	}
	var indented strings.Builder
	for line := range strings.Lines(snippet) {
		if line != "\n" {
			line = "\t" + line
		}
		indented.WriteString(line)
	}
	if !strings.Contains(string(example), indented.String()) {
		t.Error("the quickstart of README.md is not in coordinator/example_test.go, line by line; copy it from there")
	}
}

// TestEachRuleCanFail feeds every rule a small source that breaks it: a rule
// that finds nothing there would find nothing anywhere.
func TestEachRuleCanFail(t *testing.T) {
	long := strings.Repeat("\n", functionLinesMax)
	for _, c := range []struct{ name, path, text, want string }{
		{"executor imports coordinator", "executor/a.go", `package executor; import _ "` + module + `/coordinator"`, "may not import coordinator"},
		{"coordinator imports executor", "coordinator/a.go", `package coordinator; import _ "` + module + `/executor"`, "may not import executor"},
		{"ledger imports triggers", "ledger/a.go", `package ledger; import _ "` + module + `/triggers"`, "may not import triggers"},
		{"the language imports the ledger", "triggers/a.go", `package triggers; import _ "` + module + `/ledger"`, "triggers may not import ledger"},
		{"the audit imports what it audits", "ledger/audit/a.go", `package audit; import _ "` + module + `/executor"`, "may not import executor"},
		{"what is for tests", "cmd/sagenbaum/a.go", `package main; import _ "` + module + `/ledger/testenv"`, "in tests only"},
		{"rows outside the executor", "cmd/sagenbaum/a.go", `package main; import _ "` + module + `/executor/rowspb"`, "use what package executor shows"},
		{"unknown folder", "newthing/a.go", `package newthing`, "outside the dependency rule"},
		{"cel outside triggers", "executor/a.go", `package executor; import _ "cel.dev/cel-go/cel"`, "use package triggers"},
		{"cel by its old path", "triggers/a.go", `package triggers; import _ "github.com/google/cel-go/cel"`, "canonical path"},
		{"streams outside the store", "executor/host/a.go", `package host; import _ "github.com/nats-io/nats.go/jetstream"`, "use package ledger/jetstream"},
		{"server outside embedded", "cmd/sagenbaum/a.go", `package main; import _ "github.com/nats-io/nats-server/v2/server"`, "ledger/jetstream/embedded"},
		{"pages outside the console", "executor/host/a.go", `package host; import _ "github.com/a-h/templ"`, "use package executor/host/console/web"},
		{"templates", "executor/host/console/a.go", `package console; import _ "html/template"`, "use a .templ file"},
		{"pebble in the pure core", "executor/a.go", `package executor; import _ "github.com/cockroachdb/pebble/v2"`, "use package executor/host"},
		{"randomness", "ledger/a.go", `package ledger; import _ "math/rand/v2"`, "pure code imports math/rand/v2"},
		{"network", "triggers/a.go", `package triggers; import _ "net/http"`, "pure code imports net/http"},
		{"files", "executor/a.go", `package executor; import _ "os"`, "pure code imports os"},
		{"locks", "executor/a.go", `package executor; import _ "sync"`, "pure code imports sync"},
		{"clock", "executor/a.go", `package executor; var t = time.Now()`, "use the epoch of the turn"},
		{"clock as a value", "executor/a.go", `package executor; var now = time.Now`, "use the epoch of the turn"},
		{"zone", "executor/a.go", `package executor; var t = time.Unix(0, 1).String()`, "use time.Unix(...).UTC()"},
		{"goroutine", "executor/a.go", `package executor; func f() { go f() }`, "starts a goroutine"},
		{"init", "coordinator/a.go", `package coordinator; func init() {}`, "use a constructor"},
		{"long function", "coordinator/a.go", "package coordinator; func f() {" + long + "}", "at most 70"},
		{"long pure file", "executor/a.go", "package executor" + strings.Repeat("\n", pureFileLinesMax+1), "at most 450"},
		{"long file", "executor/host/a.go", "package host" + strings.Repeat("\n", fileLinesMax+1), "at most 700"},
		{"undocumented function", "ledger/a.go", `package ledger; func Exported() {}`, "exported Exported has no comment"},
		{"undocumented type", "ledger/a.go", `package ledger; type Exported struct{}`, "exported Exported has no comment"},
		{"undocumented constant", "ledger/a.go", `package ledger; const Exported = 1`, "exported Exported has no comment"},
		{"sleep in a test", "ledger/a_test.go", `package ledger; func f() { time.Sleep(1) }`, "a test that sleeps"},
		{"a request in a test", "ledger/a_test.go", `package ledger; func f() { c.Request("a", nil, 2*time.Second) }`, "waits for seconds"},
		{"another switch for long runs", "ledger/a_test.go", `package ledger; func f() { if testing.Short() { return } }`, "use testenv.Cases"},
		{"a statement number in godoc", "coordinator/a.go", "package coordinator\n\n// F does it (S54).\nfunc F() {}", "a statement number"},
		{"unfinished", "ledger/a.go", "package ledger // TO" + "DO later", "finish it"},
		{"a timer for deadlines", "executor/host/deadlines.go", `package host; var d = time.AfterFunc`, "deadlines are leases"},
		{"a timer too many in a file that has one", "executor/host/leadership.go", `package host; func f() { time.NewTimer(1); time.AfterFunc(1, nil) }`, "deadlines are leases"},
		{"a deadline read by the shell", "executor/host/actor.go", `package host; func f(p *row) int64 { return p.DeadlineNs }`, "DeadlineNs"},
		{"a deadline read through its getter", "executor/host/actor.go", `package host; func f(p *row) int64 { return p.GetDeadlineNs() }`, "DeadlineNs"},
		{"an agent that names an inverse", "cmd/sagenbaum/demo/agent.go", agentSource(`"git.push.delete"`), "names the inverse"},
		{"an agent that builds the name of an inverse", "coordinator/example_test.go", agentSource(`"undo.default." + name`), "contains the word"},
		{"an agent that calls an undo", "cmd/sagenbaum/demo/agent.go", agentSource(`g.deleteBranch()`), "deleteBranch"},
		{"an agent that passes an undo on", "cmd/sagenbaum/demo/agent.go", agentSource(`g.deleteBranch`), "uses deleteBranch"},
		{"an agent that removes what it made", "coordinator/example_test.go", agentSource(`os.Remove("x")`), "Remove"},
		{"an agent without contracts", "cmd/sagenbaum/demo/agent.go", `package main`, "no contracts"},
		{"banned word", "executor/a.go", `package executor; type runWorkflow struct{}`, "docs/glossary.md says plan"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := parse(c.path, []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			var findings []string
			for _, rule := range rules {
				findings = append(findings, rule(s)...)
			}
			if !strings.Contains(strings.Join(findings, "\n"), c.want) {
				t.Errorf("found %q, want a finding with %q", findings, c.want)
			}
		})
	}
}

func TestMapOrderRuleCanFail(t *testing.T) {
	const text = `package ledger
type set map[string]int
func bad(m set) { for range m { } }
func good(m set, l []int) { for range l { } }
`
	s, err := parse("ledger/bad.go", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	findings, err := mapRanges("ledger", []source{s}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) != 1 || !strings.Contains(findings[0], "bad.go:3") {
		t.Errorf("found %q, want exactly the range in line 3", findings)
	}
}

func TestCELCommentRuleCanFail(t *testing.T) {
	if celComment("require (\n\tcel.dev/cel-go v0.33.2\n)") == "" || celComment("require x v1") == "" {
		t.Error("a go.mod without the reason passes")
	}
	if problem := celComment("// the canonical path of github.com/google/cel-go\ncel.dev/cel-go v0.33.2"); problem != "" {
		t.Error(problem)
	}
}

// The rules on the pages that people read.

const columnsMax = 100

// pages are README.md, CHANGELOG.md and all of docs, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	read := func(name string) error {
		text, err := fs.ReadFile(checkout, name)
		all[name] = string(text)
		return err
	}
	for _, name := range []string{"README.md", "CHANGELOG.md"} {
		if err := read(name); err != nil {
			t.Fatal(err)
		}
	}
	err := fs.WalkDir(checkout, "docs", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" {
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
