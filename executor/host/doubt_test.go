package host

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// notKnown is a probe's answer that says nothing.
func notKnown(int, api.Command) (*api.Reply, bool) {
	return &api.Reply{Status: api.StatusDone, Output: []byte(`{"presence":"inconclusive"}`)}, true
}

// The forward's answer is lost: nobody knows whether the charge was made.
func TestE1ALostForwardAnswerInAllFourProbeResults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		standing []string
		ask      func(int, api.Command) (*api.Reply, bool)
		state    string
		left     []string
		reversed []string
	}{
		{"present", []string{"r1"}, nil, ledger.StateCompensated, nil, []string{"r1"}},
		{"absent", nil, nil, ledger.StateFailed, nil, nil}, // nothing in scope (S15)
		{"duplicate", []string{"r1", "r2"}, nil, ledger.StateCompensated, nil, []string{"r2", "r1"}},
		{"inconclusive", []string{"r1"}, notKnown, ledger.StateQuarantined, []string{"r1"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			p := r.provide(c.standing...)
			p.ask = c.ask
			r.host("h1")
			r.charged("p", "", charge())
			if got := r.ended("p"); got.State != c.state {
				t.Errorf("%+v", got)
			}
			p.want(c.left, c.reversed, len(c.reversed))
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, q := range p.asked {
				if q.Purpose != api.PurposeProbe || q.Capability != "charge.get" || q.Forward != "charge.create" ||
					q.Key != ledger.Key("t", "p", "a", ledger.PurposeUndo) {
					t.Errorf("%+v", q)
				}
			}
		})
	}
}

// The undo's answer is lost, before or after its effect.
func TestE1ALostUndoAnswerInAllFourProbeResults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		standing []string
		happens  bool // the undo whose answer is lost
		ask      func(int, api.Command) (*api.Reply, bool)
		state    string
		left     []string
		reversed []string
		undos    int
	}{
		{"present", []string{"r1"}, false, nil, ledger.StateCompensated, nil, []string{"r1"}, 2},
		{"absent", []string{"r1"}, true, nil, ledger.StateCompensated, nil, []string{"r1"}, 1},
		{"duplicate", []string{"r1", "r2"}, false, nil, ledger.StateCompensated, nil, []string{"r2", "r1"}, 3},
		{"inconclusive", []string{"r1"}, true, notKnown, ledger.StateQuarantined, nil, []string{"r1"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			p := r.provide(c.standing...)
			p.ask = c.ask
			p.undo = func(n int, command api.Command) (*api.Reply, bool) {
				if n > 0 {
					return nil, false
				}
				if c.happens {
					p.reverse(command)
				}
				return nil, true
			}
			r.host("h1")
			r.charged("p", "r1", charge())
			if got := r.ended("p"); got.State != c.state {
				t.Errorf("%+v", got)
			}
			p.mu.Lock()
			reversed := len(p.reversed)
			p.mu.Unlock()
			if c.name == "duplicate" && reversed == 2 {
				p.mu.Lock()
				p.reversed = []string{"r2", "r1"} // both, in either order
				p.mu.Unlock()
			}
			p.want(c.left, c.reversed, c.undos)
		})
	}
}

func TestDoubtAboutOneActionStopsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("r1", "r2")
	p.ask = notKnown
	r.host("h1")
	branch := pair("p", "b", charge())
	branch[0].GetForwardRegistered().Branch = true
	records := append([]*pb.Record{opened("p", &pb.PlanOpened{})}, pair("p", "a", charge())...)
	records = append(append(records, completed("p", "a", "r1")), branch...)
	r.append(agentOf("agent", "p"), records...)
	r.fail("p")
	if got := r.ended("p"); got.State != ledger.StateQuarantined || len(got.Outstanding) != 1 ||
		got.Outstanding[0] != "b" {
		t.Errorf("%+v", got)
	}
	p.want([]string{"r2"}, []string{"r1"}, 1)
}

func TestAVerifyThatFailsThenSucceeds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("r1")
	p.undo = func(n int, _ api.Command) (*api.Reply, bool) {
		return &api.Reply{Status: api.StatusDone, Worker: "hasty"}, n == 0 // and nothing happened
	}
	r.host("h1")
	c := charge()
	c.Probe = nil
	c.Verify = &pb.Verify{Call: question("charge.get"), Ok: `verify.presence == "absent"`}
	r.charged("p", "r1", c)
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v: %+v", got, r.show("p"))
	}
	p.want(nil, []string{"r1"}, 2)
	p.mu.Lock()
	for i, q := range p.asked {
		if q.Purpose != api.PurposeVerify || i > 1 {
			t.Errorf("question %d: %+v", i, q)
		}
	}
	p.mu.Unlock()
	undos := r.undos("p")
	if len(undos) != 2 || undos[0].State != "failed" || undos[1].State != "done" || undos[0].Worker != "hasty" {
		t.Fatalf("%+v", undos)
	}
	// S31: where an attempt's time went.
	if u := undos[1]; u.WorkNs != 6 || u.SetupNs != 1 || u.ToolNs != 2 || u.LLMNs != 3 || u.DispatchedNs == 0 ||
		u.EndedNs < u.DispatchedNs || u.QueuedNs <= 0 {
		t.Errorf("%+v", u)
	}
}

