package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/replay"
)

// quiet is a handler that is never called.
func quiet(context.Context, replay.UndoCall) error { return nil }

// benchAct is the action that is measured.
var benchAct = replay.Action{Capability: "file.write", Input: "path"}

func benchForward(context.Context, coordinator.Call) (coordinator.Outcome, error) {
	return coordinator.Outcome{Output: map[string]string{"id": "0123456789"}}, nil
}

// benchPlay does n actions with a handler.
func benchPlay(ctx context.Context, p *replay.Plan, n int) error {
	act := benchAct
	act.Undo = &replay.Undo{Handler: quiet}
	for range n {
		if _, err := p.Do(ctx, act, benchForward); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkReplay is an action of Plan.Do beside one of a Run, and one that is
// replayed, over a real server that syncs every write:
//
//	go test -run '^$' -bench Replay ./coordinator
func BenchmarkReplay(b *testing.B) {
	l := newLive(b, coordinator.Config{Contracts: []contract.Contract{files()}})
	c, err := coordinator.New(coordinator.Config{Conn: l.connect("a1"), Tenant: "default", Agent: "a1"})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(b.Context())
	rounds := 0
	run := func(ctx context.Context, plan int, f func(context.Context, *replay.Plan) error) error {
		return replay.Run(ctx, c, replay.Config{Plan: coordinator.PlanSpec{ID: fmt.Sprint("plan-", plan)}, Function: "bench"},
			f)
	}
	b.Run("do", func(b *testing.B) {
		p := l.begin(coordinator.PlanSpec{})
		for b.Loop() {
			if _, err := p.Do(b.Context(), coordinator.Action{
				Capability: benchAct.Capability, Input: benchAct.Input,
			}, benchForward); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("run", func(b *testing.B) {
		rounds++
		if err := run(b.Context(), rounds, func(ctx context.Context, p *replay.Plan) error {
			for b.Loop() {
				if err := benchPlay(ctx, p, 1); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	})
	const length = 10_000
	b.Run("replayed-plan-of-10000", func(b *testing.B) {
		rounds++
		life := func() {
			ctx, stop := context.WithCancel(b.Context())
			if err := run(ctx, rounds, func(ctx context.Context, p *replay.Plan) error {
				defer stop()
				return benchPlay(ctx, p, length)
			}); !errors.Is(err, context.Canceled) {
				b.Fatal(err)
			}
		}
		life()
		for b.Loop() {
			life()
		}
		b.ReportMetric(float64(length)*float64(b.N)/b.Elapsed().Seconds(), "actions/s")
	})
}
