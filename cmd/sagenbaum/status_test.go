package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
)

// S102: that nobody could be paged is seen where an operator looks.
func TestPagesThatNoHookHasTakenAreSeen(t *testing.T) {
	for n, want := range map[int]string{1: "unpaged      1 page that no hook has taken yet\n", 3: "unpaged      3 pages that no hook has taken yet\n"} {
		var out strings.Builder
		writeStatus(&out, pen{}, tenantStatus{StatusView: executor.StatusView{Tenant: "default", Unpaged: n}}, time.Now())
		if !strings.Contains(out.String(), want) {
			t.Errorf("the status is\n%swant %q", out.String(), want)
		}
		if f := examinePages(executor.StatusView{Unpaged: n}); f.State != "warn" || f.Next == "" || !strings.Contains(f.Text, countOf(n, "page")) {
			t.Errorf("%d pages: %+v", n, f)
		}
	}
	var out strings.Builder
	writeStatus(&out, pen{}, tenantStatus{StatusView: executor.StatusView{Tenant: "default"}}, time.Now())
	if f := examinePages(executor.StatusView{}); f.State != "ok" || strings.Contains(out.String(), "unpaged") {
		t.Errorf("no pages: %+v\n%s", f, out.String())
	}
}

// The number of an attempt's action, which commands take, stands beside its id.
func TestUndosShowTheNumberOfTheirAction(t *testing.T) {
	var out strings.Builder
	writeUndos(&out, pen{}, []executor.UndoView{{Plan: "p", Number: 3, Action: "book~1", Compensation: "room.free", Attempt: 2, State: "done"}}, false)
	if head, row, _ := strings.Cut(out.String(), "\n"); !strings.HasPrefix(head, "#  ACTION ") || !strings.HasPrefix(row, "3  book~1 ") {
		t.Errorf("the list is\n%s", out.String())
	}
}

// A plan of which only a child plan waits is stuck on something, too.
func TestAStuckParentNamesWhatItWaitsFor(t *testing.T) {
	var out strings.Builder
	v := tenantStatus{StatusView: executor.StatusView{Quarantined: 1}, Stuck: []executor.PlanView{{Plan: "p", Owner: "ana"}}}
	writeStatus(&out, pen{}, v, time.Now())
	if !strings.Contains(out.String(), "stuck        p, owner ana: a plan that is part of it\n") {
		t.Errorf("the status is\n%s", out.String())
	}
}

// An owner's word lets an undo begin that has not been tried yet; then "again" is wrong.
func TestARetryIsSaidToBeAgainOnlyAfterATry(t *testing.T) {
	for want, a := range map[string]executor.ActionView{
		"asks room.free, 1 attempt, same key":        {Compensation: "room.free", Attempts: 1},
		"asks room.free again, 5 attempts, same key": {Compensation: "room.free", Attempt: 2, Attempts: 5},
	} {
		if got := retryText(a); got != want {
			t.Errorf("a retry %q, want %q", got, want)
		}
	}
}
