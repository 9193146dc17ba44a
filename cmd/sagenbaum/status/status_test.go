package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A plan of which only a child plan waits is stuck on something, too.
func TestAStuckParentNamesWhatItWaitsFor(t *testing.T) {
	var out strings.Builder
	v := TenantStatus{Status: api.Status{Quarantined: 1},
		Stuck: []api.Plan{{Plan: "p", Owner: "ana"}}}
	WriteStatus(&out, cli.Pen{}, v, time.Now())
	if !strings.Contains(out.String(), "stuck        p, owner ana: a plan that is part of it\n") {
		t.Errorf("the status is\n%s", out.String())
	}
}

func TestTheStatusSaysWhatUndoesTheCallsOfAnMCPClient(t *testing.T) {
	var out strings.Builder
	WriteStatus(&out, cli.Pen{}, TenantStatus{Status: api.Status{Waiting: []api.Waiting{
		{Capability: "mcp.files-1", Plan: "p1"}, {Capability: "file.delete", Plan: "p2"}}}}, time.Now())
	if got := out.String(); strings.Count(got, "\nnext  ") != 1 || !strings.Contains(got, "sagenbaum serve --mcp FILE") {
		t.Errorf("the status is\n%s", got)
	}
}

func TestTheStatusNamesWhatOfAnswersDoesNotCount(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1_900_000_000, 0)
	last := api.RefusedReply{AtNs: now.UnixNano(), Capability: "file.delete", Problem: "refused: reply.code"}
	WriteStatus(&out, cli.Pen{}, TenantStatus{Status: api.Status{
		UnreadFields: &api.RefusedReplies{Count: 2, Last: last}}}, now)
	if got := out.String(); !strings.Contains(got, "2 fields of workers' answers unread") ||
		!strings.Contains(got, "of file.delete: refused: reply.code") {
		t.Errorf("the status is\n%s", got)
	}
}

// TestTheStatusNamesSomeOfManyThatWait for the same worker, and says how many there are.
func TestTheStatusNamesSomeOfManyThatWait(t *testing.T) {
	var v TenantStatus
	for n := range 990 {
		v.Waiting = append(v.Waiting, api.Waiting{Capability: "room.free", Plan: fmt.Sprintf("p%03d", n)},
			api.Waiting{Capability: "room.book", Plan: fmt.Sprintf("p%03d", n), Working: true})
	}
	var out strings.Builder
	WriteStatus(&out, cli.Pen{}, v, time.Now())
	got := out.String()
	if strings.Count(got, "\n") > 50 || strings.Count(got, "and 980 more: sagenbaum status -o json") != 2 ||
		!strings.Contains(got, "room.free for plan p000") || !strings.Contains(got, "likewise     plan p001 ") {
		t.Errorf("the status is\n%.4000s", got)
	}
}
