package main

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// advised are the checks of the doctor that give advice, and where it is followed: "here", in
// TestTheDoctorsAdviceIsFollowed, or why it is not.
var advised = map[string]string{
	"worker": "here", "capability": "here", "quarantine": "here", "deadlines": "here", "windows": "here",
	"conditions": "here", "records": "here", "writers": "here", "durability": "here",

	"fold":       "waits, and looks again",
	"executor":   "waits, mends a disk or a clock, or repairs as ledger does",
	"handler":    "a program of its own runs again: coordinator/replay",
	"server":     "another server",
	"ledger":     "repairs: TestADamagedLedgerIsSeenAndRepairedFromTheCommandLine and the exercises",
	"hosts":      "waits, or mends another host",
	"checkpoint": "copies keys, or rotates them: TestKeysAreMadeListedAndRotatedFromTheCommandLine and the exercises",
	"witness":    "another machine",
	"key":        "copies keys from another host",
	"pages":      "someone listens: executor/host TestS102APageThatNobodyHearsStaysOpen",
	"replicas":   "a cluster",
	"room":       "a larger limit",
	"disk":       "a larger disk",
	"clock":      "another clock",
	"replies":    "another worker",
	"fields":     "another worker",
}

// TestTheDoctorGivesNoOtherAdvice: who adds one says here where it is followed.
func TestTheDoctorGivesNoOtherAdvice(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("doctor/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	given := map[string]bool{"replies": true, "fields": true} // notCounted names its check in a field
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			called, ok := call.Fun.(*ast.Ident)
			check, isText := call.Args[0].(*ast.BasicLit)
			if ok && isText && (called.Name == "warn" || called.Name == "broken") {
				word, _ := strconv.Unquote(check.Value)
				given[word] = true
			}
			return true
		})
	}
	for check := range given {
		if advised[check] == "" {
			t.Errorf("advice of check %s is followed nowhere: follow it, or say why not", check)
		}
	}
	for check := range advised {
		if !given[check] {
			t.Errorf("the doctor gives no advice of check %s any more", check)
		}
	}
}

// commands are the command lines in an advice, without the program's name.
func commandsIn(advice string) (lines [][]string) {
	for _, found := range regexp.MustCompile(`sagenbaum ([^;,()]+)`).FindAllStringSubmatch(advice, -1) {
		lines = append(lines, strings.Fields(found[1]))
	}
	return lines
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// neglect leaves what the doctor gives advice about: beside plans stuck and lonely one without an end,
// with a window that closes and a condition in error, a refused record, and a plan without a writer.
func neglect(t *testing.T, s *cmdtest.Served, conn *nats.Conn) {
	t.Helper()
	cmdtest.Trouble(t, s, "default") // plans stuck and lonely
	agent, err := coordinator.New(coordinator.Config{Conn: conn, Tenant: "default", Agent: "careless",
		Contracts: []contract.Contract{{Capability: "seat.hold", Class: contract.Compensable, ValidFor: time.Hour,
			Late: contract.LateNever, Inverse: &contract.Inverse{Call: "room.free"}}}})
	must(t, err)
	endless, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "endless",
		Triggers: map[string]string{"dear": `facts["price"] > 5.0`}})
	must(t, err)
	must(t, endless.Report(t.Context(), coordinator.Action{Capability: "seat.hold"}, coordinator.Outcome{}))
	must(t, agent.Close(t.Context()))
	publishJSON(t, conn, "saga.default.fact.fares", `{"records":[{"factAsserted":{"key":"price","value":"InR4dCI="}}]}`)
	publishJSON(t, conn, "saga.default.agent.careless.nameless", `{"records":[{"plan":"nameless","planOpened":{}}]}`)
	publishJSON(t, conn, "saga.default.agent.careless.endless",
		`{"records":[{"plan":"endless","planOpend":{}}]}`)
}

