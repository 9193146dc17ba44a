package tidy_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// The rules on single files, each a function of one source to its findings.

func below(folder, top string) bool { return folder == top || strings.HasPrefix(folder, top+"/") }

func imports(s source) []string {
	var paths []string
	for _, spec := range s.file.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

func checkLayers(s source) (findings []string) {
	if s.test() {
		return nil
	}
	rule := ""
	for folder := range layers {
		if below(s.folder(), folder) && len(folder) > len(rule) {
			rule = folder
		}
	}
	if rule == "" {
		return []string{fmt.Sprintf("%s: a folder outside the dependency rule; give it a line in layers", s.path)}
	}
	for _, imported := range imports(s) {
		folder, ours := strings.CutPrefix(imported, module+"/")
		allowed := layers[rule]
		if !ours || slices.Contains(allowed, "...") || below(folder, rule) || slices.Contains(allowed, folder) {
			continue
		}
		findings = append(findings, fmt.Sprintf("%s: %s may not import %s; it may use %s", s.path, rule, folder,
			strings.Join(allowed, ", ")))
	}
	return findings
}

func checkOwners(s source) (findings []string) {
	if s.test() {
		return nil
	}
	for _, imported := range imports(s) {
		for _, owner := range owners {
			if !below(imported, owner.importPath) {
				continue
			}
			if !slices.ContainsFunc(owner.folders, func(f string) bool { return below(s.folder(), f) }) {
				findings = append(findings, fmt.Sprintf("%s: imports %s; use %s", s.path, imported, owner.want))
			}
			break // the most specific owner decides
		}
	}
	return findings
}

func checkPureImports(s source) (findings []string) {
	if !s.pure() {
		return nil
	}
	for _, imported := range imports(s) {
		for _, ban := range impureImports {
			if below(imported, ban.importPath) && excused[s.path+": import "+imported] == "" {
				findings = append(findings, fmt.Sprintf("%s: pure code imports %s; use %s", s.path, imported, ban.want))
			}
		}
	}
	return findings
}

func checkPureCalls(s source) (findings []string) {
	if !s.pure() {
		return nil
	}
	utc := map[ast.Node]bool{} // calls of time.Unix whose result goes to UTC at once
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "UTC" {
			utc[sel.X] = true
		}
		return true
	})
	ast.Inspect(s.file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && !utc[call] {
			if name := selects(call.Fun, "time"); name == "Unix" || name == "UnixMilli" || name == "UnixMicro" {
				findings = append(findings, fmt.Sprintf("%s: time.%s gives the machine's zone; use time.%s(...).UTC()", s.at(n),
					name, name))
			}
		}
		if e, ok := n.(ast.Expr); ok {
			if name := selects(e, "time"); impureCalls[name] != "" {
				findings = append(findings, fmt.Sprintf("%s: pure code uses time.%s; use %s", s.at(n), name, impureCalls[name]))
			}
		}
		return true
	})
	return findings
}

// selects returns X of the expression pkg.X, else "".
func selects(e ast.Expr, pkg string) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if id, ok := sel.X.(*ast.Ident); !ok || id.Name != pkg {
		return ""
	}
	return sel.Sel.Name
}

func checkGo(s source) (findings []string) {
	if !s.pure() {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if _, ok := n.(*ast.GoStmt); ok {
			findings = append(findings, fmt.Sprintf("%s: pure code starts a goroutine; return a value that the shell acts on",
				s.at(n)))
		}
		return true
	})
	return findings
}

func checkInit(s source) (findings []string) {
	for _, decl := range s.file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			findings = append(findings, fmt.Sprintf("%s: func init; use a constructor that its caller calls", s.at(f)))
		}
	}
	return findings
}

func checkSizes(s source) (findings []string) {
	most := fileLinesMax
	if s.pure() {
		most = pureFileLinesMax
	}
	if n := bytes.Count(s.text, []byte("\n")); n > most {
		findings = append(findings, fmt.Sprintf("%s: %d lines, at most %d; split it by its nouns", s.path, n, most))
	}
	for _, decl := range s.file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; n > functionLinesMax {
			findings = append(findings,
				fmt.Sprintf("%s: %s has %d lines, at most %d; branches in the parent, straight lines in the leaves", s.at(f),
					f.Name.Name, n, functionLinesMax))
		}
	}
	return findings
}

