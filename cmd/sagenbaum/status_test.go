package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
)

// S102: that no one has taken a page is seen where an operator looks, with the oldest.
func TestPagesThatNobodyHasTakenAreSeen(t *testing.T) {
	now := time.Now()
	oldest := &api.UntakenPage{Kind: api.PageQuarantined, Hook: "payments", Plan: "p", Action: "a",
		AtNs: now.Add(-3 * time.Hour).UnixNano()}
	for n, want := range map[int]string{1: "unpaged      1 page that no one has taken; the oldest, quarantined of " +
		"plan p action a, for hook payments, was asked for 3h00m ago\n", 3: "unpaged      3 pages that"} {
		shown := api.Status{Tenant: "default", Unpaged: n, OldestPage: oldest}
		var out strings.Builder
		status.WriteStatus(&out, cli.Pen{}, status.TenantStatus{Status: shown}, now)
		if !strings.Contains(out.String(), want) {
			t.Errorf("the status is\n%swant %q", out.String(), want)
		}
		if f := doctor.ExaminePages(shown, now); f.State != "warn" || !strings.Contains(f.Next, "quarantine ls") ||
			!strings.Contains(f.Text, cli.CountOf(n, "page")) || !strings.Contains(f.Text, "3h00m ago") {
			t.Errorf("%d pages: %+v", n, f)
		}
	}
	for kind, listed := range map[string]bool{api.PageCommitWaits: true, api.PageActClaimed: true,
		api.PageStuckWorker: false} {
		shown := api.Status{Unpaged: 1, OldestPage: &api.UntakenPage{Kind: kind, Plan: "p"}}
		f := doctor.ExaminePages(shown, now)
		if strings.Contains(f.Next, "quarantine ls") != listed || !strings.Contains(f.Text, kind) {
			t.Errorf("%s: %+v", kind, f)
		}
	}
	var out strings.Builder
	status.WriteStatus(&out, cli.Pen{}, status.TenantStatus{Status: api.Status{Tenant: "default"}}, now)
	if f := doctor.ExaminePages(api.Status{}, now); f.State != "ok" ||
		strings.Contains(out.String(), "unpaged") {
		t.Errorf("no pages: %+v\n%s", f, out.String())
	}
}

// A command that cannot be sent says why, and asks for no worker.
func TestWhyACommandIsNotSentIsShown(t *testing.T) {
	now := time.Now()
	waits := api.Waiting{Capability: "file.delete", Plan: "p", Action: "a", SinceNs: now.Add(-time.Minute).UnixNano(),
		Tries: 2, Problem: "there is no key of this tenant"}
	var out strings.Builder
	status.WriteStatus(&out, cli.Pen{}, status.TenantStatus{Status: api.Status{Waiting: []api.Waiting{waits}}}, now)
	if !strings.Contains(out.String(), "not sent in 2 tries: there is no key of this tenant\nnext         mend ") ||
		strings.Contains(out.String(), "worker") {
		t.Errorf("the status is\n%s", out.String())
	}
}

// A host that folds a long ledger says how far it is, and how long it will take.
func TestAFoldThatIsUnderWayIsShown(t *testing.T) {
	v := api.Status{Tenant: "default", Mode: api.ModeStandby, Folding: &api.Folding{
		What: "folding the ledger", From: 0, At: 250, To: 1000, Records: 5000, RecordsPer: 1234.5,
		LeftNs: int64(90 * time.Second),
	}}
	const want = "folding the ledger: 250 of 1000 commits (25 %), 5000 records, 1234 a second, about 1m30s to go"
	var out strings.Builder
	status.WriteStatus(&out, cli.Pen{}, status.TenantStatus{Status: v}, time.Now())
	if !strings.Contains(out.String(), "folding      "+want+"\n") || !status.WantsLook(v) {
		t.Errorf("the status is\n%s", out.String())
	}
	for _, f := range []doctor.Finding{doctor.ExamineMode(v, time.Now()), doctor.ExamineFold(t.Context(), nil, v)} {
		if f.State != "warn" || !strings.Contains(f.Text, want) || f.Next == "" {
			t.Errorf("doctor says %+v", f)
		}
	}
	v.Folding.LeftNs, v.Folding.To = 0, 0
	if text := render.FoldingText(*v.Folding); strings.Contains(text, "%") || strings.Contains(text, "to go") {
		t.Errorf("without a rate: %s", text)
	}
}
