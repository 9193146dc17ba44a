package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// TestFactsAreWrittenReadEvictedAndRestored by commands, as docs/guide/memory.md shows.
func TestFactsAreWrittenReadEvictedAndRestored(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	fact := func(key string) api.Fact {
		return cmdtest.Decoded[api.Fact](t, s.run(t, cli.ExitGood, "fact get "+key+" -o json"))
	}
	s.trip(t, coordinator.PlanSpec{ID: "p1"}, "room.book")
	says := func(line string, want ...string) {
		t.Helper()
		out := s.run(t, cli.ExitGood, line).Stdout
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %q is not in\n%s", line, w, out)
			}
		}
	}
	says("fact put order/7 '{\"n\": 1.10}' --source shop", "order/7 in memory · record ")
	says("fact put risk 3 --source shop --plan p1", "risk in memory")
	says("fact get order/7", `{"n":1.10}`, "by           shop", "in the eviction queue since")
	if got := fact("order/7"); !strings.Contains(string(got.Value), "1.10") || got.By != "shop" ||
		got.State != api.FactInMemory {
		t.Errorf("%+v", got)
	}
	says("memory status", "2 facts in memory", "% of 268435456")
	says("memory evict order/7 risk --actor root --reason audit", "order/7 evicted at ", "risk evicted at ")
	s.run(t, cli.ExitConflict, "memory evict risk --actor root", "is evicted already, at")
	s.run(t, cli.ExitConflict, "memory restore nothing --actor root", `there is no fact "nothing"`)
	says("fact get risk", "evicted, read from the ledger at ", "value        3")
	if got := fact("risk"); got.State != api.FactEvicted || got.ReadFrom == "" || got.Plan != "p1" {
		t.Errorf("%+v", got)
	}
	says("fact ls --evicted", "order/7", "risk")
	says("memory queue", "2 evicted", "latest evictions", "asked at ")
	says("memory restore risk --actor root", "risk in memory at ")
	says("fact history risk", "asserted", "evicted", "reingested", "compensates ", "asked at ")
	says("fact put risk --retract --source shop", "risk retracted")
	says("fact ls --retracted", "risk")
	says("fact get risk", "retracted    ")
	if all := cmdtest.Decoded[api.FactsAnswer](t,
		s.run(t, cli.ExitGood, "fact ls --prefix or -o json")); len(all.Facts) != 1 || all.Facts[0].Key != "order/7" {
		t.Errorf("%+v", all)
	}
	s.run(t, cli.ExitGood, "fact ls --prefix zz", "no facts")
	s.run(t, cli.ExitFailed, "fact get nothing", `there is no fact "nothing"`)
	s.run(t, cli.ExitFailed, "fact history nothing", `there is no fact "nothing"`)
	says("ledger tail --since 1", "fact_evicted", "evict_requested")
	says("memory rebuild --check", "ok · sequences 1 to ", "working memory  ", "whole state     ")
	if got := cmdtest.Decoded[api.RebuildAnswer](t,
		s.run(t, cli.ExitGood, "memory rebuild --check -o json")); !got.Equal || got.State != got.Rebuilt {
		t.Errorf("%+v", got)
	}
}

// TestRebuildThatDiffersEndsWithOne and names the rows.
func TestRebuildThatDiffersEndsWithOne(t *testing.T) {
	t.Parallel()
	url := answering(t, map[string]func([]byte) any{"memory.rebuild": func([]byte) any {
		return api.RebuildAnswer{Applied: 9, State: "aa", Rebuilt: "bb", Facts: "cc", Refolded: "dd", Rows: 3,
			Differ: []string{"fact \"k\x1b\": not the same"}}
	}, "status": inMode(api.ModeHolding)})
	r := cmdtest.Run(t, "--server", url, "memory", "rebuild", "--check")
	r.Wants(t, "memory rebuild --check", cli.ExitLook)
	for _, want := range []string{"DIFFERENT · sequences 1 to 9", "cc, 3 facts", "dd", "aa", "bb",
		`fact "k\x1b": not the same`} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("%q is not in\n%s", want, r.Stdout)
		}
	}
}