// checkDocs wants a comment on every exported name, and a package comment on
// the file that is named for its package or stands alone.
func checkDocs(s source) (findings []string) {
	if s.test() || s.file.Name.Name == "main" {
		return nil
	}
	missing := func(n ast.Node, name string) {
		findings = append(findings, fmt.Sprintf("%s: exported %s has no comment; say what it is, its unit, range and errors",
			s.at(n), name))
	}
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) && !selfEvident(d) {
				missing(d, d.Name.Name)
			}
		case *ast.GenDecl:
			said := "" // by the comment before, which may cover several names
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && v.Doc != nil {
					said = v.Doc.Text()
				}
				if name, ok := undocumented(d, spec); ok && !strings.Contains(said, name) {
					missing(spec, name)
				}
			}
		}
	}
	return findings
}

// selfEvident are methods whose meaning the standard library fixes.
func selfEvident(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"String", "Error", "Unwrap", "Len", "Less", "Swap"}, d.Name.Name)
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

func undocumented(d *ast.GenDecl, spec ast.Spec) (string, bool) {
	switch v := spec.(type) {
	case *ast.TypeSpec:
		return v.Name.Name, v.Name.IsExported() && d.Doc == nil && v.Doc == nil && v.Comment == nil
	case *ast.ValueSpec:
		for _, name := range v.Names {
			if name.IsExported() && d.Doc == nil && v.Doc == nil && v.Comment == nil {
				return name.Name, true
			}
		}
	}
	return "", false
}

func checkSleeps(s source) (findings []string) {
	if !s.test() {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && selects(e, "time") == "Sleep" {
			findings = append(findings,
				fmt.Sprintf("%s: a test that sleeps; wait on a channel with a deadline, or use testing/synctest", s.at(n)))
		}
		return true
	})
	return findings
}

// checkRequests refuses requests of tests that wait for seconds: a machine may be still for longer.
func checkRequests(s source) (findings []string) {
	if !s.test() {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		to, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || to.Sel.Name != "Request" && to.Sel.Name != "RequestMsg" {
			return true
		}
		ast.Inspect(call.Args[len(call.Args)-1], func(within ast.Node) bool {
			e, ok := within.(ast.Expr)
			if ok && slices.Contains([]string{"Second", "Millisecond"}, selects(e, "time")) {
				findings = append(findings, fmt.Sprintf("%s: a request that waits for seconds; use testenv.Patience, "+
					"or a constant that says why it may be lost", s.at(n)))
			}
			return true
		})
		return true
	})
	return findings
}

// checkUnfinished refuses marks of unfinished work in comments.
func checkUnfinished(s source) (findings []string) {
	marks := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"}
	for _, group := range s.file.Comments {
		for _, mark := range marks {
			if strings.Contains(group.Text(), mark) {
				findings = append(findings, fmt.Sprintf("%s: %s; finish it, or say in words what is not there", s.at(group), mark))
			}
		}
	}
	return findings
}

// statementNumber is how tests name the statements of the specification.
var statementNumber = regexp.MustCompile(`\b[SIA][0-9]{1,3}\b`)

// documented are the folders whose comments are read as documentation.
var documented = []string{"coordinator", "triggers", "proto"}

// checkNumbers refuses statement numbers in the documentation of the Go API: its readers
// should not have to look one up in docs/statements.md.
func checkNumbers(s source) (findings []string) {
	read := func(top string) bool { return below(s.folder(), top) }
	if s.test() || s.folder() != "ledger" && !slices.ContainsFunc(documented, read) {
		return nil
	}
	for _, group := range s.file.Comments {
		if number := statementNumber.FindString(group.Text()); number != "" {
			findings = append(findings, fmt.Sprintf("%s: a statement number, %s; say what it says", s.at(group), number))
		}
	}
	return findings
}

// glossaryBans maps words we do not say in names to the word we do.
var glossaryBans = map[string]string{
	"Workflow": "plan", "Rollback": "compensation or unwind", "Journal": "ledger",
	"Watchdog": "lease", "Saga": "plan", "Nonce": "key",
}

func checkWords(s source) (findings []string) {
	if s.test() {
		return nil
	}
	for _, decl := range s.file.Decls {
		for _, id := range declared(decl) {
			for _, word := range words(id.Name) {
				if want := glossaryBans[word]; want != "" {
					findings = append(findings, fmt.Sprintf("%s: %s says %q; docs/glossary.md says %s", s.at(id), id.Name, word, want))
				}
			}
		}
	}
	return findings
}

func declared(decl ast.Decl) (ids []*ast.Ident) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{d.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch v := spec.(type) {
			case *ast.TypeSpec:
				ids = append(ids, v.Name)
			case *ast.ValueSpec:
				ids = append(ids, v.Names...)
			}
		}
	}
	return ids
}

