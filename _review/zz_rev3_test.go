package executor_test

import (
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"
	"testing"
	"time"

	. "github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

func TestZXNested(t *testing.T) {
	const pre = "open a:held*+for=1h a+ q/open^a q/x q/x+ r/open^q.x r/b r/b+ q/y q/y+ q/fail y=stop turn q/halt:y turn z z+ "
	s := newSchedule(t)
	s.play(pre + "s/open^r.b s/c s/c+ s/commit turn commit turn r/fail turn")
	for _, id := range []string{"p", "q", "r", "s"} {
		t.Logf("%s %s undone %v", id, s.show(id).State, s.undone)
	}
}

func TestZXCut(t *testing.T) {
	s := newSchedule(t)
	s.limits = CascadeLimits{Depth: 1}
	answer := s.worker
	s.worker = func(call Command) *api.Reply {
		if call.Plan == "q" {
			s.must(s.made("q", call.Action, "b", "1"))
		}
		return answer(call)
	}
	s.play("open a a+ b:held*+for=1h b+ c c+ commit turn q/open q/x:own q/x+ turn fact:x=1 turn")
	t.Logf("cut %v pages %v", s.cut(), len(s.state.Unpaged()))
	s.play("undo:!c turn")
	t.Logf("cut %v held %d %s; %s; pages %v", s.cut(), s.planOf("p").Row.HeldOn, s.outcome(), s.show("p~1").Reason, len(s.state.Unpaged()))
}

func TestZXVerdict(t *testing.T) {
	s := newSchedule(t)
	s.play("open")
	s.agent("p", pair("b", func(f *pb.ForwardRegistered, c *pb.CompensationRegistered) {
		c.ValidForNs = int64(time.Hour)
		c.Triggers = append(c.Triggers, &pb.Trigger{Name: "x", AfterCommit: true,
			Condition: `"k" in facts && verdict.outcome == "allow"`})
	})...)
	s.play("b+ commit turn fact:k=1 judge:b=allow turn")
	t.Logf("%s", s.outcome())
	s.fact("k=2")
	t.Logf("as kept: turned %v, held %d", s.planOf("p").Row.Turned, s.planOf("p").Row.HeldOn)
	s.turn()
	t.Logf("%s", s.outcome())
	kv := rows.NewMemoryKV()
	for _, m := range s.log {
		st := OpenWith(kv, "t", s.world, s.programs) // a holder that restarts after each message
		entries, _ := ledger.Decode("t", m)
		for _, e := range entries {
			st.Apply(e)
		}
		st.Flush()
		t.Logf("restarted: message %d: HasWork %v", m.Sequence, st.HasWork())
	}
	t.Logf("same digest: %v", rows.Digest(kv) == rows.Digest(s.kv))
}
