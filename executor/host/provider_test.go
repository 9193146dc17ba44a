package host

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// provider is the world behind a worker: effects stand in it, one key reverses one
// of them once, and its answers can get lost.
type provider struct {
	t *testing.T

	mu       sync.Mutex
	standing []string          // external refs
	keys     map[string]string // key -> ref that it reversed
	reversed []string          // refs, in order
	undos    []api.Command
	asked    []api.Command
	// undo and ask may take a command over; false goes on as usual.
	undo func(n int, c api.Command) (*api.Reply, bool)
	ask  func(n int, c api.Command) (*api.Reply, bool)
}

// provide serves undos and questions of a rig.
func (r *rig) provide(standing ...string) *provider {
	r.t.Helper()
	p := &provider{t: r.t, standing: slices.Clone(standing), keys: map[string]string{}}
	r.reconnect(p)
	return p
}

// reconnect serves a provider on the rig's connection of now.
func (r *rig) reconnect(p *provider) {
	r.t.Helper()
	for subject, answer := range map[string]func(api.Command) *api.Reply{"undo.t.>": p.answerUndo,
		"ask.t.>": p.answerQuestion} {
		if _, err := r.conn.QueueSubscribe(subject, "workers", func(m *nats.Msg) {
			var c api.Command
			if err := json.Unmarshal(m.Data, &c); err != nil {
				r.t.Errorf("command: %v", err)
				return
			}
			if reply := answer(c); reply != nil {
				body, _ := json.Marshal(c.Answer(*reply))
				_ = m.Respond(body)
			}
		}); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (p *provider) answerUndo(c api.Command) *api.Reply {
	p.mu.Lock()
	n := len(p.undos)
	p.undos = append(p.undos, c)
	take := p.undo
	p.mu.Unlock()
	if take != nil {
		if reply, ok := take(n, c); ok {
			return reply
		}
	}
	return p.reverse(c)
}

// reverse carries an undo out: of the effect it names, or of any that stands.
func (p *provider) reverse(c api.Command) *api.Reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	var arguments struct{ Ref string }
	if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
		p.t.Errorf("arguments %s: %v", c.Arguments, err)
	}
	if _, again := p.keys[c.Key]; !again {
		at := slices.Index(p.standing, arguments.Ref)
		if at < 0 && arguments.Ref == "" && len(p.standing) > 0 {
			at = len(p.standing) - 1
		}
		if at >= 0 {
			p.keys[c.Key] = p.standing[at]
			p.reversed = append(p.reversed, p.standing[at])
			p.standing = slices.Delete(p.standing, at, at+1)
		}
	}
	return &api.Reply{Status: api.StatusDone, ExternalRef: arguments.Ref, Worker: "w1", WorkNs: 6, SetupNs: 1, ToolNs: 2,
		LLMNs: 3}
}