// words splits a name in camel case; the first word comes back with a capital.
func words(name string) (parts []string) {
	start := 0
	for i, r := range name {
		if i > start && unicode.IsUpper(r) {
			parts = append(parts, name[start:i])
			start = i
		}
	}
	parts = append(parts, name[start:])
	for i, p := range parts {
		parts[i] = strings.ToUpper(p[:1]) + p[1:]
	}
	return parts
}

// timersAllowed lists, per file below executor/host, the functions of package time
// that it may use and what for. None of them knows a plan's deadline: that is a
// lease, and the wake timer of the actor serves all leases.
var timersAllowed = map[string]map[string]string{
	"actor.go":            {"NewTimer": "the wake timer of all leases"},
	"proof/checkpoint.go": {"AfterFunc": "the next checkpoint"},
	"pause/pause.go":      {"NewTimer": "pauses after a failure"},
	"dispatch.go":         {"AfterFunc": "asking a worker again"},
	"leadership.go":       {"NewTimer": "renewing the leadership"},
	"bound.go":            {"After": "between two looks at the size of a ledger"},
	"page/page.go":        {"AfterFunc": "publishing a page again that nobody has taken"},
	"ask/board.go":        {"NewTimer": "how long a question may wait"},
	"store/room.go":       {"After": "looking again at a full disk"},
	"tiles/silence.go":    {"AfterFunc": "how long a read that is no fold waits for a message"},
	"tiles/sync.go":       {"After": "syncing tiles every two seconds at most"},
	"session.go":          {"After": "the reader looks at the stream's end while the loop is busy; decides nothing"},
}

var timers = []string{"AfterFunc", "NewTimer", "NewTicker", "After", "Tick"}

// checkTimers keeps deadlines a matter of leases: the shell has no timers but
// those above and never looks at a deadline.
func checkTimers(s source) (findings []string) {
	name, shell := strings.CutPrefix(s.path, "executor/host/")
	if s.test() || !shell || strings.HasPrefix(name, "console/") {
		return nil
	}
	allowed := timersAllowed[name]
	ast.Inspect(s.file, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if name := selects(e, "time"); slices.Contains(timers, name) && allowed[name] == "" {
				findings = append(findings,
					fmt.Sprintf("%s: time.%s; deadlines are leases of the fold, and the actor's wake timer serves them", s.at(n),
						name))
			}
		}
		if id, ok := n.(*ast.Ident); ok && strings.Contains(id.Name, "DeadlineNs") {
			findings = append(findings, fmt.Sprintf("%s: the shell reads %s; a deadline is a lease of the fold", s.at(n),
				id.Name))
		}
		return true
	})
	return findings
}

// agents are the files that play an agent. They name what undoes their actions
// in their contracts and nowhere else.
var agents = []string{"cmd/sagenbaum/demo/agent.go", "coordinator/example_test.go"}

// undoing are the words by which code that undoes something gives itself away.
// Capabilities of actions, such as git.worktree.add, contain none of them.
var undoing = []string{"undo", "delete", "remove", "reset", "revert", "rollback", "compensate", "restore", "unwind"}

// checkNoUndoing wants no inverse, and no function, method or text with a word of
// undoing, outside the contracts of an agent. In a test only the example is the
// agent; the fixture that cleans up after it is not.
func checkNoUndoing(s source) (findings []string) {
	if !slices.Contains(agents, s.path) {
		return nil
	}
	contracts, inverses := declaredContracts(s)
	if len(inverses) == 0 {
		return []string{fmt.Sprintf("%s: an agent with no contracts; name the inverses in a contract.Contract", s.path)}
	}
	for _, decl := range s.file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && s.test() && !strings.HasPrefix(f.Name.Name, "Example") || !ok && importing(decl) {
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if contracts[n] || n == nil {
				return false
			}
			switch v := n.(type) {
			case *ast.BasicLit:
				findings = append(findings, undoingText(s, v, inverses)...)
			case *ast.SelectorExpr:
				findings = append(findings, undoingName(s, v.Sel)...)
			case *ast.CallExpr:
				if id, ok := v.Fun.(*ast.Ident); ok {
					findings = append(findings, undoingName(s, id)...)
				}
			}
			return true
		})
	}
	return findings
}

