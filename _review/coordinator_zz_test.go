package coordinator_test

import (
	"context"
	"testing"
	"time"

	"github.com/sagenbaum/sagenbaum/coordinator"
)

func TestZZSettledChild(t *testing.T) {
	l := newLive(t, coordinator.Config{Contracts: doubtful()})
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	q := l.begin(coordinator.PlanSpec{ID: "q", Parent: "p"})
	lose(t, q, "mail.send", "b")
	if err := q.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	list, err := q.Settled(ctx)
	t.Logf("child: %+v, %v", list, err)
	list, err = p.Settled(ctx)
	t.Logf("root: %+v, %v", list, err)
}

func TestZZSettledDuplicate(t *testing.T) {
	contracts := doubtful()
	contracts[0].AskAfter = time.Millisecond
	l := newLive(t, coordinator.Config{Contracts: contracts})
	l.answers("seat.get", `{"presence":"duplicate","external_ref":"x2"}`)
	p := l.begin(coordinator.PlanSpec{ID: "p"})
	lose(t, p, "seat.book", "a")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	list, err := p.Settled(ctx)
	t.Logf("%+v, %v", list, err)
	time.Sleep(time.Second)
	list, err = p.Settled(ctx)
	t.Logf("later %+v, %v", list, err)
}
