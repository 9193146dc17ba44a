package ledger_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// TestEveryDurationAndInstantOfARecordHasBounds: a worker is told whole milliseconds, and what an
// int64 of ns holds ends in 2262. The table names every field in ns that a client may write.
func TestEveryDurationAndInstantOfARecordHasBounds(t *testing.T) {
	const day = 24 * time.Hour
	opened := &pb.Record{Plan: "p1", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{}}}
	forward := registration("x1")
	forward.Kind = &pb.Record_ForwardRegistered{ForwardRegistered: &pb.ForwardRegistered{Capability: "a.b",
		Class: pb.Class_CLASS_COMPENSABLE}}
	undo := registration("x1")
	c := undo.GetCompensationRegistered()
	c.Probe = &pb.Probe{Call: &pb.Call{Capability: "a.get"}}
	c.Verify = &pb.Verify{Call: &pb.Call{Capability: "a.get"}, Ok: "true"}
	seen := map[string]bool{}
	for _, x := range []spanCase{
		{opened, "plan_opened.deadline_ns", 0, func(r *pb.Record, ns int64) { r.GetPlanOpened().DeadlineNs = ns }},
		{forward, "forward_registered.timeout_ns", day,
			func(r *pb.Record, ns int64) { r.GetForwardRegistered().TimeoutNs = ns }},
		{forward, "forward_registered.settle_ns", 30 * day,
			func(r *pb.Record, ns int64) { r.GetForwardRegistered().SettleNs = ns }},
		{forward, "forward_registered.grace_ns", time.Hour,
			func(r *pb.Record, ns int64) { r.GetForwardRegistered().GraceNs = ns }},
		{undo, "compensation_registered.backoff_ns", day,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().BackoffNs = ns }},
		{undo, "compensation_registered.backoff_max_ns", day,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().BackoffMaxNs = ns }},
		{undo, "compensation_registered.timeout_ns", day,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().TimeoutNs = ns }},
		{undo, "compensation_registered.valid_for_ns", ledger.DurationMax,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().ValidForNs = ns }},
		{undo, "compensation_registered.dedupe_ns", ledger.DurationMax,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().DedupeNs = ns }},
		{undo, "compensation_registered.valid_until_ns", 0,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().ValidUntilNs = ns }},
		{undo, "compensation_registered.warn_ns", ledger.DurationMax,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().WarnNs = ns }},
		{undo, "compensation_registered.ask_after_ns", 30 * day,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().AskAfterNs = ns }},
		{undo, "compensation_registered.unserved_after_ns", 30 * day,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().UnservedAfterNs = ns }},
		{undo, "compensation_registered.probe.call.timeout_ns", day,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().Probe.Call.TimeoutNs = ns }},
		{undo, "compensation_registered.probe.call.backoff_ns", day,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().Probe.Call.BackoffNs = ns }},
		{undo, "compensation_registered.verify.call.timeout_ns", day,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().Verify.Call.TimeoutNs = ns }},
		{undo, "compensation_registered.verify.call.backoff_ns", day,
			func(r *pb.Record, ns int64) { r.GetCompensationRegistered().Verify.Call.BackoffNs = ns }},
	} {
		x.try(t)
		seen[x.field[strings.LastIndexByte(x.field, '.')+1:]] = true
	}
	for _, m := range []*pb.Record{opened, forward, undo} { // a field that comes is in the table
		kind := m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("kind"))
		for i, fields := 0, kind.Message().Fields(); i < fields.Len(); i++ {
			if name := string(fields.Get(i).Name()); strings.HasSuffix(name, "_ns") && !seen[name] {
				t.Errorf("%s.%s has no bounds here", kind.Name(), name)
			}
		}
	}
}

// TestAnInstantIsKeptOrRefused: time.Time.UnixNano wraps around without a word.
func TestAnInstantIsKeptOrRefused(t *testing.T) {
	for _, text := range []string{"1970-01-01T00:00:00.000000001Z", "2026-11-26T10:00:00Z",
		"2261-12-31T23:59:59.999999999Z"} {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		ns, err := ledger.InstantNs("at", at)
		if err != nil || !time.Unix(0, ns).Equal(at) {
			t.Errorf("%s is %d, %v", text, ns, err)
		}
	}
	for _, year := range []int{1, 1678, 1970, 2262, 2600, 2611, 9999} {
		at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		if _, err := ledger.InstantNs("plan.deadline_at", at); refusedField(err) != "plan.deadline_at" ||
			!strings.Contains(err.Error(), "1970 to 2261") {
			t.Errorf("the year %d: %v", year, err)
		}
	}
}

// spanCase is a duration or an instant of a record.
type spanCase struct {
	record *pb.Record
	field  string
	most   time.Duration // 0: an instant
	set    func(r *pb.Record, ns int64)
}

func (x spanCase) try(t *testing.T) {
	t.Helper()
	good, bad := []int64{0, int64(ledger.DurationMin), int64(x.most)},
		[]int64{30_000, int64(ledger.DurationMin) - 1, int64(x.most) + 1}
	if x.most == 0 {
		good, bad = []int64{0, 1, ledger.InstantMax}, []int64{ledger.InstantMax + 1, 1<<63 - 1}
	}
	for _, ns := range good {
		r := proto.CloneOf(x.record)
		if x.set(r, ns); ledger.Check(r, agentSource) != nil {
			t.Errorf("%s: %d is refused: %v", x.field, ns, ledger.Check(r, agentSource))
		}
	}
	for _, ns := range bad {
		r := proto.CloneOf(x.record)
		x.set(r, ns)
		if err := ledger.Check(r, agentSource); refusedField(err) != x.field {
			t.Errorf("%s: %d: %v", x.field, ns, err)
		}
		if err := ledger.CheckSpans(r); refusedField(err) != x.field {
			t.Errorf("%s: %d: by its bounds alone %v", x.field, ns, err)
		}
	}
}