// declaredContracts finds the literals of contracts, which may name inverses, and
// the names of these.
func declaredContracts(s source) (contracts map[ast.Node]bool, inverses []string) {
	contracts = map[ast.Node]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		t := literal.Type
		if list, ok := t.(*ast.ArrayType); ok {
			t = list.Elt
		}
		if t == nil || selects(t, "contract") != "Contract" {
			return true
		}
		contracts[literal] = true
		ast.Inspect(literal, func(n ast.Node) bool {
			inverse, ok := n.(*ast.CompositeLit)
			if !ok || selects(inverse.Type, "contract") != "Inverse" {
				return true
			}
			for _, e := range inverse.Elts {
				pair, _ := e.(*ast.KeyValueExpr)
				if pair == nil {
					continue
				}
				key, _ := pair.Key.(*ast.Ident)
				value, _ := pair.Value.(*ast.BasicLit)
				if key != nil && key.Name == "Call" && value != nil {
					inverses = append(inverses, unquoted(value))
				}
			}
			return true
		})
		return false
	})
	return contracts, inverses
}

func undoingText(s source, literal *ast.BasicLit, inverses []string) []string {
	text := unquoted(literal)
	for _, inverse := range inverses {
		if strings.Contains(text, inverse) {
			return []string{fmt.Sprintf("%s: an agent names the inverse %s outside its contracts; the executor calls it",
				s.at(literal), inverse)}
		}
	}
	if word := undoingWord(text); word != "" {
		return []string{fmt.Sprintf("%s: an agent's text %q contains the word %q; what undoes is named in its contracts",
			s.at(literal), text, word)}
	}
	return nil
}

func undoingWord(text string) string {
	for _, word := range undoing {
		if strings.Contains(strings.ToLower(text), word) {
			return word
		}
	}
	return ""
}

func unquoted(literal *ast.BasicLit) string {
	if text, err := strconv.Unquote(literal.Value); err == nil {
		return text
	}
	return literal.Value
}

func importing(decl ast.Decl) bool {
	d, ok := decl.(*ast.GenDecl)
	return ok && d.Tok == token.IMPORT
}

func undoingName(s source, id *ast.Ident) []string {
	if undoingWord(id.Name) == "" {
		return nil
	}
	return []string{fmt.Sprintf("%s: an agent uses %s; name the inverse in its contract, the executor calls it", s.at(id),
		id.Name)}
}

// agentSource is an agent with one contract that does one thing more.
func agentSource(expression string) string {
	return `package p
func Example() {
	contracts := []contract.Contract{{Capability: "git.push", Inverse: &contract.Inverse{Call: "git.push.delete"}}}
	do(contracts, ` + expression + `)
}`
}

// A test process is shared: by the other tests of its package, and with the go command,
// which has it write files of its own. What changes the whole process is therefore done
// before the first test, in TestMain, or in a process of its own.

const (
	aloneInstead  = "testenv.Alone, a process of its own"
	mainInstead   = "TestMain, before the first test"
	passedInstead = "a value that is passed in"
)

// processCalls are functions, by package, that change the process that calls them.
var processCalls = map[string]map[string]string{
	"os": {"Setenv": "t.Setenv", "Unsetenv": "t.Setenv", "Clearenv": "t.Setenv", "Chdir": "t.Chdir"},
	"syscall": {
		"Setrlimit": "testenv.LimitFileSize inside testenv.Alone", "Umask": "testenv.Umask inside testenv.Alone",
		"Chdir": "t.Chdir", "Chroot": aloneInstead, "Setenv": "t.Setenv", "Unsetenv": "t.Setenv",
		"Setuid": aloneInstead, "Setgid": aloneInstead, "Setpriority": aloneInstead, "Dup2": aloneInstead,
		"Dup3": aloneInstead,
	},
	"signal": {
		"Ignore": aloneInstead, "Reset": aloneInstead, "Notify": aloneInstead, "NotifyContext": aloneInstead,
	},
	"debug": {
		"SetGCPercent": mainInstead, "SetMemoryLimit": mainInstead, "SetMaxStack": mainInstead,
		"SetMaxThreads": mainInstead, "SetPanicOnFault": aloneInstead, "SetTraceback": mainInstead,
	},
	"log":  {"SetOutput": passedInstead, "SetFlags": passedInstead, "SetPrefix": passedInstead},
	"slog": {"SetDefault": passedInstead, "SetLogLoggerLevel": passedInstead},
	"otel": {
		"SetTracerProvider": passedInstead, "SetMeterProvider": passedInstead,
		"SetTextMapPropagator": passedInstead, "SetLogger": passedInstead, "SetErrorHandler": passedInstead,
	},
	"flag": {"Set": mainInstead},
	"rand": {"Seed": "rand.New, with a source of its own"},
}

