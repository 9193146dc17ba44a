package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/vault"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
	"github.com/sagenbaum/sagenbaum/ledger/testenv"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// crashing is a store of keys whose next destruction fails, before it or behind it.
type crashing struct {
	vault.KeyStore
	mu     sync.Mutex
	before bool // nothing was destroyed
	behind bool // all was, and nobody hears of it
	tried  chan struct{}
}

func (c *crashing) Destroy(ctx context.Context, plan string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		select {
		case c.tried <- struct{}{}:
		default:
		}
	}()
	if c.before {
		return errors.New("the process dies before it")
	}
	err := c.KeyStore.Destroy(ctx, plan)
	if c.behind {
		return errors.New("the process dies behind it")
	}
	return err
}

// keyRig is a rig with a master key, whose hosts have this store of keys.
func keyRig(t *testing.T) (*rig, *crashing) {
	t.Helper()
	r := newRig(t)
	r.master = bytes.Repeat([]byte{7}, vault.MasterKeySize)
	store, err := jetstream.OpenKeys(t.Context(), jetstream.Config{Conn: r.conn, Tenant: "t"})
	if err != nil {
		t.Fatal(err)
	}
	c := &crashing{KeyStore: store, tried: make(chan struct{}, 1)}
	r.keys = func(context.Context, string) (vault.KeyStore, error) { return c, nil }
	return r, c
}

// sealKey asks for a plan's key as an agent does, which has opened the plan unless it is there.
func (r *rig) sealKey(agent, plan string) (answer api.KeyAnswer, err error) {
	r.t.Helper()
	if _, err := r.askKey(agent, plan); says(err) == "plan "+plan+" is not in the ledger; its agent opens it before it "+
		"asks for its key" {
		r.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: agent, Plan: plan},
			&pb.Record{Plan: plan, Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}})
	}
	return r.askKey(agent, plan)
}

func (r *rig) askKey(agent, plan string) (answer api.KeyAnswer, err error) {
	r.t.Helper()
	body, _ := json.Marshal(api.KeyQuery{Plan: plan})
	m, err := r.conn.Request(api.KeySubject("t", agent), body, testenv.Patience)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return answer, readAnswer(m.Data, &answer)
}

// planKey is sealKey until there is a key, as an agent asks: at a start, hosts may be about to make
// the tenant's.
func (r *rig) planKey(agent, plan string) (key []byte) {
	r.t.Helper()
	r.eventually("a key of plan "+plan, func() bool {
		answer, err := r.sealKey(agent, plan)
		if problem := new(api.Problem); len(answer.Key) == 0 && !(errors.As(err, &problem) && problem.Again) {
			r.t.Fatalf("no key, and none to come: %+v %v", answer, err)
		}
		key = answer.Key
		return len(key) > 0
	})
	return key
}

// sealed is a value as an agent seals it.
func sealed(key []byte, tenant, plan, action string, value string) json.RawMessage {
	return seal.Seal(seal.Key(key), seal.Place{Tenant: tenant, Plan: plan, Action: action, Field: "input.card"},
		json.RawMessage(value))
}

// charge registers and completes an action a1 with this card.
func (r *rig) charge(plan string, card json.RawMessage) {
	r.t.Helper()
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassAgent, Name: "agent", Plan: plan},
		&pb.Record{Plan: plan, Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}},
		&pb.Record{Plan: plan, Action: "a1", Payload: &pb.Payload{Input: fmt.Appendf(nil, `{"card":%s}`, card)},
			Kind: &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{Capability: "do.x",
				Class: pb.Class_CLASS_COMPENSABLE}}},
		&pb.Record{Plan: plan, Action: "a1",
			Kind: &pb.Record_CompensationRegistered{CompensationRegistered: &pb.CompensationRegistered{
				Capability: "x", Attempts: 2, BackoffNs: int64(10 * time.Millisecond), TimeoutNs: int64(2 * time.Second),
				Sealed: true, Bindings: []*pb.Binding{{Name: "card", Expression: "input.card"}}}}},
		&pb.Record{Plan: plan, Action: "a1", Kind: &pb.Record_ForwardCompleted{ForwardCompleted: &pb.ForwardCompleted{}}})
}

func (r *rig) erase(plan string) {
	r.t.Helper()
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ana"},
		&pb.Record{Plan: plan, Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "asked for", Actor: "ana"}}})
}

// until asks for a plan until it is as wanted.
func (r *rig) until(plan, what string, is func(api.Plan) bool) api.Plan {
	r.t.Helper()
	for deadline := time.Now().Add(testenv.Patience); ; {
		shown := r.show(plan)
		if is(shown) {
			return shown
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("plan %s is not %s: %+v", plan, what, shown)
		}
	}
}