// answerQuestion says what stands.
func (p *provider) answerQuestion(c api.Command) *api.Reply {
	p.mu.Lock()
	n := len(p.asked)
	p.asked = append(p.asked, c)
	take := p.ask
	p.mu.Unlock()
	if take != nil {
		if reply, ok := take(n, c); ok {
			return reply
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var found struct {
		Presence    string `json:"presence"`
		ExternalRef string `json:"external_ref,omitempty"`
	}
	switch len(p.standing) {
	case 0:
		found.Presence = "absent"
	case 1:
		found.Presence, found.ExternalRef = "present", p.standing[0]
	default:
		found.Presence, found.ExternalRef = "duplicate", p.standing[len(p.standing)-1]
	}
	output, _ := json.Marshal(found)
	return &api.Reply{Status: api.StatusDone, Output: output, Worker: "w1"}
}

// want holds the provider against what must have happened: nothing stands any
// more than said, every effect was reversed once, under as many keys.
func (p *provider) want(standing, reversed []string, undos int) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := map[string]bool{}
	for _, c := range p.undos {
		keys[c.Key] = true
	}
	if !slices.Equal(p.standing, standing) || !slices.Equal(p.reversed, reversed) || len(p.undos) != undos ||
		len(reversed) > len(keys) {
		p.t.Errorf("standing %v, reversed %v by %d undos under %d keys; want %v, %v by %d", p.standing, p.reversed,
			len(p.undos), len(keys), standing, reversed, undos)
	}
}

// charge is a contract of a provider's charge: with a probe, and fast.
func charge() *pb.CompensationRegistered {
	return &pb.CompensationRegistered{
		Capability: "charge.refund", Bindings: []*pb.Binding{{Name: "ref", Expression: "meta.?external_ref"}},
		Attempts: 3, BackoffNs: int64(time.Millisecond), TimeoutNs: int64(200 * time.Millisecond),
		Probe: &pb.Probe{Call: question("charge.get")},
	}
}

func question(capability string) *pb.Call {
	return &pb.Call{Capability: capability, Attempts: 2, BackoffNs: int64(time.Millisecond),
		TimeoutNs: int64(2 * time.Second)}
}

func agentOf(name, plan string) ledger.Source {
	return ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: name, Plan: plan}
}

func operator(name string) ledger.Source {
	return ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: name}
}

func opened(plan string, open *pb.PlanOpened) *pb.Record {
	return &pb.Record{Plan: plan, Kind: &pb.Record_PlanOpened{PlanOpened: open}}
}

// pair registers an action with its compensation.
func pair(plan, action string, c *pb.CompensationRegistered) []*pb.Record {
	return []*pb.Record{
		{Plan: plan, Action: action, Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{
			Capability: "charge.create", Class: pb.Class_CLASS_COMPENSABLE, Late: pb.Late_LATE_NEVER,
			GraceNs: int64(time.Millisecond),
		}}},
		{Plan: plan, Action: action, Kind: &pb.Record_CompensationRegistered{CompensationRegistered: c}},
	}
}

func completed(plan, action, ref string) *pb.Record {
	return &pb.Record{Plan: plan, Action: action,
		Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{ExternalRef: ref}}}
}

// charged opens a plan with one charge, in doubt when ref is empty, and fails it.
func (r *rig) charged(plan, ref string, c *pb.CompensationRegistered) {
	r.t.Helper()
	records := append([]*pb.Record{opened(plan, &pb.PlanOpened{Owner: "owner1"})}, pair(plan, "a", c)...)
	if ref != "" {
		records = append(records, completed(plan, "a", ref))
	}
	r.append(agentOf("agent", plan), records...)
	r.fail(plan)
}

// show asks for a plan.
func (r *rig) show(plan string) api.Plan {
	r.t.Helper()
	var answer api.PlanAnswer
	if err := r.ask("plan.show", api.PlanQuery{Plan: plan}, &answer); err != nil {
		r.t.Fatalf("%v", err)
	}
	return answer.Plan
}

// undos asks for the attempts of a plan's undos.
func (r *rig) undos(plan string) []api.Undo {
	r.t.Helper()
	var answer api.UndosAnswer
	if err := r.ask("undo.ls", api.UndoQuery{Plan: plan}, &answer); err != nil {
		r.t.Fatalf("%v", err)
	}
	return answer.Undos
}

// records reads the stream as it is now and returns what pick picks.
func (r *rig) records(pick func(*pb.Record) bool) []ledger.Entry {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	store, err := jetstream.Open(ctx, jetstream.Config{Conn: r.conn, Tenant: "t", DurableServer: r.srv.DurableID()})
	if err != nil {
		r.t.Fatal(err)
	}
	head, err := store.Head(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []ledger.Entry
	for m, err := range store.Read(ctx, 1) {
		if err != nil {
			r.t.Fatal(err)
		}
		entries, err := ledger.Decode("t", m)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Record != nil && pick(e.Record) {
				out = append(out, e)
			}
		}
		if m.Sequence == head.Last {
			break
		}
	}
	return out
}
