package sagenbaum_test

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

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
