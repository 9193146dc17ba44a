package compile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

const head = "apiVersion: sagenbaum/v1\nkind: Contract\n"

// branch is a contract that uses most fields.
func branch() contract.Contract {
	return contract.Contract{
		Capability: "git.branch.create", Class: contract.Compensable, Fidelity: contract.Exact,
		Before: &contract.Before{Call: "git.branch.get", With: map[string]any{"name": "=input.name"}},
		Inverse: &contract.Inverse{
			Call: "git.branch.delete", With: map[string]any{"sha": "=output.sha", "force": true},
			Verify: &contract.Verify{Call: "git.branch.get", Ok: "verify.found == false"},
		},
		Probe: &contract.Probe{Call: "git.branch.get", Answer: `probe.found ? "present" : "absent"`},
	}
}

func changed(f func(*contract.Contract)) contract.Contract {
	c := branch()
	f(&c)
	return c
}

func mustCompile(t *testing.T, c contract.Contract) *compile.Compiled {
	t.Helper()
	compiled, err := compile.Contract(c, triggers.NewCache(64))
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// registered is the registration that a contract gives.
func registered(t *testing.T, c contract.Contract) *pb.CompensationRegistered {
	t.Helper()
	_, inverse := mustCompile(t, c).Pair("p", "a", "k", &pb.ForwardRegistered{Capability: c.Capability})
	return inverse.GetCompensationRegistered()
}

func parse(t *testing.T, text string) []contract.Source {
	t.Helper()
	sources, err := contract.Parse("file.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

func wantRefused(t *testing.T, err error, field, problem string) {
	t.Helper()
	var refused *ledger.Refused
	if !errors.As(err, &refused) || refused.Field != field || !strings.Contains(refused.Problem, problem) {
		t.Errorf("%v\n  want %s: %s", err, field, problem)
	}
}

func binding(t *testing.T, bindings []*pb.Binding, name string) string {
	t.Helper()
	for _, b := range bindings {
		if b.Name == name {
			return b.Expression
		}
	}
	t.Fatalf("no argument %s in %v", name, bindings)
	return ""
}
