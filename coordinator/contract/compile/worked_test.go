package compile_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
)

const worked = "../../../docs/guide/contracts"

func workedSources(t *testing.T) []contract.Source {
	t.Helper()
	sources, err := contract.LoadDir(os.DirFS(worked))
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// The contracts of the guide are as it says: no finding, and each example holds.
func TestWorkedContracts(t *testing.T) {
	sources := workedSources(t)
	for _, f := range compile.Lint(sources) {
		t.Error(f)
	}
	if len(sources) != 8 {
		t.Errorf("%d contracts, want 8", len(sources))
	}
	classes := map[contract.Class]int{}
	for _, s := range sources {
		classes[s.Class]++
		if s.Class == contract.Compensable && len(s.Examples) == 0 {
			t.Errorf("%s has no examples", s.File)
		}
	}
	if classes[contract.Compensable] != 6 || classes[contract.Irreversible] != 2 {
		t.Errorf("classes %v", classes)
	}
}

// What the guide shows is right too.
func TestTheGuidesOwnContractIsRight(t *testing.T) {
	text, err := os.ReadFile("../../../docs/guide/contracts.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, "kind: Contract") {
			continue
		}
		found++
		for _, f := range compile.Lint(parse(t, block)) {
			t.Error(f)
		}
	}
	if found == 0 {
		t.Error("the guide shows no contract")
	}
}

// TestTheReadmesContractIsRight: lint has nothing to say about it, and its undo names what the
// forward did by a name that is known when its outcome is lost.
func TestTheReadmesContractIsRight(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, literal, _ := strings.Cut(string(text), "[]contract.Contract{{")
	literal, _, _ = strings.Cut(literal, "}}}}})")
	said := func(like string) string {
		found := regexp.MustCompile(like).FindStringSubmatch(literal)
		if found == nil {
			t.Fatalf("the contract of README.md has no %s:\n%s", like, literal)
		}
		return found[1]
	}
	if class, late := said(`Class: contract\.(\w+)`), said(`Late: contract\.Late(\w+)`); class != "Compensable" || late != "Never" {
		t.Fatalf("class %s, late %s: teach them to this test", class, late)
	}
	doubt := strings.ToLower(said(`OnInDoubt: contract\.InDoubt(\w+)`))
	yaml := head + "capability: " + said(`Capability: "([^"]+)"`) + "\nclass: compensable\nlate: never\non_in_doubt: " +
		doubt + "\ninverse:\n  call: " + said(`Call: "([^"]+)"`) + "\n  with:\n"
	with := regexp.MustCompile(`"(\w+)": "(=[^"]+)"`).FindAllStringSubmatch(literal, -1)
	for _, argument := range with {
		yaml += "    " + argument[1] + ": '" + argument[2] + "'\n"
	}
	for _, f := range compile.Lint(parse(t, yaml)) {
		t.Error(f)
	}
	if !strings.Contains(yaml, "meta.forward_key") || strings.Contains(yaml, "output.") {
		t.Errorf("its undo has no name of the effect when the outcome is lost:\n%s", yaml)
	}
}

func ExampleLint() {
	sources, err := contract.Parse("branch.yaml", []byte(`apiVersion: sagenbaum/v1
kind: Contract
capability: git.branch.create
class: compensable
late: never
inverse:
  call: git.branch.delete
  with: {branch: =input.branch, sha: =outptu.sha}
`))
	if err != nil {
		fmt.Println(err)
	}
	for _, finding := range compile.Lint(sources) {
		fmt.Println(finding)
	}
	// Output:
	// branch.yaml:4:8: warning: class: no probe: an action in doubt is undone blindly; add a probe, or write on_in_doubt: compensate or quarantine
	// branch.yaml:8:39: error: inverse.with.sha: undeclared name "outptu"; did you mean output?
}