func destroyed(v api.Plan) bool { return v.Erasure != nil && v.Erasure.Destroyed != "" }

// TestErasureIsFinishedByTheNextHost, whether the first one died before it destroyed the
// key or behind that: one record says so, and the key is gone.
func TestErasureIsFinishedByTheNextHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, behind bool }{{before: true}, {behind: true}} {
		r, keys := keyRig(t)
		r.serve(done)
		_, stop := r.host("h1")
		r.charge("p", sealed(r.planKey("agent", "p"), "t", "p", "a1", `"4000"`))
		r.fail("p")
		r.ended("p")
		keys.before, keys.behind = c.before, c.behind
		r.erase("p")
		<-keys.tried
		if r.show("p").Erasure.Destroyed != "" {
			t.Error("it is said to be destroyed, and nobody has heard so")
		}
		stop()
		_, err := keys.Get(t.Context(), "p")
		if c.before != (err == nil) {
			t.Errorf("before the next host: %v", err)
		}
		keys.mu.Lock()
		keys.before, keys.behind = false, false
		keys.mu.Unlock()
		_, stop = r.host("h2")
		r.until("p", "erased", destroyed)
		if _, err := keys.Get(t.Context(), "p"); !errors.Is(err, jetstream.ErrKeyDestroyed) {
			t.Errorf("the key: %v", err)
		}
		if answer, _ := r.sealKey("agent", "p"); len(answer.Key) != 0 || !strings.Contains(answer.Erased, "erased by ana") {
			t.Errorf("%+v", answer)
		}
		stop()
	}
}

// copied is a copy of the store that is made now. It puts the keys of a plan and of the tenant back as
// they are in it.
func (c *crashing) copied(r *rig, plan string) (back func()) {
	r.t.Helper()
	key, err := c.Get(r.t.Context(), plan)
	tenant, _, failed := c.Tenant(r.t.Context())
	if err = errors.Join(err, failed); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		r.t.Helper()
		r.deleteStream(jetstream.KeysStreamName("t"))
		store, err := jetstream.OpenKeys(r.t.Context(), jetstream.Config{Conn: r.conn, Tenant: "t"})
		if err == nil {
			err = errors.Join(store.Create(r.t.Context(), plan, key), store.SetTenant(r.t.Context(), tenant, 0))
		}
		if err != nil {
			r.t.Fatal(err)
		}
		c.KeyStore = store
	}
}

// TestAKeyThatComesBackStaysDestroyed, with an older copy of the server's store: nothing is shown
// by it, and a repair of the ledger destroys it again.
func TestAKeyThatComesBackStaysDestroyed(t *testing.T) {
	t.Parallel()
	r, keys := keyRig(t)
	r.serve(done)
	_, stop := r.host("h1")
	r.charge("p", sealed(r.planKey("agent", "p"), "t", "p", "a1", `"4000"`))
	r.fail("p")
	r.ended("p")
	back := keys.copied(r, "p")
	reveal := func() (answer api.PlanAnswer, err error) {
		m, err := r.conn.Request(api.RevealSubject("t"), []byte(`{"plan":"p"}`), testenv.Patience)
		if err != nil {
			t.Fatal(err)
		}
		return answer, readAnswer(m.Data, &answer)
	}
	if shown, err := reveal(); err != nil || !strings.Contains(string(shown.Plan.Actions[0].Input), "4000") {
		t.Fatalf("before the erasure: %s %v", shown.Plan.Actions[0].Input, err)
	}
	r.erase("p")
	r.until("p", "erased", destroyed)
	stop()
	back()
	_, stop = r.host("h1")
	r.until("p", "erased", destroyed)
	if shown, err := reveal(); err == nil || !strings.Contains(err.Error(), "destroyed") {
		t.Errorf("after its key came back: %+v %v", shown, err)
	}
	stop()
	r.deleteStream(jetstream.StreamName("t"))
	r.host("h1")
	r.halted("G2")
	if _, err := keys.Get(t.Context(), "p"); err != nil {
		t.Fatal("the key is not back: ", err)
	}
	r.repair()
	if _, err := keys.Get(t.Context(), "p"); !errors.Is(err, jetstream.ErrKeyDestroyed) {
		t.Errorf("after the repair: %v", err)
	}
}

