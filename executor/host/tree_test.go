package host

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// acted registers an action and completes it, with the action's name as the ref.
func (r *rig) acted(agent, plan, action string) {
	r.t.Helper()
	c := charge()
	c.Probe, c.TimeoutNs = nil, int64(2*time.Second)
	r.append(agentOf(agent, plan), append(pair(plan, action, c), completed(plan, action, action))...)
}

func (r *rig) begun(agent, plan string, open *pb.PlanOpened) {
	r.t.Helper()
	r.append(agentOf(agent, plan), opened(plan, open))
}

// notices subscribes to what an agent is told about a plan, by the holder alone: it
// waits until there is one.
func (r *rig) notices(agent, plan string) func() api.Notice {
	r.t.Helper()
	r.eventually("the tenant is held", func() bool { return r.status().Mode == api.ModeHolding })
	sub, err := r.conn.SubscribeSync(api.NoticeSubject("t", agent, plan))
	if err != nil {
		r.t.Fatal(err)
	}
	return func() (n api.Notice) {
		r.t.Helper()
		m, err := sub.NextMsg(10 * time.Second)
		if err != nil || json.Unmarshal(m.Data, &n) != nil {
			r.t.Fatalf("no notice to %s about %s: %v", agent, plan, err)
		}
		return n
	}
}

// outcome asks what became of a plan once a record is folded.
func (r *rig) outcome(q api.OutcomeQuery) (answer api.OutcomeAnswer) {
	r.t.Helper()
	if err := r.ask("plan.outcome", q, &answer); err != nil {
		r.t.Fatalf("%+v: %v", q, err)
	}
	return answer
}

// preview asks what an unwind would do, once everything is folded.
func (r *rig) preview(plan, to string) api.Preview {
	r.t.Helper()
	r.caughtUp()
	var answer api.PreviewAnswer
	if err := r.ask("plan.preview", api.PreviewQuery{Plan: plan, To: to}, &answer); err != nil {
		r.t.Fatalf("%v", err)
	}
	return answer.Preview
}

// previewed names the steps of a preview.
func previewed(v api.Preview) []string {
	var steps []string
	for _, s := range v.Steps {
		steps = append(steps, s.Step+" "+s.Action)
	}
	return steps
}

func TestS61AChildPlanOfAnotherAgentIsUndoneInItsParentsPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("a1", "c1", "c2", "a2")
	r.host("h1")
	token := []byte("between lead and helper")
	digest := sha256.Sum256(token)
	r.begun("lead", "root", &pb.PlanOpened{AttachDigest: digest[:]})
	r.acted("lead", "root", "a1")
	r.begun("helper", "part", &pb.PlanOpened{ParentPlan: "root", ParentAction: "a1", ParentToken: token})
	r.acted("helper", "part", "c1")
	r.acted("helper", "part", "c2")
	sequence := r.append(agentOf("helper", "part"),
		&pb.Record{Plan: "part", Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}})
	asked := api.OutcomeQuery{Plan: "part", Sequence: sequence, Action: "c2"}
	if got := r.outcome(asked); got.State != ledger.StateCommitted || got.Undo != "held" {
		t.Fatalf("%+v", got)
	}
	r.acted("lead", "root", "a2")
	if v := r.preview("root", ""); fmt.Sprint(previewed(v)) != "[compensate a2 compensate c2 compensate c1 compensate a1]" || v.End != ledger.StateCompensated {
		t.Errorf("%+v", v)
	}
	r.asksOfItsOwn()
	told := r.notices("helper", "part")
	r.append(agentOf("lead", "root"),
		&pb.Record{Plan: "root", Kind: &pb.Record_PlanFailed{PlanFailed: &pb.PlanFailed{Reason: "test"}}})
	if got := r.ended("root"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v", got)
	}
	p.want(nil, []string{"a2", "c2", "c1", "a1"}, 4)
	if got := r.ended("part"); got.State != ledger.StateCompensated {
		t.Errorf("%+v", got)
	}
	if a, b := told(), told(); a.State != ledger.StateUnwinding || b.State != ledger.StateCompensated {
		t.Errorf("the child's agent is told %+v, then %+v", a, b)
	}
}

