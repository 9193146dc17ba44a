package main

import (
	"testing"

	"github.com/sagenbaum/sagenbaum/triggers/timescales"
)

// Every property of the benchmark, at every scale, on traces of its shape with and
// without a violation and on traces of none: the trigger fires at the row at
// which the oracle first finds the property violated, and never otherwise.
func TestTriggersFireAtTheFirstViolation(t *testing.T) {
	for _, p := range timescales.Properties() {
		t.Run(p.Name, func(t *testing.T) {
			violated := 0
			for _, o := range traceOrders() {
				rows := p.Trace(o)
				m, err := newMonitor(p, o.Scale, true)
				if err != nil {
					t.Fatal(err)
				}
				got, err := m.run(rows)
				if err != nil {
					t.Fatalf("%+v: %v", o, err)
				}
				want := p.Violation(rows, o.Scale)
				if got != want {
					t.Errorf("%+v: fired at row %d, the oracle says %d\n%s", o, got, want, p.Condition(o.Scale))
				}
				if want >= 0 {
					violated++
				}
				switch {
				case o.Kind == timescales.Satisfying && want >= 0:
					t.Errorf("%+v: violated at row %d", o, want)
				case o.Kind == timescales.Planted && want < o.Rows*9/10:
					t.Errorf("%+v: violated at row %d, planted behind %d", o, want, o.Rows*9/10)
				}
			}
			t.Logf("%d of %d traces violated", violated, len(traceOrders()))
		})
	}
}

func traceOrders() (orders []timescales.Order) {
	add := func(kind timescales.Kind, scale, rows, seeds int) {
		for seed := range seeds {
			orders = append(orders, timescales.Order{Kind: kind, Scale: scale, Rows: rows, Seed: uint64(seed)})
		}
	}
	for _, scale := range []int{10, 100, 1000} {
		add(timescales.Satisfying, scale, 2000, 1)
		add(timescales.Planted, scale, 2000, 2)
		add(timescales.Mutated, scale, 2000, 6)
		add(timescales.Random, scale, 2000, 4)
	}
	add(timescales.Mutated, 10, 300, 40)
	add(timescales.Random, 10, 100, 100)
	return orders
}
