package sim

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func operator(name string) ledger.Source {
	return ledger.Source{Tenant: tenant, Class: ledger.ClassOperator, Name: name}
}

// tell writes one record of someone who is not an agent.
func (w *world) tell(source ledger.Source, records ...*pb.Record) {
	for _, r := range records {
		w.name(r, source.Class)
	}
	w.persist(source.Writer(), source, records, w.people, nil,
		func(uint64, bool) {})
}

// name gives a record an id, as the tools that ship do; a source or supervisor with a client of
// its own may not. It draws no number of its own: what else happens in a world stays as it was.
func (w *world) name(r *pb.Record, class ledger.Class) {
	if w.named++; w.named%4 == 0 && class != ledger.ClassOperator {
		return
	}
	var id ulid.ULID
	_ = id.SetTime(uint64(w.now / millisecond))
	binary.BigEndian.PutUint64(id[8:], uint64(w.named))
	r.Id = id.String()
}

// peopleBegin lets sources, supervisors, operators and foreign writers begin.
func (w *world) peopleBegin() {
	r := w.people
	for range r.below(8) {
		w.after(r.between(0, healNs), w.assert)
	}
	if r.percent(12) { // a world in which conditions turn and turn back
		for range 30 + r.below(30) {
			w.after(r.between(0, loadNs+30*second), w.assert)
		}
	}
	for range r.below(4) {
		w.after(r.between(second, healNs), w.judge)
	}
	for range r.below(6) {
		w.after(r.between(second, healNs), w.operate)
	}
	if w.faults.Has(FaultForeign) {
		for range 1 + r.below(5) {
			w.after(r.between(second, healNs), w.meddle)
		}
	}
}

// assert is a source that has observed something.
func (w *world) assert() {
	r := w.people
	var records []*pb.Record
	for range 1 + r.below(2)*r.below(3) {
		key := fmt.Sprintf("k%d", r.below(5))
		if r.percent(40) {
			records = append(records,
				&pb.Record{Kind: &pb.Record_FactRetracted{FactRetracted: &pb.FactRetracted{Key: key}}})
			continue
		}
		pad, n := r.below(8)*r.below(40), r.below(10)
		if key == "k3" { // it says one of two things, and says it again
			n = n % 2 * 9
		}
		records = append(records, &pb.Record{Kind: &pb.Record_FactAsserted{FactAsserted: &pb.FactAsserted{
			Key: key, Value: r.spelled(n, fmt.Sprintf("%0*d", pad, 0))}}})
	}
	w.tell(ledger.Source{Tenant: tenant, Class: ledger.ClassFact, Name: "sensor"}, records...)
}

// spelled is a fact in JSON. Who writes it may spell a number in several ways, and put the members
// in any order; some numbers are too large for floats.
func (r *random) spelled(n int, pad string) []byte {
	number := fmt.Sprint(n)
	switch r.below(5) {
	case 1:
		number += ".0"
	case 2:
		number += "e0"
	case 3:
		number = fmt.Sprint(uint64(18446744073709551600) + uint64(n))
	}
	if r.percent(50) {
		return fmt.Appendf(nil, `{"pad":%q,"n":%s}`, pad, number)
	}
	return fmt.Appendf(nil, `{"n":%s,"pad":%q}`, number, pad)
}

// someAgent is one whose plan has begun, or nil.
func (w *world) someAgent() *agent {
	if len(w.agents) == 0 {
		return nil
	}
	if a := w.agents[w.people.below(len(w.agents))]; a.began {
		return a
	}
	return nil
}

// judge is a supervisor with a verdict on some action.
func (w *world) judge() {
	a := w.someAgent()
	if a == nil || len(a.p.actions) == 0 {
		return
	}
	w.verdict(a.p.id, a.p.actions[w.people.below(len(a.p.actions))].id)
}

// verdict is what a supervisor says of an action.
func (w *world) verdict(plan, action string) {
	r := w.people
	outcome := pick(r, pb.VerdictOutcome_VERDICT_OUTCOME_ALLOW,
		pb.VerdictOutcome_VERDICT_OUTCOME_BLOCK, pb.VerdictOutcome_VERDICT_OUTCOME_REDIRECT)
	judgedStaged(w, plan, action)
	w.tell(ledger.Source{Tenant: tenant, Class: ledger.ClassVerdict, Name: "compliance"},
		&pb.Record{Plan: plan, Action: action,
			Kind: &pb.Record_VerdictGiven{VerdictGiven: &pb.VerdictGiven{Outcome: outcome,
				Reason: "policy", Scope: scope(r)}}})
}