// TestAnAgentsActIsUndoneInWorkingMemory by its contract, without a worker; the fact
// says of which act it is the undo.
func TestAnAgentsActIsUndoneInWorkingMemory(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	agent, err := coordinator.New(coordinator.Config{Conn: s.conn, Tenant: "default", Agent: "seller",
		Contracts: []contract.Contract{{
			Capability: "seat.hold", Class: contract.Compensable, OnInDoubt: contract.InDoubtQuarantine,
			Inverse: &contract.Inverse{Actuator: contract.ActuatorMemory, Call: "fact.assert", With: map[string]any{
				"key": `="seat/" + output.id`, "value": `={"state": "free", "room": input.room}`,
			}},
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := agent.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	plan, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	report(t, plan, "seat.hold")
	if err := plan.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	act := s.plan(t, "p1").Actions[0]
	s.run(t, cli.ExitGood, "fact put seat/pi_1 '\"taken\"' --source seller --plan p1 --action "+act.Action)
	if got := cmdtest.Decoded[api.Fact](t, s.run(t, cli.ExitGood, "fact get seat/pi_1 -o json")); got.Compensates ||
		got.About != act.Registered {
		t.Errorf("the effect is %+v", got)
	}
	s.run(t, cli.ExitGood, "plan unwind p1 --reason 'no trip' --wait")
	got := cmdtest.Decoded[api.Fact](t, s.run(t, cli.ExitGood, "fact get seat/pi_1 -o json"))
	if !got.Compensates || got.Plan != "p1" || got.Action != act.Action || got.About != act.Registered ||
		got.Cause == "" || !strings.Contains(string(got.Value), `"free"`) {
		t.Errorf("the undo is %+v", got)
	}
	if out := s.run(t, cli.ExitGood, "fact history seat/pi_1").Stdout; !strings.Contains(out, "effect of p1/") ||
		!strings.Contains(out, "compensates p1/"+act.Action+", registered at "+act.Registered) {
		t.Errorf("the history is\n%s", out)
	}
}

// TestAFactThatNeverFitsIsNotAskedBack: the others stay, and the operator is told the
// two sizes.
func TestAFactThatNeverFitsIsNotAskedBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, "--memory-bytes", "600")
	defer s.stop(t)
	s.run(t, cli.ExitGood, "fact put a 1 --source shop")
	s.run(t, cli.ExitGood, `fact put big "`+strings.Repeat("x", 701)+`" --source shop`)
	for end := time.Now().Add(10 * time.Second); ; {
		fact := cmdtest.Decoded[api.Fact](t, s.run(t, cli.ExitGood, "fact get big -o json"))
		if fact.State == api.FactEvicted {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", fact)
		}
	}
	r := s.run(t, cli.ExitConflict, "memory restore big --actor root", `fact "big": 706 bytes do not fit in 600`)
	if !strings.Contains(r.Stderr, "serve --memory-bytes") {
		t.Errorf("%s", r.Stderr)
	}
	says(t, s.run(t, cli.ExitGood, "memory status"), "1 facts in memory · 1 evicted", "1 evictions so far")
	says(t, s.run(t, cli.ExitGood, "fact get a"), "a in memory")
}

// TestWhatAFactCommandDidNotDoIsSaid: a retraction that ends nothing, a plan and an
// action that are not there; and the doctor does not warn of an operator's slip.
func TestWhatAFactCommandDidNotDoIsSaid(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	s.run(t, cli.ExitConflict, "memory evict nope --actor root", `there is no fact "nope"`)
	says(t, s.run(t, cli.ExitGood, "doctor"), "ok   records    1 refused, none within a day",
		"1 request of operators among them", `there is no fact "nope"`)
	says(t, s.run(t, cli.ExitGood, "fact put never --retract --source shop"), "never never was a fact · record ",
		" changes nothing: there is nothing to retract")
	s.run(t, cli.ExitGood, "fact put risk 3 --source shop")
	if out := s.run(t, cli.ExitGood, "fact put risk --retract --source shop").Stdout; strings.Contains(out, "nothing") {
		t.Errorf("%s", out)
	}
	had := cmdtest.Decoded[api.Fact](t, s.run(t, cli.ExitGood, "fact get risk -o json"))
	says(t, s.run(t, cli.ExitGood, "fact put risk --retract --source other"), "risk retracted · record ",
		" changes nothing: it was retracted at "+had.Tombstone)
	if got := cmdtest.Decoded[api.Fact](t, s.run(t, cli.ExitGood, "fact get risk -o json")); got.By != "shop" ||
		got.Tombstone != had.Tombstone {
		t.Errorf("%+v", got)
	}
	s.run(t, cli.ExitConflict, "fact put risk 4 --source shop --plan nope --action no",
		"has no effect: action no of plan nope is not registered")
	s.run(t, cli.ExitConflict, "fact put risk 4 --source shop --plan nope", "has no effect: plan nope was never opened")
	r := s.run(t, cli.ExitLook, "doctor") // of a source's records it does
	says(t, r, "warn records    3 refused, 2 of the newest 3 want a look", "1 request of operators among them")
	if strings.Contains(r.Stdout, `there is no fact "nope"`) {
		t.Errorf("%s", r.Stdout)
	}
}

// TestTheDoctorWarnsOfLeasesInError, which hold in silence: a fact may be of another kind
// than the condition expects.
func TestTheDoctorWarnsOfLeasesInError(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	says(t, s.run(t, cli.ExitGood, "doctor"), "ok   conditions no lease is in error")
	s.run(t, cli.ExitGood, `fact put stock '"none"' --source shop`)
	source := ledger.Source{Tenant: "default", Class: ledger.ClassAgent, Name: "other", Plan: "px"}
	data, err := ledger.EncodeCommit([]*pb.Record{{Plan: "px", Kind: &pb.Record_PlanOpened{PlanOpened: &pb.PlanOpened{
		Triggers: []*pb.Trigger{{Name: "late", Condition: `facts["stock"] < 3`}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	c := &cli.Client{Conn: s.conn, Tenant: "default", Server: s.URL, Timeout: 10 * time.Second}
	sequence, err := c.Append(t.Context(), ledger.Append{Subject: source.Subject(), ID: jetstream.NewID(), Data: data})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Plan(t.Context(), "px", sequence); err != nil {
		t.Fatal(err)
	}
	says(t, s.run(t, cli.ExitLook, "doctor"), "warn conditions 1 condition in error",
		"next: sagenbaum trigger explain px")
	says(t, s.run(t, cli.ExitGood, "plan tree px"), "in error: lease late", "next: sagenbaum trigger explain px")
	says(t, s.run(t, cli.ExitGood, "plan show px"), "in error: lease late", ", error: ")
}
