package contract_test

import (
	"fmt"
	"log"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
)

// A contract in a file: what a capability does, and what undoes it. Lint says everything
// that is wrong with it, by line and column.
func ExampleParse() {
	sources, err := contract.Parse("git.yaml", []byte(`apiVersion: sagenbaum/v1
kind: Contract
capability: git.branch.create
class: compensable
late: never # it ends with the process that makes it
probe:
  call: git.branch.get
  with: {branch: =input.branch}
  answer: 'probe.sha == output.sha ? "present" : "absent"'
inverse:
  call: git.branch.delete
  with: {repository: =input.repository, branch: =input.branch, sha: =output.sha}
  timeout: 30s
  attempts: 500
`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sources[0].Capability, "is undone by", sources[0].Inverse.Call)
	for _, finding := range compile.Lint(sources) {
		fmt.Println(finding)
	}
	// Output:
	// git.branch.create is undone by git.branch.delete
	// git.yaml:14:13: error: inverse.attempts: 500; want 1 to 100
}

// Contracts that are declared in Go: a test of an agent says what is probably not meant in them.
func ExampleInCode() {
	for _, finding := range compile.Lint(contract.InCode(contract.Contract{
		Capability: "shop.set", Class: contract.Compensable, Late: contract.LateNever,
		OnInDoubt: contract.InDoubtCompensate,
		Inverse:   &contract.Inverse{Call: "shop.set", With: map[string]any{"of": "=input.of"}},
	})) {
		fmt.Println(finding.File, finding.Field, finding.Message)
	}
	// Output:
	// contract[shop.set] inverse.call the inverse is the forward itself
}

// A contract as a Go value, which is what the coordinator takes. Diff names what differs
// between two, with the defaults of fields that are left out.
func ExampleDiff() {
	one := contract.Contract{
		Capability: "git.branch.create", Class: contract.Compensable,
		Inverse: &contract.Inverse{
			Call: "git.branch.delete",
			With: map[string]any{"branch": "=input.branch"},
		},
	}
	two := one
	two.Probe = &contract.Probe{
		Call: "git.branch.get", With: map[string]any{"branch": "=input.branch"},
	}
	changes, err := contract.Diff(one, two)
	if err != nil {
		log.Fatal(err)
	}
	for _, change := range changes {
		fmt.Printf("%s: %q is now %q\n", change.Field, change.From, change.To)
	}
	// Output:
	// on_in_doubt: "compensate" is now "probe"
	// probe.attempts: "" is now "3"
	// probe.backoff: "" is now "1s"
	// probe.call: "" is now "git.branch.get"
	// probe.timeout: "" is now "30s"
	// probe.with.branch: "" is now "=input.branch"
}