// asksOfItsOwn has agent lead ask for the preview of its plan root, of which plan part of agent
// helper is a part, and has both ask for what is not theirs.
func (r *rig) asksOfItsOwn() {
	r.t.Helper()
	var answer api.PreviewAnswer
	if err := r.ask("preview.lead", api.PreviewQuery{Plan: "root", Action: "a1"}, &answer); err != nil {
		r.t.Fatal(err)
	}
	for _, step := range answer.Preview.Steps {
		if own := step.Plan == "root"; own != (len(step.Arguments) > 0) {
			r.t.Errorf("of plan %s the arguments are %s", step.Plan, step.Arguments)
		}
	}
	u := answer.Preview.Undoable
	if u == nil || !u.Can || fmt.Sprint(u.With) != "[a2 part/c2 part/c1]" || u.Class != "compensable" {
		r.t.Errorf("%+v %+v", answer, u)
	}
	for _, test := range []struct {
		agent    string
		question any
		want     string
	}{
		{"helper", api.PreviewQuery{Plan: "root"}, "agent helper has no plan root"},
		{"lead", api.PreviewQuery{Plan: "part"}, "agent lead has no plan part"},
		{"lead", api.PreviewQuery{Plan: "nothing"}, "agent lead has no plan nothing"},
		{"lead", api.PreviewQuery{Plan: "root", To: "s", Action: "a1"}, "given beside a savepoint"},
		{"lead", map[string]string{"plan": "root", "reveal": "yes"}, "reveal"},
	} {
		var answer api.PreviewAnswer
		err := r.ask("preview."+test.agent, test.question, &answer)
		if !strings.Contains(says(err), test.want) || answer.Preview.Plan != "" {
			r.t.Errorf("%+v: %+v, %v", test, answer, err)
		}
	}
}

func TestASavepointIsReachedAndThePlanGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("a1", "a2", "a3", "a4")
	gate := make(chan struct{})
	p.undo = func(int, api.Command) (*api.Reply, bool) { <-gate; return nil, false }
	r.host("h1")
	told := r.notices("agent", "p")
	r.begun("agent", "p", &pb.PlanOpened{})
	r.acted("agent", "p", "a1")
	r.append(agentOf("agent", "p"),
		&pb.Record{Plan: "p", Kind: &pb.Record_SavepointSet{SavepointSet: &pb.SavepointSet{Name: "draft", Number: 1}}})
	r.acted("agent", "p", "a2")
	r.acted("agent", "p", "a3")
	if v := r.preview("p", "draft"); fmt.Sprint(previewed(v)) != "[compensate a3 compensate a2]" ||
		v.End != ledger.StateOpen {
		t.Errorf("%+v", v)
	}
	sequence := r.append(agentOf("agent", "p"),
		&pb.Record{Plan: "p",
			Kind: &pb.Record_UnwindRequested{UnwindRequested: &pb.UnwindRequested{ToSavepoint: "draft", Reason: "another idea",
				Number: 1}}})
	r.outcome(api.OutcomeQuery{Plan: "p", Sequence: sequence})
	if n := told(); n.State != ledger.StateUnwinding {
		t.Errorf("%+v", n)
	}
	// Whoever waits for the plan's end goes on waiting when it is open again.
	waited := make(chan api.OutcomeAnswer, 1)
	go func() {
		var answer api.OutcomeAnswer
		body, _ := json.Marshal(api.OutcomeQuery{Plan: "p", Ended: true, WaitMs: 20_000})
		if m, err := r.conn.Request(api.QuerySubject("t", "plan.outcome"), body, testenv.Patience); err == nil {
			_ = json.Unmarshal(m.Data, &answer)
		}
		waited <- answer
	}()
	close(gate)
	if n := told(); n.State != ledger.StateOpen || n.Savepoint != "draft" {
		t.Errorf("%+v", n)
	}
	p.want([]string{"a1", "a4"}, []string{"a3", "a2"}, 2)
	r.acted("agent", "p", "a4")
	select {
	case got := <-waited:
		t.Fatalf("a wait for the end ended with %+v", got)
	default:
	}
	if got := r.outcome(api.OutcomeQuery{Plan: "p", Ended: true, WaitMs: 50}); got.State != ledger.StateOpen {
		t.Errorf("%+v", got)
	}
	r.append(agentOf("agent", "p"),
		&pb.Record{Plan: "p", Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}})
	if got := <-waited; got.State != ledger.StateCommitted {
		t.Errorf("%+v", got)
	}
	p.want([]string{"a1", "a4"}, []string{"a3", "a2"}, 2)
}

func TestACommittedPlanIsUndoneByItsOwnerUnderANameOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("a1", "a2")
	r.host("h1")
	r.begun("agent", "p", &pb.PlanOpened{Owner: "owner1"})
	r.acted("agent", "p", "a1")
	r.acted("agent", "p", "a2")
	sequence := r.append(agentOf("agent", "p"),
		&pb.Record{Plan: "p", Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}})
	r.outcome(api.OutcomeQuery{Plan: "p", Sequence: sequence})
	told := r.notices("agent", "p~1")
	r.append(operator("owner1"),
		&pb.Record{Plan: "p",
			Kind: &pb.Record_CompensationRequested{CompensationRequested: &pb.CompensationRequested{Reason: "wrong customer",
				Actor: "owner1"}}})
	r.eventually("it is undone under its new name", func() bool {
		var answer api.OutcomeAnswer
		return r.ask("plan.outcome", api.OutcomeQuery{Plan: "p~1", Ended: true, WaitMs: 500}, &answer) == nil &&
			answer.State == ledger.StateCompensated
	})
	p.want(nil, []string{"a2", "a1"}, 2)
	if got := r.outcome(api.OutcomeQuery{Plan: "p"}); got.State != ledger.StateCommitted {
		t.Errorf("%+v", got)
	}
	if v := r.show("p~1"); v.Origin != "p" || r.show("p").UndoneAs != "p~1" {
		t.Errorf("%+v", v)
	}
	if undos := r.undos("p~1"); len(undos) != 2 || undos[0].Plan != "p~1" {
		t.Errorf("%+v", undos)
	}
	if n := told(); n.Plan != "p~1" {
		t.Errorf("%+v", n)
	}
	if v := r.preview("p~1", ""); v.State != ledger.StateCompensated || len(v.Steps) != 0 {
		t.Errorf("%+v", v)
	}
}

func TestAPreviewChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("a1")
	r.host("h1")
	r.begun("agent", "p", &pb.PlanOpened{Owner: "owner1"})
	r.acted("agent", "p", "a1")
	r.append(agentOf("agent", "p"), pair("p", "a2", charge())...)
	r.caughtUp()
	before := r.status()
	v := r.preview("p", "")
	if fmt.Sprint(previewed(v)) != "[probe a2 compensate a2 compensate a1]" ||
		string(v.Steps[2].Arguments) != `{"ref":"a1"}` || v.Owner != "owner1" {
		t.Errorf("%+v", v)
	}
	if after := r.status(); after.Last != before.Last || after.Records != before.Records || after.InFlight != 0 {
		t.Errorf("%+v, then %+v", before, after)
	}
	p.want([]string{"a1"}, nil, 0)
	var answer api.PreviewAnswer
	if err := r.ask("plan.preview", api.PreviewQuery{Plan: "nothing"}, &answer); !strings.Contains(says(err),
		"there is no plan nothing") {
		t.Errorf("%v %+v", err, answer)
	}
	if v := r.preview("p", "nowhere"); v.Refused == "" || len(v.Steps) != 0 {
		t.Errorf("%+v", v)
	}
}

func TestS77AVerdictIsToldAndAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provide()
	r.host("h1")
	told := r.notices("agent", "p")
	records := append([]*pb.Record{opened("p", &pb.PlanOpened{})}, pair("p", "a", charge())...)
	records[1].GetForwardRegistered().Review = true
	sequence := r.append(agentOf("agent", "p"), records...)
	if got := r.outcome(api.OutcomeQuery{Plan: "p", Action: "a", Sequence: sequence}); got.Verdict != "" ||
		got.State != ledger.StateOpen {
		t.Errorf("%+v", got)
	}
	// An end that is waited for is not a verdict.
	waited := make(chan *nats.Msg, 1)
	go func() {
		body, _ := json.Marshal(api.OutcomeQuery{Plan: "p", Ended: true, WaitMs: 20_000})
		m, _ := r.conn.Request(api.QuerySubject("t", "plan.outcome"), body, testenv.Patience)
		waited <- m
	}()
	sequence = r.append(ledger.Source{Tenant: "t", Class: ledger.ClassVerdict, Name: "auditor"},
		&pb.Record{Plan: "p", Action: "a",
			Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW,
				Reason: "small"}}})
	got := r.outcome(api.OutcomeQuery{Plan: "p", Action: "a", Sequence: sequence})
	if got.Verdict != "allow" || got.VerdictReason != "small" || got.VerdictBy != "auditor" {
		t.Errorf("%+v", got)
	}
	if n := told(); n.Plan != "p" || n.Action != "a" || n.Verdict != "allow" || n.By != "auditor" {
		t.Errorf("%+v", n)
	}
	r.append(agentOf("agent", "p"),
		&pb.Record{Plan: "p", Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}})
	var answer api.OutcomeAnswer
	if m := <-waited; m == nil || json.Unmarshal(m.Data, &answer) != nil || answer.State == ledger.StateOpen {
		t.Errorf("%+v", answer)
	}
}

func TestContractsAreListedByRevision(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.host("h1")
	publish := func(contract string) {
		digest := ledger.ContractDigest([]byte(contract))
		r.append(operator("owner1"), &pb.Record{Kind: &pb.Record_ContractPublished{ContractPublished: &pb.ContractPublished{
			Capability: "charge.create", Digest: digest[:], Contract: []byte(contract)}}})
	}
	publish(`{"capability":"charge.create","class":"compensable"}`)
	publish(`{"capability":"charge.create","class":"irreversible"}`)
	r.caughtUp()
	for _, c := range []struct {
		query api.ContractQuery
		want  int
	}{{api.ContractQuery{}, 1}, {api.ContractQuery{Revisions: true}, 2},
		{api.ContractQuery{Capability: "mail.send"}, 0}} {
		var answer api.ContractsAnswer
		if err := r.ask("contract.ls", c.query, &answer); err != nil || answer.Contracts == nil ||
			len(answer.Contracts) != c.want {
			t.Errorf("%+v: %v %+v", c.query, err, answer)
		}
		for _, v := range answer.Contracts {
			if v.Capability != "charge.create" || v.By != "owner1" || v.Current != (v.Revision == 2) {
				t.Errorf("%+v", v)
			}
		}
	}
}