// The worker dies between the effect and its report (A3), or the host does.
func TestA3AKillBetweenEffectAndReportMakesOneEffect(t *testing.T) {
	t.Parallel()
	t.Run("worker", func(t *testing.T) {
		r := newRig(t)
		p := r.provide("r1")
		p.undo = func(n int, c api.Command) (*api.Reply, bool) {
			if n == 0 {
				p.reverse(c)
			}
			return nil, n == 0
		}
		r.host("h1")
		c := charge()
		c.Probe = nil
		r.charged("p", "r1", c)
		if got := r.ended("p"); got.State != ledger.StateCompensated {
			t.Errorf("%+v", got)
		}
		p.want(nil, []string{"r1"}, 2)
		wantOneKey(t, p, 1, 2)
	})
	t.Run("host", func(t *testing.T) {
		r := newRig(t)
		p := r.provide("r1")
		did, answer := make(chan struct{}), make(chan struct{})
		p.undo = func(n int, c api.Command) (*api.Reply, bool) {
			if n == 0 {
				p.reverse(c)
				close(did)
				<-answer
			}
			return nil, n == 0
		}
		_, stop := r.host("h1")
		c := charge()
		c.Probe, c.TimeoutNs = nil, int64(time.Minute)
		r.charged("p", "r1", c)
		<-did
		stop()
		close(answer)
		r.host("h1")
		if got := r.ended("p"); got.State != ledger.StateCompensated {
			t.Errorf("%+v", got)
		}
		p.want(nil, []string{"r1"}, 2)
		wantOneKey(t, p, 1, 1) // the same attempt
	})
}

func wantOneKey(t *testing.T, p *provider, attempts ...uint32) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.undos {
		if c.Key != p.undos[0].Key || c.Attempt != attempts[i] {
			t.Errorf("undo %d: %+v", i, c)
		}
	}
}

// The provider has forgotten the key when a restarted host finds the command
// unanswered: another copy could reverse twice, so the world is asked.
func TestS108ACommandOlderThanItsProvidersMemoryIsProbedAndNotSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("r1")
	did, answer := make(chan struct{}), make(chan struct{})
	p.undo = func(n int, c api.Command) (*api.Reply, bool) {
		if n == 0 {
			p.reverse(c)
			close(did)
			<-answer
		}
		return nil, n == 0
	}
	_, stop := r.host("h1")
	c := charge()
	c.DedupeNs, c.TimeoutNs = int64(ledger.DurationMin), int64(time.Minute)
	r.charged("p", "r1", c)
	<-did
	stop()
	close(answer)
	p.mu.Lock()
	p.keys = map[string]string{}
	p.mu.Unlock()
	r.host("h1")
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Fatalf("%+v: %+v", got, r.show("p"))
	}
	p.want(nil, []string{"r1"}, 1)
	if undos := r.undos("p"); len(undos) != 1 {
		t.Errorf("%+v", undos)
	}
	probed := r.records(func(rec *pb.Record) bool { return rec.GetCompensationSucceeded().GetProbed() })
	if len(probed) != 1 {
		t.Errorf("%d successes by a probe", len(probed))
	}
}

// Two hosts that both believe they hold the tenant (E2), over undos whose answers
// get lost half of the time.
func TestE2TwoHostsReverseEachEffectOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const plans = 12
	var refs []string
	for i := range plans {
		refs = append(refs, "r"+string(rune('a'+i)))
	}
	p := r.provide(refs...)
	p.undo = func(n int, c api.Command) (*api.Reply, bool) {
		if n%2 == 0 {
			p.reverse(c)
		}
		return nil, n%2 == 0
	}
	r.host("h1")
	r.eventually("h1 holds", func() bool { return r.status().Mode == api.ModeHolding })
	h2, _ := r.host("h2")
	zombie(t, r, h2)
	for _, ref := range refs {
		c := charge()
		c.Probe, c.Attempts = nil, 10
		r.charged("p"+ref, ref, c)
	}
	for _, ref := range refs {
		if got := r.ended("p" + ref); got.State != ledger.StateCompensated {
			t.Errorf("%s: %+v", ref, got)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.standing) != 0 || len(p.reversed) != plans || len(p.keys) != plans {
		t.Errorf("standing %v, %d reversed under %d keys", p.standing, len(p.reversed), len(p.keys))
	}
	won := map[string]int{}
	for _, e := range effective(t, r) {
		if e.Record.GetCompensationSucceeded() != nil {
			won[e.Record.Plan]++
		}
	}
	for _, ref := range refs {
		if won["p"+ref] != 1 {
			t.Errorf("plan p%s has %d effective successes", ref, won["p"+ref])
		}
	}
}

// effective folds the stream anew and returns what counts.
func effective(t *testing.T, r *rig) (out []ledger.Entry) {
	t.Helper()
	s := executor.Open(rows.NewMemoryKV(), "t", nil)
	for _, e := range r.records(func(*pb.Record) bool { return true }) {
		if s.Apply(e).Verdict == executor.Effective {
			out = append(out, e)
		}
	}
	return out
}

// A restart in the middle of a question asks it again and folds to the same state.
func TestAQuestionOutlivesItsHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.provide("r1")
	asked := make(chan struct{})
	p.ask = func(n int, _ api.Command) (*api.Reply, bool) {
		if n == 0 {
			close(asked)
		}
		return nil, n == 0
	}
	_, stop := r.host("h1")
	c := charge()
	c.Probe.Call.TimeoutNs = int64(time.Minute)
	r.charged("p", "", c)
	<-asked
	r.caughtUp()
	stop()
	was, applied := digest(t, filepath.Join(r.dir, "h1"))
	r.wantDigest(was, applied)
	r.host("h1")
	if got := r.ended("p"); got.State != ledger.StateCompensated {
		t.Errorf("%+v", got)
	}
	p.want(nil, []string{"r1"}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) != 2 || p.asked[0].Attempt != p.asked[1].Attempt || p.asked[0].Key != p.asked[1].Key {
		t.Errorf("%+v", p.asked)
	}
}