// TestAKeyThatComesBackOpensNoCommand: no command of an erased plan begins, and one that was sent
// before the erasure is sent again at the start of a host.
func TestAKeyThatComesBackOpensNoCommand(t *testing.T) {
	t.Parallel()
	r, keys := keyRig(t)
	h, stop := r.host("h1")
	card := sealed(r.planKey("agent", "p"), "t", "p", "a1", `"4000"`)
	r.charge("p", card)
	var c executor.Command
	c.Plan, c.Action, c.Arguments = "p~1", "a1", card
	if got, _, err := h.roster.of("t").openCommand(c); err != nil || string(got) != `"4000"` {
		t.Fatalf("before the erasure: %s %v", got, err)
	}
	back := keys.copied(r, "p")
	r.append(ledger.Source{Tenant: "t", Class: ledger.ClassOperator, Name: "ana"},
		&pb.Record{Plan: "p", Kind: &pb.Record_PlanErased{PlanErased: &pb.PlanErased{Reason: "asked for",
			Actor: "ana", Force: true}}})
	r.until("p", "erased", destroyed)
	stop()
	back()
	h, _ = r.host("h1")
	r.until("p", "erased", destroyed)
	got, opened, err := h.roster.of("t").openCommand(c)
	if !errors.Is(err, jetstream.ErrKeyDestroyed) || len(opened) > 0 {
		t.Errorf("after its key came back: %s, %d values, %v", got, len(opened), err)
	}
}

// TestHostsOpenWhatTheirPlanSealedOnly: what another plan or tenant sealed stays closed;
// a flipped bit, a lost key and another master key are the owner's, with the reason.
func TestHostsOpenWhatTheirPlanSealedOnly(t *testing.T) {
	t.Parallel()
	r, keys := keyRig(t)
	var calls sync.Map
	r.serve(func(c api.Command) *api.Reply {
		calls.Store(c.Plan, string(c.Arguments))
		return &api.Reply{Status: api.StatusDone, Output: json.RawMessage(`{"said":"4000123412341234"}`)}
	})
	_, stop := r.host("h1")
	card := `"4000123412341234"`
	key := func(plan string) []byte { return r.planKey("agent", plan) }
	flipped := sealed(key("flip"), "t", "flip", "a1", card)
	flipped[len(flipped)-20] ^= 1
	for plan, c := range map[string]struct {
		card json.RawMessage
		want string // that the worker gets; "-": it is the owner's
	}{
		"own":   {sealed(key("own"), "t", "own", "a1", card), card},
		"plain": {json.RawMessage(card), card},
		"foreign": {sealed(key("victim"), "t", "victim", "a1", card),
			string(sealed(key("victim"), "t", "victim", "a1", card))},
		"neighbor": {sealed(key("neighbor"), "t", "neighbor", "a2", card),
			string(sealed(key("neighbor"), "t", "neighbor", "a2", card))},
		"tenant": {sealed(key("tenant"), "u", "tenant", "a1", card), "-"},
		"wrong":  {sealed(key("victim"), "t", "wrong", "a1", card), "-"},
		"flip":   {flipped, "-"},
	} {
		_ = key(plan)
		r.charge(plan, c.card)
		r.fail(plan)
		end := r.ended(plan)
		got, _ := calls.Load(plan)
		if c.want == "-" {
			if end.State != ledger.StateQuarantined || got != nil ||
				!strings.Contains(r.show(plan).Actions[0].Note, "what x takes: cannot open input.card") {
				t.Errorf("%s: %+v, the worker got %v, %s", plan, end, got, r.show(plan).Actions[0].Note)
			}
		} else if end.State != ledger.StateCompensated || got != `{"card":`+c.want+`}` {
			t.Errorf("%s: %+v, the worker got %v", plan, end, got)
		}
	}
	if k, _ := r.sealKey("agent", "own"); !bytes.Equal(k.Key, key("own")) || len(k.Key) != seal.KeySize {
		t.Error("another key the second time")
	}
	for _, c := range [][3]string{{"other", "own", "agent agent's"}, {"agent", "a.b", "plan"}} {
		if answer, err := r.sealKey(c[0], c[1]); answer.Key != nil || !strings.Contains(says(err), c[2]) {
			t.Errorf("agent %s, plan %s: %+v", c[0], c[1], answer)
		}
	}
	r.charge("lost", sealed(key("lost"), "t", "lost", "a1", card))
	stop()
	if err := keys.Destroy(t.Context(), "lost"); err != nil { // as if the store had lost it
		t.Fatal(err)
	}
	_, stop = r.host("h2")
	r.fail("lost")
	if end := r.ended("lost"); end.State != ledger.StateQuarantined ||
		!strings.Contains(r.show("lost").Actions[0].Note, "the key was destroyed") {
		t.Errorf("a lost key: %+v", end)
	}
	stop()
	_, err := New(Config{Conn: r.conn, Tenants: []string{"t"}, Dir: filepath.Join(r.dir, "h3"),
		MasterKey: bytes.Repeat([]byte{8}, vault.MasterKeySize), TenantKeysDir: filepath.Join(r.dir, "keys")})
	var refused *ledger.Refused
	if !errors.As(err, &refused) || refused.Field != "master key" ||
		!strings.Contains(refused.Problem, "wrapped under another master key") {
		t.Errorf("another master key: %v", err)
	}
}

