package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

// S50, S102: what nobody serves is said before it is needed, when it is published and while
// it is waited for; its owner need not wait for the end of that.
func TestS50WhatNobodyServesIsSaidAndAnswered(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	defer s.stop(t)
	dir := contractFolder(t, map[string]string{
		"served.yaml": "capability: room.book\nclass: compensable\nlate: never\nprobe: {call: room.look}\ninverse: " +
			"{call: room.free, with: {id: =output.id}}\n",
		"lone.yaml": "capability: lone.book\nclass: compensable\nlate: never\nunserved_after: 2h\nprobe: {call: " +
			"lone.look}\ninverse: {call: lone.free, with: {id: =output.id}}\n",
	})
	if r := s.run(t, cli.ExitGood, "contract lint "+dir); strings.Contains(r.Stdout, "serves") {
		t.Errorf("nobody was asked: %s", r.Stdout)
	}
	r := s.run(t, cli.ExitGood, "contract lint --workers "+dir)
	says(t, r, "inverse.call: no worker serves lone.free now: an action that needs it is its owner's after 2h",
		"probe.call: no worker serves the probe lone.look now")
	if strings.Contains(r.Stdout, "room.") {
		t.Errorf("these are served: %s", r.Stdout)
	}
	r = s.run(t, cli.ExitGood, "contract apply -f "+dir+" --actor ana")
	if !strings.Contains(r.Stderr, "no worker serves lone.free now") || strings.Contains(r.Stderr, "lone.look") {
		t.Errorf("apply warns\n%s", r.Stderr)
	}
	agent, err := coordinator.New(coordinator.Config{Conn: s.conn, Tenant: "default", Agent: "loner",
		Contracts: []contract.Contract{{
			Capability: "lone.book", Class: contract.Compensable, Late: contract.LateNever,
			UnservedAfter: 2 * time.Hour, Inverse: &contract.Inverse{Call: "lone.free"},
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := agent.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	plan, err := agent.Begin(t.Context(), coordinator.PlanSpec{ID: "p1", Owner: "travel"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Do(t.Context(), coordinator.Action{Capability: "lone.book"},
		func(context.Context, coordinator.Call) (coordinator.Outcome, error) {
			return coordinator.Outcome{Output: json.RawMessage(`{"id":"1"}`)}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	r = s.run(t, cli.ExitGood, "undo --plan p1 --dry-run")
	says(t, r, "no worker serves lone.free now: what it undoes waits until one does")
	if strings.Contains(r.Stdout, "next:") {
		t.Errorf("what to start for it is not known: %s", r.Stdout)
	}
	s.run(t, cli.ExitGood, "plan unwind p1 --reason 'no trip' --actor ana")
	cmdtest.Eventually(t, "it waits", func() (string, bool) {
		r := s.Ask(t, "default", "plan", "show", "p1")
		return r.Stdout, strings.Contains(r.Stdout, "none serves lone.free") &&
			strings.Contains(r.Stdout, "its owner's at ")
	})
	s.run(t, cli.ExitGood, "quarantine show p1 1")
	says(t, s.run(t, cli.ExitGood, "quarantine skip p1 1 --reason 'nobody will serve it' --actor ana"),
		"p1 action 1 (lone.book) skipped by ana", "plan now resolved")
	s.run(t, cli.ExitConflict, "quarantine skip p1 1 --reason again --actor ana", "nothing of it is owed")
}