// operate is an operator who asks for something.
func (w *world) operate() {
	a, r := w.someAgent(), w.people
	key := fmt.Sprintf("k%d", r.below(5))
	n := r.below(100)
	if a == nil && n < 70 {
		return
	}
	record := &pb.Record{}
	switch {
	case n < 15:
		record.Plan = a.p.id
		record.Kind = &pb.Record_CancelRequested{CancelRequested: &pb.CancelRequested{Reason: "stop",
			Actor: "ann"}}
	case n < 55:
		k := &pb.CompensationRequested{Reason: "wrong", Actor: "ann"}
		back := 25
		if slices.ContainsFunc(a.p.steps, func(s step) bool { return s.kind == stepSave }) {
			back = 75
		}
		switch {
		case r.percent(back):
			k.ToSavepoint = "s1"
		case r.percent(40) && len(a.p.actions) > 0:
			k.FromAction = a.p.actions[r.below(len(a.p.actions))].id
		}
		record.Plan, record.Kind = a.p.id, &pb.Record_CompensationRequested{CompensationRequested: k}
	case n < 65:
		record.Plan = a.p.id
		record.Kind = &pb.Record_CascadeAnswered{CascadeAnswered: &pb.CascadeAnswered{Resume: r.percent(60), Reason: "seen", Actor: "ann"}}
	case n < 70:
		if len(a.p.actions) == 0 {
			return
		}
		record.Plan, record.Action = a.p.id, a.p.actions[0].id
		record.Kind = &pb.Record_RetryRequested{RetryRequested: &pb.RetryRequested{Actor: "ann"}}
	case n < 80:
		record.Kind = &pb.Record_EvictRequested{EvictRequested: &pb.EvictRequested{Keys: []string{key},
			Actor: "ann"}}
		w.after(r.between(second, 20*second), func() { w.tell(operator("bob"), restore(key)) })
	case n < 90:
		record = restore(key)
	default:
		contract := []byte(`{"capability":"do.a"}`)
		digest := ledger.ContractDigest(contract)
		record.Kind = &pb.Record_ContractPublished{ContractPublished: &pb.ContractPublished{Capability: "do.a", Digest: digest[:], Contract: contract}}
	}
	w.tell(operator(pick(r, "ann", "bob")), record)
}

func restore(key string) *pb.Record {
	return &pb.Record{Kind: &pb.Record_RestoreRequested{
		RestoreRequested: &pb.RestoreRequested{Keys: []string{key}, Actor: "ann"}}}
}

// meddle is a foreign writer: bytes that are no record, half a pair, what can never be
// carried out, a kind on a subject that may not carry it, an old message once more.
func (w *world) meddle() {
	r := w.people
	if w.healed || w.stream.mute {
		return
	}
	w.strikes(FaultForeign)
	w.sayFault(FaultForeign, "foreign", "writes")
	agentSubject := ledger.Source{Tenant: tenant, Class: ledger.ClassAgent,
		Name: fmt.Sprintf("a%d", r.below(3)), Plan: "p0"}.Subject()
	switch n := r.below(100); {
	case n < 20:
		w.stream.put(agentSubject, "", []byte{byte(r.below(256)), byte(r.below(256)), 1})
	case n < 30:
		w.stream.put(agentSubject, ledger.ContentTypeJSON, []byte(`{"records":[{}]}`))
	case n < 42:
		w.putUnusable(fmt.Sprintf("p%d", r.below(8)), r.below(unusableKinds))
	case n < 55:
		p := fmt.Sprintf("p%d", r.below(8))
		half := encoded(&pb.Record{Plan: p, Action: "lone", Kind: &pb.Record_ForwardRegistered{
			ForwardRegistered: &pb.ForwardRegistered{Capability: "do.lone",
				Class: pb.Class_CLASS_COMPENSABLE}}})
		w.stream.put(ledger.Source{Tenant: tenant, Class: ledger.ClassAgent, Name: "a0",
			Plan: p}.Subject(), "", half)
	case n < 65:
		w.stream.put(operator("ann").Subject(), "",
			encoded(&pb.Record{Plan: "p0",
				Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}}))
	case len(w.stream.stored) > 0:
		old := w.stream.stored[r.below(len(w.stream.stored))]
		w.stream.put(old.message.Subject, old.message.ContentType, old.message.Data)
		w.stream.stored[len(w.stream.stored)-1].copyOf = old.message.Sequence
	}
}

// unusableKinds is how many there are of what putUnusable stores.
const unusableKinds = 7