// TestAHostWithoutAMasterKeyWaitsVisibly, and the next one, which has it, goes on.
func TestAHostWithoutAMasterKeyWaitsVisibly(t *testing.T) {
	t.Parallel()
	r, _ := keyRig(t)
	r.serve(done)
	_, stop := r.host("h1")
	r.charge("p", sealed(r.planKey("agent", "p"), "t", "p", "a1", `"4000"`))
	stop()
	master := r.master
	r.master = nil
	_, stop = r.host("h2")
	if answer, err := r.sealKey("agent", "q"); answer.Key != nil || !strings.Contains(says(err), "--master-key FILE") {
		t.Errorf("%+v", answer)
	}
	r.fail("p")
	r.until("p", "waiting for its key", func(v api.Plan) bool {
		return len(v.Actions) > 0 &&
			strings.Contains(v.Actions[0].WaitsFor, "what x takes: cannot open input.card: this host has no master key")
	})
	stop()
	r.master = master
	r.host("h3")
	if end := r.ended("p"); end.State != ledger.StateCompensated {
		t.Errorf("%+v", end)
	}
}

// TestWhatWorkersSayOfOpenedValuesIsScrubbed before it is recorded.
func TestWhatWorkersSayOfOpenedValuesIsScrubbed(t *testing.T) {
	t.Parallel()
	r, _ := keyRig(t)
	r.serve(func(c api.Command) *api.Reply {
		if !slices.Equal(c.Opened, []string{"/card"}) {
			t.Errorf("it was opened: %q", c.Opened)
		}
		if c.Plan == "done" {
			return &api.Reply{Status: api.StatusDone, ExternalRef: "ref 4000123412341234",
				Output: json.RawMessage(`{"of":"4000123412341234","n":1}`)}
		}
		return &api.Reply{Status: api.StatusStop, Code: "4000123412341234", Message: "cannot refund 4000123412341234"}
	})
	r.host("h1")
	for _, plan := range []string{"done", "stop"} {
		r.charge(plan, sealed(r.planKey("agent", plan), "t", plan, "a1", `"4000123412341234"`))
		r.fail(plan)
		r.ended(plan)
	}
	store, err := jetstream.Open(t.Context(), jetstream.Config{Conn: r.conn, Tenant: "t", AcceptLossyBroker: true})
	if err != nil {
		t.Fatal(err)
	}
	head, err := store.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for sequence := head.First; sequence <= head.Last; sequence++ {
		m, err := store.Get(t.Context(), sequence)
		if err != nil || bytes.Contains(m.Data, []byte("4000123412341234")) {
			t.Errorf("sequence %d: %v, %q", sequence, err, m.Data)
		}
		if bytes.Contains(m.Data, []byte("[sealed]")) {
			said++
		}
	}
	if said != 2 {
		t.Errorf("%d records have something taken out", said)
	}
}

// TestAKeyIsMadeOnlyForAPlanThatTheLedgerHas: so no agent takes the ids of others, or makes keys
// without end.
func TestAKeyIsMadeOnlyForAPlanThatTheLedgerHas(t *testing.T) {
	t.Parallel()
	r, keys := keyRig(t)
	r.host("h1")
	for range 3 {
		if answer, err := r.askKey("thief", "p"); answer.Key != nil ||
			!strings.Contains(says(err), "plan p is not in the ledger") {
			t.Fatalf("%+v", answer)
		}
	}
	if _, err := keys.Get(t.Context(), "p"); !errors.Is(err, jetstream.ErrNoKey) {
		t.Errorf("a key was made: %v", err)
	}
	if answer, _ := r.sealKey("agent", "p"); len(answer.Key) == 0 {
		t.Errorf("its owner: %+v", answer)
	}
	if answer, err := r.askKey("thief", "p"); answer.Key != nil || !strings.Contains(says(err), "is agent agent's") {
		t.Errorf("%+v", answer)
	}
}