// TestTheDoctorsAdviceIsFollowed: each command that it names runs, shows what it is about, and what
// the advice leads to leaves the doctor nothing to say of it.
func TestTheDoctorsAdviceIsFollowed(t *testing.T) {
	t.Parallel()
	dir := cmdtest.DataDir(t)
	s := cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0", "--no-sync")
	conn := cmdtest.Dial(t, s.URL)
	neglect(t, s, conn)
	looked := func(old string) func(check string) doctor.Finding {
		r := s.Ask(t, "default", "doctor", "--old", old, "-o", "json")
		return func(check string) doctor.Finding { return findingOf(t, r, check) }
	}
	sick := looked("1ms")
	shows := map[string]string{ // what the advice's commands say
		"quarantine": "mail.send", "deadlines": "seat.hold", "windows": "room.free", "conditions": "price",
		"records": "planOpend",
	}
	for check, where := range advised {
		if where != "here" {
			continue
		}
		f := sick(check)
		if f.State != "warn" || f.Next == "" {
			t.Errorf("%s: %+v", check, f)
			continue
		}
		lines, said := commandsIn(f.Next), ""
		for _, line := range lines {
			r := s.Ask(t, "default", line...)
			if said += r.Stdout; r.Code != cli.ExitGood && r.Code != cli.ExitLook {
				t.Errorf("%s: %q ends with %d: %s%s", check, line, r.Code, r.Stdout, r.Stderr)
			}
		}
		if want := shows[check]; (want == "") != (len(lines) == 0) || !strings.Contains(said, want) {
			t.Errorf("%s: %q shows no %q: %s", check, f.Next, want, said)
		}
	}
	// what they lead to
	if n := sick("capability").Next; !strings.Contains(n, "start a worker for room.free") ||
		!strings.Contains(sick("worker").Next, "start a worker for room.free") {
		t.Errorf("it asks for another worker: %s", n)
	}
	cmdtest.Freeing(t, conn, "default")
	s.Ask(t, "default", "quarantine", "resolve", "stuck", "1", "--as", "accepted", "--reason", "it was read",
		"--evidence", "mail 7", "--actor", "ana").Wants(t, "resolve", cli.ExitGood)
	s.Ask(t, "default", "plan", "cancel", "endless", "--reason", "forgotten", "--actor", "ana", "--wait").
		Wants(t, "plan cancel", cli.ExitGood)
	s.Ask(t, "default", "plan", "cancel", "nameless", "--reason", "forgotten", "--actor", "ana", "--wait").
		Wants(t, "plan cancel", cli.ExitGood)
	publishJSON(t, conn, "saga.default.agent.careful.named", `{"records":[{"plan":"named","writer":"p7","planOpened":{}}]}`)
	cmdtest.Eventually(t, "a doctor that has nothing to say of what was done", func() (string, bool) {
		well, open := looked("24h"), []string{}
		for _, check := range []string{"worker", "capability", "quarantine", "deadlines", "windows", "conditions"} {
			if f := well(check); f.State != "ok" {
				open = append(open, check+": "+f.Text)
			}
		}
		return strings.Join(open, "; "), len(open) == 0
	})
	named := func(detail string) bool { return strings.HasPrefix(detail, "plan named ") }
	if f := looked("1ms")("writers"); slices.ContainsFunc(f.Details, named) {
		t.Errorf("a plan with a writer has none: %+v", f)
	}
	s.End(t)
	s = cmdtest.ServeFor(t, dir, "--listen", "127.0.0.1:0") // without --no-sync
	if f := looked("24h")("durability"); f.State != "ok" {
		t.Errorf("durability: %+v", f)
	}
	s.End(t)
}

// TestTheAdviceOfPlanWhyIsFollowed: the commands that it prints are typed as they stand, with a reason
// and a name, and do what they say; what it points to shows what it is about.
func TestTheAdviceOfPlanWhyIsFollowed(t *testing.T) {
	t.Parallel()
	l := newLoop(t)
	defer l.stop(t)
	printed := func(plan string, code int, like string) string {
		t.Helper()
		out := l.run(t, code, "plan why "+plan).Stdout
		found := regexp.MustCompile(`(?m)` + like).FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("plan why %s gives no advice like %s:\n%s", plan, like, out)
		}
		return strings.NewReplacer("WHY", "'as plan why says'", "NAME", "ana").Replace(found[1])
	}
	says(t, l.run(t, cli.ExitGood, printed("shop-1", cli.ExitGood, `what it holds: sagenbaum (.*)$`)), "room.book",
		"moved")
	story := l.run(t, cli.ExitGood, "plan why shop-1").Stdout
	sequence := regexp.MustCompile(`plan_opened@(\d+)`).FindStringSubmatch(story)
	if sequence == nil || !strings.Contains(story, "any of them: sagenbaum ledger show SEQUENCE") {
		t.Fatalf("no record to look at:\n%s", story)
	}
	says(t, l.run(t, cli.ExitGood, "ledger show "+sequence[1]), "plan_opened")

	l.run(t, cli.ExitGood, "plan cancel shop-1 --reason 'the shop moves' --actor ana")
	for _, step := range []struct{ cut, like, told, state string }{
		{"price-3", `^  next: sagenbaum (plan resume .*)$`, "goes on from depth 1, as told by ana", "compensated"},
		{"stock-6", `^    or: sagenbaum (plan cancel .*)$`, "", "compensated"},
		{"shop-9", `^    or: sagenbaum (plan give-up .*)$`, "given up, as told by ana", "open"},
	} {
		l.cut(t, step.cut)
		says(t, l.run(t, cli.ExitGood, printed(step.cut, cli.ExitLook, step.like)), step.told)
		cmdtest.Eventually(t, step.cut+" is "+step.state, func() (string, bool) {
			plan := cmdtest.Decoded[api.Plan](t, l.run(t, cli.ExitGood, "plan show "+step.cut+" -o json"))
			return plan.State, plan.State == step.state && len(plan.Cuts) == 0
		})
	}
	l.run(t, cli.ExitGood, "quarantine ls")
}
