package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

func TestAHaltedTenantIsTold(t *testing.T) {
	for _, c := range []struct{ guard, next string }{
		{"G1", "records are missing: sagenbaum ledger repair --dry-run"},
		{"G2", "not the ledger that was folded before: "},
		{"G3", "put the right ones back; else sagenbaum ledger repair --dry-run"},
		{"G5", "move executor/state and executor/tiles/TENANT of its data away"},
		{"reader", "a newer sagenbaum"},
		{"core", "the ledger is whole"},
	} {
		halt := api.Halt{Guard: c.guard, Sequence: 7, Problem: "broken"}
		f := ExamineMode(api.Status{Tenant: "default", Mode: api.ModeHalted, Halted: &halt,
			Problem: halt.Problem}, time.Now())
		if f.State != "FAIL" || !strings.Contains(f.Next, c.next) || !strings.Contains(f.Next, "docs/") ||
			!strings.Contains(f.Text, "broken") {
			t.Errorf("%s: %+v", c.guard, f)
		}
	}
}

func TestTheDoctorNamesAListenerThatIsNoWorker(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_900_000_000, 0)
	waits := api.Waiting{Capability: "file.delete", Plan: "p1", Action: "a", SinceNs: now.UnixNano(),
		Tries: 2, Heard: true}
	f := ExamineWorkers(api.Status{Waiting: []api.Waiting{waits}}, now)
	if len(f) != 1 || f[0].State != "warn" || !strings.Contains(f[0].Text, "a listener and no worker in 2 tries") ||
		!strings.Contains(f[0].Next, "in the queue group workers") {
		t.Errorf("%+v", f)
	}
}

// TestTheDoctorSaysWhyACommandIsNotSent: no worker that is started would change that.
func TestTheDoctorSaysWhyACommandIsNotSent(t *testing.T) {
	t.Parallel()
	const problem = "what file.delete takes: there is no key of this tenant"
	for _, handler := range []string{"", "a function of agent a"} {
		waits := api.Waiting{Capability: "file.delete", Handler: handler, Plan: "p1", Action: "a", Tries: 2,
			Problem: problem}
		f := ExamineWorkers(api.Status{Waiting: []api.Waiting{waits}}, time.Now())
		if len(f) != 1 || f[0].State != "warn" || !strings.HasSuffix(f[0].Text, "not sent in 2 tries: "+problem) ||
			!strings.Contains(f[0].Next, "docs/guide/keys.md") || strings.Contains(f[0].Next, "worker") {
			t.Errorf("%+v", f)
		}
	}
}

func TestTheDoctorSaysWhatUndoesTheCallsOfAnMCPClient(t *testing.T) {
	t.Parallel()
	for capability, next := range map[string]string{"file.delete": "start a worker for file.delete",
		"mcp.files-1": "sagenbaum serve --mcp FILE"} {
		f := ExamineWorkers(api.Status{Waiting: []api.Waiting{{Capability: capability, Plan: "p1"}}}, time.Now())
		if len(f) != 1 || !strings.HasPrefix(f[0].Next, next) {
			t.Errorf("%+v", f)
		}
	}
}

func TestTheDoctorNamesAFieldThatCannotBeRead(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_900_000_000, 0)
	last := api.RefusedReply{AtNs: now.Add(-time.Minute).UnixNano(), Capability: "file.delete", Plan: "p1",
		Action: "a", Worker: "py", Problem: "refused: reply.output: not JSON; want JSON"}
	f := examineFields(api.Status{UnreadFields: &api.RefusedReplies{Count: 1, Last: last}}, now)
	const who = "worker py of file.delete, plan p1 action a: refused: reply.output"
	if f.State != "warn" || len(f.Details) != 1 || !strings.HasPrefix(f.Details[0], who) ||
		!strings.Contains(f.Text, "the rest of each answer counts") || !strings.Contains(f.Next, "docs/workers.md") {
		t.Errorf("%+v", f)
	}
	if f := examineFields(api.Status{}, now); f.State != "ok" {
		t.Errorf("nothing unread: %+v", f)
	}
}

func TestTheDoctorNamesAWorkerWhoseAnswersDoNotCount(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_900_000_000, 0)
	refused := func(age time.Duration) api.Status {
		last := api.RefusedReply{
			AtNs: now.Add(-age).UnixNano(), Capability: "file.delete", Plan: "p1", Action: "a",
			Worker: "old", Problem: "refused: reply.key",
		}
		return api.Status{RefusedReplies: &api.RefusedReplies{Count: 3, Last: last}}
	}
	if f := examineReplies(api.Status{}, now); f.State != "ok" {
		t.Errorf("nothing refused: %+v", f)
	}
	if f := examineReplies(refused(2*time.Hour), now); f.State != "ok" || !strings.Contains(f.Text, "3 answers") {
		t.Errorf("long ago: %+v", f)
	}
	f := examineReplies(refused(time.Minute), now)
	const who = "worker old of file.delete, plan p1 action a"
	if f.State != "warn" || len(f.Details) != 1 || !strings.HasPrefix(f.Details[0], who) {
		t.Errorf("just now: %+v", f)
	}
}

// TestManyCommandsThatWaitAreOneFinding for each capability and cause: with no worker there may be a
// thousand, and one that can be sent no more for a reason of its own.
func TestManyCommandsThatWaitAreOneFinding(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_900_000_000, 0)
	var v api.Status
	for n := range 990 {
		v.Waiting = append(v.Waiting, api.Waiting{Capability: "room.free", Plan: fmt.Sprintf("p%03d", n), Action: "a",
			SinceNs: now.Add(time.Duration(n-1000) * time.Second).UnixNano(), Tries: 3})
	}
	v.Waiting[500].SinceNs = now.Add(-time.Hour).UnixNano() // the oldest is named first
	for n := range 20 {
		v.Waiting = append(v.Waiting, api.Waiting{Capability: "room.free", Plan: fmt.Sprintf("q%03d", n), Action: "b",
			Tries: 1, Problem: fmt.Sprintf("no key %d", n)})
	}
	findings := ExamineWorkers(v, now)
	if len(findings) != 2 {
		t.Fatalf("%d findings", len(findings))
	}
	f := findings[0]
	if !strings.Contains(f.Text, "for plan p500 waits, no worker in 3 tries; 989 more wait likewise") ||
		f.passing || len(f.Details) != 10 || f.Details[0] != "plan p000 action a, for 16m40s, 3 tries" ||
		f.Details[9] != "and 980 more: sagenbaum status -o json" {
		t.Errorf("%+v", f)
	}
	if f := findings[1]; !strings.Contains(f.Text, "no key 0; 19 more wait likewise") ||
		!strings.HasSuffix(f.Details[0], ": no key 1") {
		t.Errorf("%+v", f)
	}
}
