package executor_test

import (
	"strings"
	"testing"

	. "github.com/sagenbaum/sagenbaum/executor"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// booking is a tool whose provider refuses a forward whose undo came first, and removes only
// what is named.
type booking struct {
	there bool // the booking whose reply was lost
	ref   string
	sent  []string // the arguments of each undo
}

func (b *booking) work(k Command) *api.Reply {
	if k.Purpose == api.PurposeProbe {
		output := `{"presence":"absent"}`
		if b.there {
			output = `{"presence":"present","external_ref":"` + b.ref + `"}`
		}
		return &api.Reply{Status: api.StatusDone, Output: []byte(output)}
	}
	b.sent = append(b.sent, string(k.Arguments))
	if strings.Contains(string(k.Arguments), `"b7"`) {
		b.there = false
	}
	return &api.Reply{Status: api.StatusDone}
}

// TestAProbeIsAskedFirstWhateverLateSays: an undo that goes out unasked has no name for what
// it undoes, removes nothing, and says that it is done.
func TestAProbeIsAskedFirstWhateverLateSays(t *testing.T) {
	for _, c := range []struct {
		there       bool
		ref, policy string
		want, sent  string
	}{
		{true, "b7", "", "compensated", `"booking":"b7"`},
		{true, "", "", "quarantined", ""},
		{false, "", "", "compensated", `"booking":null`}, // it only bars what may come
		{true, "b7", "compensate", "compensated", `"booking":"b7"`},
		{false, "", "compensate", "compensated", `"booking":null`},
	} {
		b := &booking{there: c.there, ref: c.ref}
		s := newSchedule(t)
		s.worker = b.work
		s.must(s.agent("p", opened(0)))
		s.must(s.agent("p", pair("a", func(f *pb.ForwardRegistered, k *pb.CompensationRegistered) {
			barred("booking", "has(output.id) ? output.id : meta.external_ref", "forward",
				"meta.forward_key", "hotel", "input.id")(f, k)
			k.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.a", Attempts: 2}}
			if c.policy == "compensate" {
				k.OnInDoubt = pb.OnInDoubt_ON_IN_DOUBT_COMPENSATE
			}
		})...))
		s.play("a=lost fail turn @1s turn")
		got := s.show("p")
		if got.State != c.want || len(b.sent) > 1 || !strings.Contains(strings.Join(b.sent, ""), c.sent) ||
			c.sent == "" && len(b.sent) != 0 {
			t.Errorf("%+v: %s, sent %q: %s", c, got.State, b.sent, got.Actions[0].Note)
		}
		if got.State == "compensated" && b.there {
			t.Errorf("%+v: the booking is there", c)
		}
	}
}

// TestAnUndoThatNamesNothingIsNotSent: what names its effect only by the output or the
// reference asks for it, or is its owner's.
func TestAnUndoThatNamesNothingIsNotSent(t *testing.T) {
	for _, c := range []struct {
		what     string
		bindings []string
		outcome  *pb.Record // nil: lost
		probe    string     // "": none
		want     string
	}{
		{"only the output", []string{"id", "output.id"}, nil, "", "quarantined"},
		{"and literals", []string{"id", "output.id", "why", `"undo"`, "key", "meta.key"}, nil, "", "quarantined"},
		{"and the forward's key", []string{"id", "output.id", "f", "meta.forward_key"}, nil, "", "quarantined"},
		{"computed", []string{"path", `"/b/" + output.id`}, nil, "", "quarantined"},
		{"only the reference", []string{"id", "meta.external_ref"}, nil, "", "quarantined"},
		{"either, beside an amount", []string{"id", "has(output.id) ? output.id : meta.external_ref", "n",
			"input.id"}, nil, "", "quarantined"},
		{"either, compared with null", []string{"id", "output.id != null ? output.id : meta.external_ref"}, nil,
			"", "quarantined"},
		{"completed without a name", []string{"id", "output.nothing"}, completed("a"), "", "quarantined"},
		{"the probe has no name", []string{"id", "output.id"}, nil, `{"presence":"present"}`, "quarantined"},
		{"the probe names it", []string{"id", "has(output.id) ? output.id : meta.external_ref"}, nil,
			`{"presence":"present","external_ref":"x"}`, "compensated"},
		{"completed, and asked", []string{"id", "has(output.no) ? output.no : meta.external_ref"}, completed("a"),
			`{"presence":"present","external_ref":"x"}`, "compensated"},
		{"completed, and absent", []string{"id", "output.no"}, completed("a"), `{"presence":"absent"}`, "failed"},
		{"completed, and the question has no name", []string{"id", "output.no"}, completed("a"),
			`{"presence":"absent"}`, "quarantined"},
		{"the question has no name either", []string{"id", "output.id"}, nil, `{"presence":"absent"}`, "quarantined"},
		{"by what the caller chose", []string{"name", "input.id", "sha", "output.sha"}, nil, "", "compensated"},
		{"by the forward's key alone", []string{"f", "meta.forward_key"}, nil, "", "compensated"},
		{"reckoned with", []string{"id", "output.?id"}, nil, "", "compensated"},
		{"with a default", []string{"id", `output.?id.orValue("none")`}, nil, "", "compensated"},
		{"nothing", nil, nil, "", "compensated"},
	} {
		s := newSchedule(t)
		sent := 0
		s.worker = func(k Command) *api.Reply {
			if k.Purpose == api.PurposeProbe {
				return &api.Reply{Status: api.StatusDone, Output: []byte(c.probe)}
			}
			sent++
			return &api.Reply{Status: api.StatusDone}
		}
		s.must(s.agent("p", opened(0)))
		s.must(s.agent("p", pair("a", func(f *pb.ForwardRegistered, k *pb.CompensationRegistered) {
			bind(c.bindings...)(f, k)
			if c.probe != "" {
				k.Probe = &pb.Probe{Call: &pb.Call{Capability: "probe.a", Attempts: 2}}
				if strings.Contains(c.what, "question") {
					k.Probe.Call.Bindings = k.Bindings
				}
			}
		})...))
		if c.outcome != nil {
			s.must(s.agent("p", c.outcome))
		} else {
			s.play("a=lost")
		}
		s.play("fail turn @1m turn")
		got := s.show("p")
		if got.State != c.want || (sent == 1) != (c.want == "compensated") {
			t.Errorf("%s: %s, sent %d times, want %s: %s", c.what, got.State, sent, c.want,
				got.Actions[0].Note)
		}
	}
}

// TestWhatWasReportedSinceIsSaid: an owner who was called because nothing named the effect sees when
// that is over, and a retry undoes it.
func TestWhatWasReportedSinceIsSaid(t *testing.T) {
	const since = "reported since: retry has what it needs"
	for binding, named := range map[string]bool{"meta.external_ref": true, "output.nothing": false} {
		s := newSchedule(t)
		s.worker = func(Command) *api.Reply { return &api.Reply{Status: api.StatusDone} }
		s.must(s.agent("p", opened(0)))
		s.must(s.agent("p", pair("a", bind("id", binding))...))
		s.play("a=lost fail turn @1m turn")
		if got := s.show("p"); got.State != "quarantined" || strings.Contains(got.Actions[0].Note, since) {
			t.Fatalf("%s: %s: %s", binding, got.State, got.Actions[0].Note)
		}
		late := completed("a")
		late.GetForwardCompleted().ExternalRef = "x7"
		s.must(s.agent("p", late))
		s.play("turn")
		got := s.show("p")
		if note := got.Actions[0].Note; got.State != "quarantined" || strings.Contains(note, since) != named {
			t.Errorf("%s: %s: %s", binding, got.State, note)
		}
		s.play("retry:a turn @1m turn")
		if state := s.show("p").State; (state == "compensated") != named {
			t.Errorf("%s: tried again, the plan is %s", binding, state)
		}
	}
}

// TestEarlierHoldersSentWithoutAName: a ledger of theirs is folded as it was.
func TestEarlierHoldersSentWithoutAName(t *testing.T) {
	for fold, want := range map[uint32]string{ledger.NamedSince - 1: "compensated", ledger.NamedSince: "quarantined"} {
		w := newWorld(t)
		holder := ledger.Source{Tenant: "t", Class: ledger.ClassExecutor, Term: true}
		w.must(w.append(holder, &pb.Record{Term: 2, Kind: &pb.Record_TermStarted{TermStarted: &pb.TermStarted{Holder: "h",
			FoldVersion: fold}}}))
		w.must(w.agent("p", opened(0)))
		w.must(w.agent("p", pair("a", bind("id", "output.id"))...))
		w.must(w.agent("p", planFailed()))
		w.turn()
		w.at(60e9)
		if got := w.show("p").State; got != want {
			t.Errorf("fold version %d: %s, want %s", fold, got, want)
		}
	}
}

// TestTheForwardsKeyIsNoNameBesideOne: where the provider bars a forward by its key, an undo with
// that key and null for a name bars what is there already, removes nothing, and says done.
func TestTheForwardsKeyIsNoNameBesideOne(t *testing.T) {
	b := &booking{there: true}
	s := newSchedule(t)
	s.worker = b.work
	s.must(s.agent("p", opened(0)))
	s.must(s.agent("p", pair("a", barred("id", "output.id", "forward", "meta.forward_key"))...))
	s.play("a=lost fail turn @1s turn")
	if got := s.show("p"); got.State != "quarantined" || len(b.sent) != 0 {
		t.Errorf("%s, sent %q: %s", got.State, b.sent, got.Actions[0].Note)
	}
}