// putUnusable is a client that has made a mistake in a plan: none of what it says may
// count, nor be forgotten if a forward is among it.
func (w *world) putUnusable(plan string, kind int) {
	forward := &pb.Record{Plan: plan, Action: "wrong", Kind: &pb.Record_ForwardRegistered{
		ForwardRegistered: &pb.ForwardRegistered{Capability: "do.wrong",
			Class: pb.Class_CLASS_COMPENSABLE}}}
	c := &pb.CompensationRegistered{Capability: "undo.wrong",
		Bindings: []*pb.Binding{{Name: "id", Expression: "output.id"}}}
	records := []*pb.Record{forward,
		{Plan: plan, Action: "wrong", Kind: &pb.Record_CompensationRegistered{CompensationRegistered: c}}}
	subject := ledger.Source{Tenant: tenant, Class: ledger.ClassAgent, Name: "a0",
		Plan: ledger.ManyPlans}.Subject()
	switch kind {
	case 0:
		c.Bindings[0].Expression = "outptu.id"
	case 1:
		forward.GetForwardRegistered().Late = pb.Late_LATE_REFUSED
	case 5:
		forward.GetForwardRegistered().Class = pb.Class_CLASS_EFFECTLESS
	case 2:
		records[0], records[1] = records[1], records[0]
	case 3:
		records = []*pb.Record{{Plan: "w" + plan, Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{
			Triggers: []*pb.Trigger{{Name: "x", Condition: "plan.status = \"failed\""}}}}}}
	case 4:
		records = []*pb.Record{{Plan: "w" + plan,
			Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{DeadlineNs: epoch0 / second}}}}
	default:
		w.stream.put(subject, ledger.ContentTypeJSON, fmt.Appendf(nil, `{"records":[
			{"plan":%q,"action":"wrong","forwardRegistered":{"capability":"do.wrong","class":"CLASS_COMPENSABLE","undo":"undo.wrong"}},
			{"plan":%q,"action":"wrong","compensationRegistered":{"capability":"undo.wrong"}}]}`, plan,
			plan))
		w.stream.stored[w.stream.last()-1].unusable = true
		return
	}
	data, err := ledger.EncodeCommit(records)
	if err != nil {
		panic("sim: " + err.Error())
	}
	if w.stream.last() == 0 && kind == 4 { // no other record says what time it is
		return
	}
	w.stream.put(subject, "", data)
	w.stream.stored[w.stream.last()-1].unusable = true
	if kind == 3 || kind == 4 {
		w.goOnUnopened("w"+plan, subject, forward, c)
	}
}

// goOnUnopened is a client that does not look at what became of its opening: it calls a
// forward, and commits.
func (w *world) goOnUnopened(plan, subject string, forward *pb.Record,
	c *pb.CompensationRegistered) {
	forward.Plan = plan
	records := []*pb.Record{
		forward, {Plan: plan, Action: "wrong",
			Kind: &pb.Record_CompensationRegistered{CompensationRegistered: c}},
		{Plan: plan, Action: "wrong", Payload: &pb.Payload{Output: []byte(`{"id":"x"}`)},
			Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}},
		{Plan: plan, Kind: &pb.Record_PlanCommitted{PlanCommitted: &pb.PlanCommitted{}}},
	}
	for _, r := range [][]*pb.Record{records[:2], records[2:3], records[3:]} {
		data, err := ledger.EncodeCommit(r)
		if err != nil {
			panic("sim: " + err.Error())
		}
		w.stream.put(subject, "", data)
	}
}

func encoded(r *pb.Record) []byte {
	data, err := ledger.EncodeCommit([]*pb.Record{r})
	if err != nil {
		panic("sim: " + err.Error())
	}
	return data
}

// paged is an owner who has got a page, and may answer it.
func (w *world) paged(p executor.Page) {
	w.mark(uint64(w.now), uint64(p.Number))
	w.say("owner", "is paged: %s %s %s: %s", p.Kind, p.Plan, p.Action, p.Reason)
	r := w.people
	if w.options.Alone || w.healed || !r.percent(60) {
		return
	}
	w.after(r.between(second, 20*second), func() {
		switch p.Kind {
		case api.PageQuarantined, api.PageCommitWaits:
			if p.Action != "" {
				w.answer(p.Plan, p.Action, "ann")
				if r.percent(50) {
					w.answer(p.Plan, p.Action, "bob")
				}
			}
		case api.PageVerdictWanted:
			w.verdict(p.Plan, p.Action)
		case api.PageCascadeCut:
			w.tell(operator("ann"), &pb.Record{Plan: p.Plan, Kind: &pb.Record_CascadeAnswered{
				CascadeAnswered: &pb.CascadeAnswered{Resume: r.percent(60), Reason: "seen", Actor: "ann"}}})
		}
	})
}

// answer is the word of an owner on a quarantined action.
func (w *world) answer(plan, action, name string) {
	r := w.people
	record := &pb.Record{Plan: plan, Action: action}
	if r.percent(50) {
		k := &pb.RetryRequested{Reason: "again", Actor: name, Force: r.percent(30)}
		if s := w.workers.spec(plan, action); s != nil && w.keys.percent(25) {
			k.NewKey, w.rekeyed[s.key] = true, true
			k.Force = k.Force || w.keys.percent(70)
		}
		if s := w.workers.spec(plan, action); s.compared() && w.others.percent(40) {
			k.Overwrite, w.overwritten[s.key] = true, true
		}
		sendsAgain(w, plan, action)
		record.Kind = &pb.Record_RetryRequested{RetryRequested: k}
	} else {
		outcome := pick(r, pb.Resolution_RESOLUTION_DONE, pb.Resolution_RESOLUTION_LOST,
			pb.Resolution_RESOLUTION_ACCEPTED, pb.Resolution_RESOLUTION_SKIPPED)
		record.Kind = &pb.Record_Resolved{Resolved: &pb.Resolved{Outcome: outcome, Reason: "by hand",
			Evidence: "ticket", Actor: name, Halt: r.percent(15)}}
		if outcome == pb.Resolution_RESOLUTION_DONE {
			w.removes(plan, action)
		}
	}
	w.tell(operator(name), record)
}
