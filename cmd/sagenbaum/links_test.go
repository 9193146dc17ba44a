package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// What only those who develop Sagenbaum need is in sagenbaum-lab.
func TestTheServerLinksNothingOfTheLab(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	if len(linked) < 100 {
		t.Fatalf("go list names %d packages", len(linked))
	}
	for _, name := range linked {
		for _, lab := range []string{"/executor/sim", "/triggers/timescales", "/triggers/oracle",
			"/cmd/sagenbaum-lab"} {
			if strings.HasSuffix(name, lab) {
				t.Errorf("the server links %s", name)
			}
		}
	}
}

func TestACommandThatMovedSaysWhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bench", "sim"} {
		r := cmdtest.Run(t, name, "--seed", "7")
		r.Wants(t, name, cli.ExitUsage, "sagenbaum-lab", "next: go run ./cmd/sagenbaum-lab "+name)
	}
}
