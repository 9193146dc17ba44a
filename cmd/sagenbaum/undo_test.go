package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/proto/api"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// S31, S32: every attempt is listed, by plan, by action and by what it undoes, and
// says where its time went.
func TestS31S32UndosAreListedByPlanActionAndCapability(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	failures := 1
	s.now(func() {
		s.refund = func(context.Context, api.Command) (worker.Result, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if failures--; failures >= 0 {
				return worker.Result{}, errors.New("the bank is closed")
			}
			return worker.Result{}, nil
		}
	})
	for _, id := range []string{"p1", "p2"} {
		s.trip(t, coordinator.PlanSpec{ID: id, Owner: "travel"}, "card.charge", "room.book")
		s.run(t, cli.ExitGood, "plan unwind "+id+" --reason 'no trip' --wait")
	}
	list := func(line string) []api.Undo {
		return cmdtest.Decoded[api.UndosAnswer](t, s.run(t, cli.ExitGood, line+" -o json")).Undos
	}
	all := list("undo ls --plan p1")
	if len(all) != 3 {
		t.Fatalf("plan p1 has attempts %+v, want 3", all)
	}
	for _, u := range all {
		if u.Plan != "p1" || u.DispatchedNs == 0 || u.EndedNs < u.DispatchedNs || u.Worker != "hotel" ||
			u.Dispatched == "" || u.Ended == "" || u.About == "" || u.LLMNs != 0 {
			t.Errorf("the attempt is %+v", u)
		}
	}
	if only := list("undo ls --plan p1 --action 1"); len(only) != 2 || only[0].State != "failed" ||
		only[0].Attempt != 1 || only[1].State != "done" || only[1].Attempt != 2 {
		t.Errorf("action 1 has attempts %+v", only)
	}
	if rooms := list("undo ls --capability room.book"); len(rooms) != 2 || rooms[0].Plan != "p1" ||
		rooms[1].Plan != "p2" {
		t.Errorf("room.book was undone by %+v", rooms)
	}
	page := cmdtest.Decoded[api.UndosAnswer](t, s.run(t, cli.ExitGood, "undo ls --plan p1 --limit 2 -o json"))
	rest := cmdtest.Decoded[api.UndosAnswer](t, s.run(t, cli.ExitGood, "undo ls --plan p1 --after "+page.Next+" -o json"))
	if len(page.Undos) != 2 || len(rest.Undos) != 1 || rest.Next != "" {
		t.Errorf("in pages it is %+v and %+v", page, rest)
	}
	says(t, s.run(t, cli.ExitGood, "undo ls --plan p1"), "ACTION  UNDO BY", "WAITED", "card.refund", "failed", "hotel")
	says(t, s.run(t, cli.ExitGood, "undo ls --capability room.book"), "PLAN", "p2")
	s.run(t, cli.ExitGood, "undo ls --capability never.done", "nothing was dispatched")
	s.run(t, cli.ExitFailed, "undo ls --plan nowhere", "there is no plan nowhere", "next: sagenbaum plan ls")
	s.run(t, cli.ExitFailed, "undo ls --plan p1 --action 9", "it has 1, 2")
}

func TestUndoLsReadsPageAfterPage(t *testing.T) {
	t.Parallel()
	const total = 450
	url := answering(t, map[string]func([]byte) any{"undo.ls": func(data []byte) any {
		var q api.UndoQuery
		if err := json.Unmarshal(data, &q); err != nil {
			return api.Problem{Text: err.Error()}
		}
		answer := api.UndosAnswer{Undos: []api.Undo{}}
		for n := range total {
			place := fmt.Sprintf("%04d", n)
			if place <= q.After {
				continue
			}
			if len(answer.Undos) == min(q.Limit, 7) {
				return answer
			}
			answer.Undos = append(answer.Undos, api.Undo{Plan: "p", Action: place, WorkNs: int64(time.Second)})
			answer.Next = place
		}
		answer.Next = ""
		return answer
	}})
	for limit, want := range map[int]int{1000: total - 1, 10: 10} {
		r := cmdtest.Run(t, "undo", "ls", "--plan", "p", "--after", "0000", "--server", url, "-o", "json", "--limit",
			fmt.Sprint(limit))
		if got := len(cmdtest.Decoded[api.UndosAnswer](t, r).Undos); got != want {
			t.Errorf("limit %d: %d attempts, want %d", limit, got, want)
		}
	}
	circle := answering(t, map[string]func([]byte) any{"undo.ls": func([]byte) any {
		return api.UndosAnswer{Undos: []api.Undo{}, Next: "x"}
	}})
	cmdtest.Run(t, "undo", "ls", "--plan", "p", "--server", circle).Wants(t, "undo ls", cli.ExitFailed,
		"in a circle at x")
}

// An undo that is sent without knowing whether its forward has happened is shown as such, on every
// page of its plan, and one of what has happened is not.
func TestABlindUndoIsShownWithItsPlan(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	plan := s.begin(t, coordinator.PlanSpec{ID: "p1"})
	report(t, plan, "card.charge")
	doubt(t, plan, "card.charge")
	s.run(t, cli.ExitGood, "plan unwind p1 --reason 'no trip' --wait")
	const text = "blind       its undo was sent without knowing whether it had happened"
	if shown := s.run(t, cli.ExitGood, "plan show p1"); strings.Count(shown.Stdout, text) != 1 {
		t.Errorf("it says %s, want once %q", shown.Stdout, text)
	}
	if a := s.plan(t, "p1").Actions; len(a) != 2 || a[0].Blind || !a[1].Blind {
		t.Errorf("the actions are %+v", a)
	}
}