// processVariables are variables, by package, that belong to the process.
var processVariables = map[string]map[string]string{
	"os":   {"Stdout": "an io.Writer", "Stderr": "an io.Writer", "Stdin": "an io.Reader", "Args": "arguments"},
	"time": {"Local": "time.UTC"},
	"http": {"DefaultClient": "a client", "DefaultTransport": "a transport", "DefaultServeMux": "a mux"},
	"flag": {"CommandLine": "a flag set"},
	"rand": {"Reader": "an io.Reader"},
}

// checkProcess refuses, in a test, what changes the process of all tests.
func checkProcess(s source) (findings []string) {
	if !s.test() {
		return nil
	}
	refuse := func(n ast.Node, what, instead string) {
		findings = append(findings,
			fmt.Sprintf("%s: %s changes the process of all tests; use %s", s.at(n), what, instead))
	}
	for _, decl := range s.file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "TestMain" {
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch v := n.(type) {
			case *ast.CallExpr:
				if name := selects(v.Fun, "runtime"); name == "GOMAXPROCS" && !zero(v.Args) {
					refuse(v, "runtime.GOMAXPROCS", mainInstead)
				}
			case *ast.SelectorExpr: // called, or passed on
				for pkg, calls := range processCalls {
					alias := pkg
					if pkg == "syscall" && selects(v, "unix") != "" {
						alias = "unix"
					}
					if instead := calls[selects(v, alias)]; instead != "" {
						refuse(v, alias+"."+v.Sel.Name, instead)
					}
				}
			case *ast.AssignStmt:
				for _, to := range v.Lhs {
					for pkg, variables := range processVariables {
						if instead := variables[selects(to, pkg)]; instead != "" {
							refuse(v, "an assignment to "+pkg+"."+selects(to, pkg), instead+" that is passed in")
						}
					}
				}
			}
			return true
		})
	}
	return findings
}

// zero reports whether the arguments are a literal 0, which asks and sets nothing.
func zero(args []ast.Expr) bool {
	if len(args) != 1 {
		return false
	}
	literal, ok := args[0].(*ast.BasicLit)
	return ok && literal.Value == "0"
}

// checkShort wants one switch between a plain run and a long one.
func checkShort(s source) (findings []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok && selects(e, "testing") == "Short" {
			findings = append(findings, fmt.Sprintf(
				"%s: testing.Short; use testenv.Cases or testenv.Long: SAGENBAUM_LONG is the one switch", s.at(n)))
		}
		return true
	})
	return findings
}

func TestTheRuleOnTheProcessCanFail(t *testing.T) {
	for statement, want := range map[string]string{
		`syscall.Setrlimit(1, &limit)`:        "testenv.LimitFileSize",
		`unix.Setrlimit(1, &limit)`:           "unix.Setrlimit",
		`set := syscall.Setrlimit`:            "syscall.Setrlimit",
		`syscall.Umask(0)`:                    "syscall.Umask",
		`signal.Ignore(syscall.SIGXFSZ)`:      "testenv.Alone",
		`os.Setenv("A", "b")`:                 "t.Setenv",
		`os.Chdir("/")`:                       "t.Chdir",
		`defer debug.SetGCPercent(1600)`:      "TestMain",
		`runtime.GOMAXPROCS(1)`:               "runtime.GOMAXPROCS",
		`os.Stdout = file`:                    "os.Stdout",
		`time.Local = time.UTC`:               "time.Local",
		`http.DefaultTransport, x = nil, nil`: "http.DefaultTransport",
		`slog.SetDefault(nil)`:                "slog.SetDefault",
		`flag.Set("test.parallel", "1")`:      "flag.Set",
		`runtime.GOMAXPROCS(0)`:               "",
		`t.Setenv("A", "b")`:                  "",
		`var out io.Writer = os.Stdout`:       "",
	} {
		text := "package p; func TestX(t *testing.T) { " + statement + " }"
		s, err := parse("executor/host/a_test.go", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		found := strings.Join(checkProcess(s), "\n")
		if want == "" && found != "" || want != "" && !strings.Contains(found, want) {
			t.Errorf("%s: found %q, want %q", statement, found, want)
		}
	}
	for path, text := range map[string]string{
		"executor/host/a_test.go": `package p; func TestMain(m *testing.M) { debug.SetGCPercent(1600) }`,
		"executor/host/a.go":      `package p; func f() { signal.Notify(nil) }`,
	} {
		s, err := parse(path, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if found := checkProcess(s); len(found) > 0 {
			t.Errorf("%s: %q, want nothing", text, found)
		}
	}
}
