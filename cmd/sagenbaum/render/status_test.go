package render

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// The number of an attempt's action, which commands take, stands beside its id.
func TestUndosShowTheNumberOfTheirAction(t *testing.T) {
	var out strings.Builder
	WriteUndos(&out, cli.Pen{},
		[]api.Undo{{Plan: "p", Number: 3, Action: "book~1", Compensation: "room.free", Attempt: 2,
			State: "done"}}, false)
	if head, row, _ := strings.Cut(out.String(), "\n"); !strings.HasPrefix(head, "#  ACTION ") ||
		!strings.HasPrefix(row, "3  book~1 ") {
		t.Errorf("the list is\n%s", out.String())
	}
}
